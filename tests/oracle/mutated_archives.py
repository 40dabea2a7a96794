#!/usr/bin/env python3
"""TorchScript archives that are cut, flipped, shortened, forged: each is refused by name, or loads with the original's tensors; no crash.

By hand, any number: .deps/python/bin/python tests/oracle/mutated_archives.py build/onebatch build/tests/load_archives --number 5000 --seed 7
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

import torch

from archives import Trial
from common import onebatch

TOGETHER = 50  # archives that one process loads


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)
        self.tied = self.last.weight
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.names, self.rates = ["a", "b"], {"x": 1.5}

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)))) + torch.tensor([1.0, 2.0, 3.0])


class Images(torch.nn.Module):
    """Its convolutions' and dropout's places in the source are looked up."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.nn.functional.dropout(torch.relu(self.norm(self.first(x))), 0.1, self.training).mean((2, 3)))


def records_of(file):
    with zipfile.ZipFile(file) as archive:
        return [(record.filename, archive.read(record), record.compress_type) for record in archive.infolist()]


def write(file, records):
    """With right checksums."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content, packing in records:
            archive.writestr(zipfile.ZipInfo(name), content, packing)


def cut(draw, file, original):
    whole = original.read_bytes()
    file.write_bytes(whole[:draw.randrange(len(whole))])


def flip(draw, file, original):
    bytes_ = bytearray(original.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 4))):
        bytes_[draw.randrange(len(bytes_))] ^= 1 << draw.randrange(8)
    file.write_bytes(bytes_)


def flip_directory(draw, file, original):
    """In the headers, where sizes, offsets, checksums and names are."""
    bytes_ = bytearray(original.read_bytes())
    mark = draw.choice((b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\7\x08"))
    places = [i for i in range(len(bytes_)) if bytes_.startswith(mark, i)]
    begin = draw.choice(places or [0])
    at = begin + draw.randrange(4, min(46, len(bytes_) - begin) if len(bytes_) - begin > 5 else 5)
    bytes_[at] = draw.choice((0, 1, 255, bytes_[at] ^ 1 << draw.randrange(8)))
    file.write_bytes(bytes_)


def swap_sizes(draw, file, original):
    """Of two records, in the directory, or in both places."""
    bytes_ = bytearray(original.read_bytes())
    places = [i for i in range(len(bytes_)) if bytes_.startswith(b"PK\1\2", i)]
    a, b = draw.sample(places, 2)
    for at in draw.choice(((20,), (24,), (20, 24), (42,), (16, 20, 24))):
        bytes_[a + at:a + at + 4], bytes_[b + at:b + at + 4] = bytes_[b + at:b + at + 4], bytes_[a + at:a + at + 4]
    file.write_bytes(bytes_)


def shorten(draw, file, original):
    records = records_of(original)
    index = draw.choice([i for i, (name, content, _) in enumerate(records) if "/data/" in name or "/constants/" in name])
    name, content, packing = records[index]
    records[index] = (name, content[:draw.randrange(len(content))], packing)
    write(file, records)


def swap_contents(draw, file, original):
    records = records_of(original)
    tensors = [i for i, (name, _, _) in enumerate(records) if "/data/" in name]
    a, b = draw.sample(tensors, 2)
    while len(records[a][1]) == len(records[b][1]):  # would be another archive, and whole
        a, b = draw.sample(tensors, 2)
    records[a], records[b] = (records[a][0], records[b][1], records[a][2]), (records[b][0], records[a][1], records[b][2])
    write(file, records)


def forge_name(draw, file, original):
    records = records_of(original)
    index = draw.randrange(len(records))
    name, content, packing = records[index]
    forged = draw.choice(("../" + name, "/" + name, name.replace("/", "\\"), name.replace("/", "/../", 1), name.replace("/", "//", 1), "other/" + name, records[index - 1][0],
                          name + "\x1b[2J/..", "", "C:" + name))
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(file, records[:index] + [(forged, content, packing)] + records[index + 1:])


def forge_pickle(draw, file, original):
    """Another archive, with right checksums: it may load as such."""
    forge_bytes(draw, file, original, (".pkl", ".debug_pkl"))


def forge_record(draw, file, original):
    """Any record: code, tensors, versions."""
    forge_bytes(draw, file, original, ("",))


def forge_bytes(draw, file, original, endings):
    records = records_of(original)
    index = draw.choice([i for i, (name, content, _) in enumerate(records) if name.endswith(endings) and content])
    name, content, packing = records[index]
    content = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        content[draw.randrange(len(content))] = draw.choice((draw.randrange(256), ord("("), ord("t"), ord("R"), 0xFF, 0x85))
    records[index] = (name, bytes(content), packing)
    write(file, records)


def forge_number(draw, file, original):
    """A size, stride, offset or count of a tensor, or where a place in the source is."""
    records = records_of(original)
    ending = draw.choice(("/data.pkl", ".debug_pkl"))
    index = draw.choice([i for i, (name, content, _) in enumerate(records) if name.endswith(ending) and b"K" in content])
    name, content, packing = records[index]
    places = [i for i in range(len(content) - 1) if content[i:i + 1] in (b"K", b"M")]
    at = draw.choice(places)
    number = draw.choice((b"K\xff", b"M\xff\xff", b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\xff", b"\x8a\x08" + struct.pack("<q", draw.choice((1 << 40, 1 << 62, -5)))))
    records[index] = (name, content[:at] + number + content[at + (2 if content[at:at + 1] == b"K" else 3):], packing)
    write(file, records)


DAMAGES = (cut, flip, flip, flip_directory, flip_directory, swap_sizes, shorten, swap_contents, forge_name)
FORGERIES = (forge_pickle, forge_pickle, forge_record, forge_number, forge_number)  # what comes of these may be another whole archive


def load(loader, files):
    """What came of each."""
    done = subprocess.run([loader, *map(str, files)], capture_output=True, text=True, errors="replace", timeout=240)
    lines = [line.split("\t", 2) for line in done.stdout.splitlines()]
    outcomes = {line[0]: tuple(line[1:]) for line in lines if len(line) == 3}
    if done.returncode != 0:
        sys.exit(f"FAIL the process that loaded them returned {done.returncode} at {lines[-1][0] if lines else files[0]}\n{done.stderr[-2000:]}")
    return outcomes


def judge(kind, file, outcome, digest):
    if outcome is None:
        return "nothing was said"
    if outcome[0] == "refused":
        return "" if str(file) in outcome[1] else f"its message does not name the file: {outcome[1]}"
    return "" if outcome[1] == digest or kind in FORGERIES else "loads with other tensors"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("loader")
    parser.add_argument("--number", type=int, default=420)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forgeries", action="store_true", help="nothing but archives with right checksums")
    parser.add_argument("--keep", help="write the archives into this folder, to look at one")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    failures, loaded, refused = 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="onebatch-archives-") as name:
        folder = pathlib.Path(arguments.keep or name)
        originals = [folder / "scripted.pt", folder / "traced.pt", folder / "convolutions.pt"]
        torch.jit.script(Net()).save(str(originals[0]))
        torch.jit.trace(Net(), torch.randn(4, 6)).save(str(originals[1]))
        torch.jit.trace(Images(), torch.randn(2, 1, 8, 8), check_trace=False).save(str(originals[2]))
        kinds = FORGERIES if arguments.forgeries else DAMAGES + FORGERIES
        digests = {file: load(arguments.loader, [file])[str(file)] for file in originals}
        assert all(outcome[0] == "loaded" for outcome in digests.values()), digests
        cases = [(kinds[number % len(kinds)], draw.choice(originals), folder / f"{number}.pt") for number in range(arguments.number)]
        for kind, original, file in cases:
            kind(draw, file, original)
        outcomes = {}
        for begin in range(0, len(cases), TOGETHER):
            outcomes.update(load(arguments.loader, [file for _, _, file in cases[begin:begin + TOGETHER]]))
        for kind, original, file in cases:
            outcome = outcomes.get(str(file))
            wrong = judge(kind, file, outcome, digests[original][1])
            failures += bool(wrong)
            loaded += outcome is not None and outcome[0] == "loaded"
            refused += outcome is not None and outcome[0] == "refused"
            if wrong:
                print(f"FAIL {kind.__name__} {file}: {wrong} (--seed {arguments.seed})")

        # Through the program: exit code 2, the file's name; and a whole one says that it is code.
        trial = Trial(arguments.program, folder, (torch.jit.script(Net()), {}), torch.randn(8, 6), torch.randint(0, 3, (8,)))
        said = onebatch(arguments.program, 1, ["train", trial._config({"precision": "float32"}), "--set", "run.name=whole"])
        if said.count("is TorchScript: it is code") != 1:
            print("FAIL that it is code is said once\n" + said)
            failures += 1
        for kind in (cut, shorten):
            kind(draw, folder / "model.pt", originals[0])
            said = onebatch(arguments.program, 2, ["train", trial._config({})], expect=(2,))
            if "model.pt" not in said:
                print(f"FAIL {kind.__name__}: the file is named\n{said}")
                failures += 1
    print(f"{len(cases)} mutations: {refused} refused, {loaded} loaded, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
