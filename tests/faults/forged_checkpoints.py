#!/usr/bin/env python3
"""Checkpoints that are corrupted or forged, in every way that a file, a folder or a number can be: none is taken for what it is not. Either the
run goes on as if nothing had happened, or from the older one, and says so, or it ends with a code and a reason.

forged_checkpoints.py PROGRAM LIBRARY [--cases N] [--minutes M] [--seed S] [--jobs J] [--case I]

LIBRARY is libfile_operation_faults.so, which lets a loaded program be started many times.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import ctypes.util
import json
import os
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time

from prestarted import Pool
from small_runs import ENVIRONMENT, TRACES, configuration


class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH = ctypes.CDLL(ctypes.util.find_library("xxhash"))
XXHASH.XXH3_128bits.restype = Hash
XXHASH.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checksum(content):
    digest = XXHASH.XXH3_128bits(content, len(content))
    return f"{digest.high:016x}{digest.low:016x}"


MORE = """[optimizer]
kind = "{optimizer}"
[checkpoint]
every_steps = 2
keep = 10
"""
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "rank_generators.safetensors")
NUMBERS = (-1, 0, 1, 3, 7, 1.5, 1e300, -1e300, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, float("nan"), float("inf"))
OTHERS = (None, True, "", "4", "NaN", [], [1], {}, {"a": 1}, [[[[]]]])


class Forger:
    """Draws one forgery of step-4, and does it. What it knows: whether the checksums are right afterwards."""

    def __init__(self, run, other, rng):
        self.run, self.other, self.rng = run, other, rng
        self.checkpoints = run / "checkpoints"
        self.newest = self.checkpoints / "step-4"
        self.checksums_are_right = False

    def forge(self):
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("forge_")]
        kind = self.rng.choice(kinds)
        return f"{kind.__name__.removeprefix('forge_').replace('_', ' ')}: {kind()}"

    def any_file(self):
        return self.newest / self.rng.choice((*FILES, "manifest.json"))

    def write_manifest(self):
        """With the checksums of what is there."""
        manifest = json.loads((self.newest / "manifest.json").read_text())
        for path in self.newest.iterdir():
            if path.name != "manifest.json":
                content = path.read_bytes()
                manifest["files"][path.name] = {"bytes": len(content), "checksum": checksum(content)}
        manifest["files"] = {name: said for name, said in manifest["files"].items() if (self.newest / name).exists()}
        (self.newest / "manifest.json").write_text(json.dumps(manifest, indent=2))
        self.checksums_are_right = True

    def forge_flipped_bytes(self):
        path = self.any_file()
        content = bytearray(path.read_bytes())
        for _ in range(self.rng.choice((1, 1, 2, 50))):
            content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(content)
        return path.name

    def forge_flipped_bytes_with_right_checksums(self):
        path = self.newest / self.rng.choice(FILES)
        content = bytearray(path.read_bytes())
        end = len(content) if self.rng.random() < 0.3 else min(len(content), 400)
        for _ in range(self.rng.choice((1, 2, 20))):
            content[self.rng.randrange(end)] ^= 1 << self.rng.randrange(8)
        path.write_bytes(content)
        self.write_manifest()
        return path.name

    def forge_cut(self):
        path = self.any_file()
        size = self.rng.randrange(path.stat().st_size)
        os.truncate(path, size)
        if self.rng.random() < 0.5 and path.name != "manifest.json":
            self.write_manifest()
        return f"{path.name} at {size}"

    def forge_longer(self):
        path = self.any_file()
        with open(path, "ab") as file:
            file.write(self.rng.randbytes(self.rng.choice((1, 8, 5000))))
        if self.rng.random() < 0.5 and path.name != "manifest.json":
            self.write_manifest()
        return path.name

    def forge_swapped_between_steps(self):
        path = self.any_file()
        shutil.copyfile(self.checkpoints / "step-2" / path.name, path)
        if self.rng.random() < 0.5 and path.name != "manifest.json":
            self.write_manifest()
        return path.name

    def forge_swapped_files(self):
        one, two = self.rng.sample(FILES, 2)
        first, second = (self.newest / one).read_bytes(), (self.newest / two).read_bytes()
        (self.newest / one).write_bytes(second)
        (self.newest / two).write_bytes(first)
        self.write_manifest()
        return f"{one}, {two}"

    def forge_of_another_run(self):
        """Another optimizer's or model's."""
        names = self.rng.choice((FILES, FILES[:1], FILES[1:2], FILES[2:3], FILES[:2]))
        for name in names:
            shutil.copyfile(self.other / "checkpoints" / "step-4" / name, self.newest / name)
        self.write_manifest()
        return ", ".join(names)

    def forge_state(self):
        path = self.newest / "state.json"
        state = json.loads(path.read_text())
        for _ in range(self.rng.choice((1, 1, 1, 3))):
            self.spoil(state)
        text = json.dumps(state)
        if self.rng.random() < 0.1:
            text = self.rng.choice(("[" * 100000, '{"a":' * 50000, "", "null", "[]", text[:-1], text + text, '{"step": 1e400}', "\xff"))
        path.write_text(text)
        self.write_manifest()
        return text if len(text) < 1500 else text[:100]

    def spoil(self, json_object):
        """One value somewhere in it becomes another, or goes."""
        at = json_object
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                return
            key = self.rng.choice(keys)
            if isinstance(at[key], (dict, list)) and at[key] and self.rng.random() < 0.8:
                at = at[key]
                continue
            if self.rng.random() < 0.15 and isinstance(at, dict):
                del at[key]
            else:
                at[key] = self.rng.choice(NUMBERS if self.rng.random() < 0.6 else OTHERS)
            return

    def forge_manifest(self):
        path = self.newest / "manifest.json"
        manifest = json.loads(path.read_text())
        kind = self.rng.randrange(7)
        if kind == 0:
            self.spoil(manifest)
        elif kind == 1:
            manifest["files"]["../step-2/model.safetensors"] = manifest["files"]["model.safetensors"]
        elif kind == 2:
            manifest["files"].pop(self.rng.choice(FILES))
        elif kind == 3:
            manifest["files"]["missing"] = {"bytes": 0, "checksum": "0" * 32}
        elif kind == 4:
            manifest["files"]["."] = manifest["files"]["state.json"]
        elif kind == 5:
            manifest["files"]["manifest.json"] = manifest["files"]["state.json"]
        text = "[" * 100000 if kind == 6 else json.dumps(manifest)
        path.write_text(text)
        return text[:300]

    def forge_tensors(self):
        """The header and the data of a safetensors file, put together otherwise."""
        path = self.newest / self.rng.choice((FILES[0], FILES[1], FILES[3]))
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
        names = [name for name in header if name != "__metadata__"]
        name = self.rng.choice(names)
        what = self.rng.choice(("missing", "extra", "shape", "dtype", "offsets", "name", "spoil", "nan", "twice", "transposed"))
        if what == "missing":
            begin, end = header.pop(name)["data_offsets"]
            data = data[:begin] + data[end:]
            for key, one in header.items():
                if key != "__metadata__" and one["data_offsets"][0] >= end:
                    one["data_offsets"] = [at - (end - begin) for at in one["data_offsets"]]
        elif what == "extra":
            header["extra"] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
            data += bytes(8)
        elif what == "shape":
            header[name]["shape"] = self.rng.choice(([], [1], [-1], [0], [2**62, 2**62], [3, 3], [1.5], ["2"], header[name]["shape"] + [1]))
        elif what == "dtype":
            header[name]["dtype"] = self.rng.choice(("F64", "F16", "BF16", "I32", "U32", "I64", "F8_E4M3", "", 3, None))
        elif what == "offsets":
            header[name]["data_offsets"] = self.rng.choice(([0, 0], [0, 2**63], [-4, 4], [8, 0], [0], [1.5, 2], "00", [len(data), len(data) + 8]))
        elif what == "name":
            header[name + "\0x"] = header.pop(name)
        elif what == "spoil":
            self.spoil(header)
        elif what == "nan":
            data = self.rng.choice((b"\xff", b"\x00", b"\x7f")) * len(data)
        elif what == "transposed":
            header[name]["shape"] = header[name]["shape"][::-1]
        text = json.dumps(header).encode()
        if what == "twice":
            text = text[:-1] + b"," + text[1:]
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        self.write_manifest()
        return f"{what} {name} in {path.name}"

    def forge_latest(self):
        latest = self.checkpoints / "latest"
        latest.unlink()
        what = self.rng.choice(("file", "folder", "loop", "pipe", "none", "dangling", "elsewhere", "full folder", "older"))
        if what == "file":
            latest.write_text("step-4")
        elif what == "folder":
            latest.mkdir()
        elif what == "loop":
            latest.symlink_to("latest")
        elif what == "pipe":
            os.mkfifo(latest)
        elif what == "dangling":
            latest.symlink_to("step-99")
        elif what == "elsewhere":
            latest.symlink_to(self.other / "checkpoints" / "step-4")
        elif what == "full folder":
            shutil.copytree(self.newest, latest)
        elif what == "older":
            latest.symlink_to("step-2")
        return what

    def forge_not_a_file(self):
        path = self.any_file()
        path.unlink()
        what = self.rng.choice(("folder", "full folder", "pipe", "loop", "dangling", "none", "outside", "device", "zero"))
        if what in ("folder", "full folder"):
            path.mkdir()
        if what == "full folder":
            (path / "x").write_text("x")
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "loop":
            path.symlink_to(path.name)
        elif what == "dangling":
            path.symlink_to("nowhere")
        elif what == "outside":
            path.symlink_to(self.other / "checkpoints" / "step-4" / path.name)
        elif what == "device":
            path.symlink_to("/dev/zero")
        elif what == "zero":
            path.touch()
        return f"{path.name} {what}"

    def forge_not_a_folder(self):
        shutil.rmtree(self.newest)
        what = self.rng.choice(("file", "empty", "pipe", "loop", "outside", "older", "none"))
        if what == "file":
            self.newest.write_text("x")
        elif what == "empty":
            self.newest.mkdir()
        elif what == "pipe":
            os.mkfifo(self.newest)
        elif what == "loop":
            self.newest.symlink_to("step-4")
        elif what == "outside":
            self.newest.symlink_to(self.other / "checkpoints" / "step-4")
        elif what == "older":
            self.newest.symlink_to("step-2")
        return what

    def forge_names(self):
        """Folders that are named otherwise than what is in them."""
        name = self.rng.choice(("step-5", "step-3", "step-1", "step--4", "step-04", "step-4x", "step-", "step-9223372036854775807", "step-9223372036854775808", "step-+4", "Step-9", ".step-9", "step-0"))
        if self.rng.random() < 0.5:
            self.newest.rename(self.checkpoints / name)
        else:
            shutil.copytree(self.checkpoints / self.rng.choice(("step-2", "step-4")), self.checkpoints / name)
        return name

    def forge_additional(self):
        """What does not belong in a checkpoint, or beside it."""
        where = self.rng.choice((self.newest, self.checkpoints, self.run))
        name = self.rng.choice(("x", ".hidden", "model.safetensors.partial", "step-9", ".step-9.partial", "a b\nc", "\udcff", "rank_buffers.safetensors"))
        path = where / name
        if self.rng.random() < 0.5:
            path.mkdir(exist_ok=True)
        else:
            path.write_text("x")
        return str(path.relative_to(self.run)).encode(errors="replace").decode()

    def forge_permissions(self):
        """Means nothing to root, but must not harm."""
        path = self.rng.choice((self.any_file(), self.newest, self.newest / "state.json"))
        path.chmod(self.rng.choice((0, 0o200, 0o444)))
        return path.name


class Bench:
    def __init__(self, pool, folder):
        self.pool, self.folder = pool, folder
        folder.mkdir()
        self.environment = dict(ENVIRONMENT, XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(folder))
        self.run = folder / "runs" / "run"
        for name, optimizer in (("other", "sgd"), ("run", "adamw")):
            self.start(6, optimizer, "--set", f"run.name={name}")
        (self.run / "result.json").unlink()
        shutil.rmtree(self.run / "checkpoints" / "step-6")
        (self.run / "checkpoints" / "latest").unlink()
        (self.run / "checkpoints" / "latest").symlink_to("step-4")
        self.other = folder / "runs" / "other"
        self.before = folder / "before"
        shutil.copytree(self.run, self.before, symlinks=True)
        self.wanted = self.continuation()

    def start(self, steps, optimizer, *more):
        config = self.folder / "c.toml"
        config.write_text(configuration(self.folder, steps, MORE.format(optimizer=optimizer)))
        return self.pool.run(["train", str(config), *more], self.environment, self.folder / "said", timeout=60)

    def restore(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.run], capture_output=True)
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.before, self.run, symlinks=True)

    def continuation(self):
        code, said = self.start(6, "adamw", "--resume")
        if code != 0:
            sys.exit(f"an undisturbed run failed: {said}")
        weights = self.weights()
        self.restore()
        return weights

    def weights(self):
        return (self.run / "checkpoints" / "step-6" / "model.safetensors").read_bytes()


def judge(bench, forger, code, said):
    """In a word what became of it, or what is wrong with that."""
    for trace in TRACES:
        if trace in said:
            return f"WRONG: it says {trace!r}"
    if code not in (0, 1, 2):
        return f"WRONG: it returned {code}"
    if code != 0:
        reason = [line for line in said.splitlines() if line.startswith("onebatch: ")]
        return "refused" if reason else "WRONG: no reason"
    if "the run is complete" in said:
        return "complete" if forger.checksums_are_right or "resumed from" in said else "WRONG: nothing was trained"
    older = "did resuming from" in said or "did beginning anew" in said
    same = bench.weights() == bench.wanted
    if same and older:
        return "the older one, said"
    if same and "/step-4: step 4" in said:
        return "unharmed"
    if same:
        return "WRONG: the older one, and nothing said"
    if forger.checksums_are_right:
        return "another model, of right checksums"
    return "WRONG: other weights" + (", although an older one was said" if older else "")


def run_case(bench, seed, number):
    """The verdict, what was done, and what was said."""
    rng = random.Random(seed * 100003 + number)
    bench.restore()
    forger = Forger(bench.run, bench.other, rng)
    what = forger.forge()
    try:
        code, said = bench.start(6, "adamw", "--resume")
        verdict = judge(bench, forger, code, said)
    except (subprocess.TimeoutExpired, OSError) as error:
        verdict, said = f"WRONG: {error}", ""
    return verdict, what, said


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("library", type=pathlib.Path)
    options.add_argument("--cases", type=int, default=2000)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--case", type=int)
    given = options.parse_args()
    pool = Pool(given.jobs, given.program.resolve(), given.library.resolve(), ENVIRONMENT)
    verdicts, kinds, until = collections.Counter(), collections.Counter(), time.time() + given.minutes * 60
    with tempfile.TemporaryDirectory(prefix="onebatch-forged-") as folder:
        benches = queue.SimpleQueue()
        for number in range(given.jobs):
            benches.put(Bench(pool, pathlib.Path(folder) / str(number)))

        def one(number):
            if time.time() > until:
                return None
            bench = benches.get()
            try:
                return number, *run_case(bench, given.seed, number)
            finally:
                benches.put(bench)

        numbers = [given.case] if given.case is not None else range(given.cases)
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as threads:
            for result in threads.map(one, numbers):
                if result is None:
                    continue
                number, verdict, what, said = result
                verdicts[verdict.split(":")[0]] += 1
                kinds[what.split(":")[0], verdict.split(":")[0]] += 1
                if verdict.startswith("WRONG") or given.case is not None:
                    print(f"{verdict} --seed {given.seed} --case {number}: {what}\n{said[-1500:]}", flush=True)
    pool.close()
    for (kind, verdict), number in sorted(kinds.items()):
        print(f"  {kind:40} {verdict:35} {number}")
    print(f"{sum(verdicts.values())} forged checkpoints: {', '.join(f'{number} {verdict}' for verdict, number in verdicts.most_common())}")
    return 1 if verdicts["WRONG"] or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
