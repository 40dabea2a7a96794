#!/usr/bin/env python3
"""`onebatch export`: a run's weights in a safetensors file and in its program: Python loads either and predicts the same, bit for bit; mistakes; failures."""
import json
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import warnings
import zipfile

import torch
from safetensors.torch import load_file, save_file

from common import DIGITS, onebatch, relative_l2, report, scratch
from exported_models import ConvNet, DropMlp, Gpt, export, images, labels, tokens, vectors
from exported_oracle import EXAMPLE, Trial

PROGRAM = sys.argv[1]
FLOAT32 = {"compute": "float32", "parameters": "float32", "steps": 3}


def take_home(*arguments, expect=(0,)):
    return onebatch(PROGRAM, 1, ["export", *arguments], expect=expect)


def trained(folder, make, data, target, ranks=2, **settings):
    """An eager model with the weights that it had before, the trial that trained its program, and the run's folder."""
    torch.manual_seed(21)
    model = make().train()
    export(model, pathlib.Path(folder) / "model.pt2", data(EXAMPLE))
    trial = Trial(folder, data(12), target(12), **{**FLOAT32, **settings})
    trial.train(ranks)
    return model, trial, pathlib.Path(trial.result["run_dir"])


def model_file(run):
    return max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1])) / "model.safetensors"


def places_that_may_differ(file):
    """Of the weights' records: their bytes, and their checksums behind them and in the directory."""
    raw, allowed = file.read_bytes(), set()
    begin = zipfile.ZipFile(file).start_dir
    for record in zipfile.ZipFile(file).infolist():
        if "/data/weights/weight_" in record.filename:
            name, extra = struct.unpack("<HH", raw[record.header_offset + 26:record.header_offset + 30])
            data = record.header_offset + 30 + name + extra
            allowed |= set(range(data, data + record.file_size)) | set(range(data + record.file_size + 4, data + record.file_size + 8)) | set(range(begin + 16, begin + 20))
        begin += 46 + sum(struct.unpack("<HHH", raw[begin + 28:begin + 34]))
    return allowed


def check_other_bytes(before, after):
    old, new = before.read_bytes(), after.read_bytes()
    allowed = places_that_may_differ(before)
    strange = [i for i in range(min(len(old), len(new))) if old[i] != new[i] and i not in allowed]
    whole = len(old) == len(new) and zipfile.ZipFile(after).testzip() is None
    return report(whole and not strange, f"all but the weights' {len(allowed)} bytes are the program's, and the archive is whole", f"{len(old)} and {len(new)} bytes, others at {strange[:5]}")


def check_round_trip(what, make, data, target):
    failures = 0
    with scratch() as folder:
        folder = pathlib.Path(folder)
        model, trial, run = trained(folder, make, data, target)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        take_home(run, "--to", folder / "home.safetensors")
        take_home(run, "--to", folder / "home.pt2")
        weights = load_file(folder / "home.safetensors")
        failures += report((folder / "home.safetensors").read_bytes() == model_file(run).read_bytes(), f"{what}: the weights' file is the checkpoint's")
        model.load_state_dict(weights)
        failures += report(any(not torch.equal(before[name], weights[name]) for name in before), "they are not those from before the training")
        program, inputs = torch.export.load(str(folder / "home.pt2")), data(9)
        state = {name: tensor for name, tensor in program.state_dict.items() if name in weights}
        failures += report(set(state) == set(weights) and all(torch.equal(state[name], weights[name]) for name in weights), "the program's state_dict is the checkpoint's")
        found, wanted = program.module()(*inputs), model.train()(*inputs)
        failures += report(torch.equal(found, wanted), "the program predicts the same as the model, bit for bit", f"{(found - wanted).abs().max()}")
        model.load_state_dict(weights)
        save_file({"000": inputs[0]}, folder / "given.safetensors")
        onebatch(PROGRAM, 1, ["check", folder / "home.pt2", "--inputs", folder / "given.safetensors", "--phase", "evaluation", "--save", folder / "found.safetensors"])
        exact = {"output": model.double().eval()(*(x.double() if x.is_floating_point() else x for x in inputs)).detach()}
        error = relative_l2({"output": load_file(folder / "found.safetensors")["output.0"]}, exact)
        failures += report(error <= 1e-12, f"and in evaluation, by onebatch check: relative L2 {error:.1e} (at most 1e-12)")
        return failures + check_other_bytes(folder / "model.pt2", folder / "home.pt2")


def check_types():
    """A float64 run of a float32 program: each weight is rounded once."""
    with scratch() as folder:
        folder = pathlib.Path(folder)
        _, _, run = trained(folder, lambda: DropMlp(0.0), lambda n: (torch.randn(n, 12),), labels, 1, compute="float64", parameters="float64")
        said = take_home(run, "--to", folder / "home.pt2", "--json", folder / "home.json")
        weights, state = load_file(model_file(run)), torch.export.load(str(folder / "home.pt2")).state_dict
        right = all(state[name].dtype == torch.float32 and torch.equal(state[name], weights[name].float()) for name in weights)
        document = json.loads((folder / "home.json").read_text())
        return report(right and "4 of 4 tensors had another type" in said and document["converted"] == 4 and document["step"] == 3, "a float64 run keeps the program's float32", said)


def check_forms(folder, trial, run):
    """A run, a checkpoint, `latest`, an older step, a configuration."""
    failures = 0
    newest = model_file(run).parent
    older = newest.with_name("step-2")
    for i, (arguments, step) in enumerate((([f"{run}/"], newest), ([f"{newest}/"], newest), ([run / "checkpoints" / "latest"], newest), ([older], older), ([trial.config(), "--checkpoint", run], newest),
                                           ([trial.config(), "--checkpoint", older], older))):
        ending = "pt2" if i % 2 else "safetensors"  # both go the same way to the checkpoint
        take_home(*arguments, "--to", folder / f"{i}.{ending}")
        wanted = load_file(step / "model.safetensors")
        found = torch.export.load(str(folder / f"{i}.pt2")).state_dict if i % 2 else load_file(folder / f"{i}.safetensors")
        right = all(torch.equal(found[name], wanted[name]) for name in wanted)
        failures += report(right, f"from {' '.join(str(word).replace(str(folder), '…') for word in arguments)}")
    return failures


def mistakes(folder, trial, run):
    """What is wrong, the arguments, what is said."""
    empty = folder / "empty"
    empty.mkdir()
    (folder / "there.pt2").write_text("mine")
    torch.manual_seed(1)
    export(torch.nn.Linear(12, 5).train(), folder / "other.pt2", vectors(EXAMPLE))
    moved = trial.config().read_text().replace(f"{folder}/model.pt2", "gone.pt2")
    (folder / "moved.toml").write_text(moved)
    mlp = folder / "mlp.toml"
    mlp.write_text(f'run.epochs = 1\nbatch.global_batch_size = 8\n[data]\nkind = "idx"\npath = "{DIGITS}"\n[model]\nkind = "mlp"\nhidden = [8]\n[optimizer]\nkind = "sgd"\nlr = 0.1\n')
    yield "no such run", [folder / "nothing", "--to", folder / "a.pt2"], ("nothing is no folder", "runs/demo")
    yield "a run without a checkpoint", [empty, "--to", folder / "a.pt2"], ("no checkpoint at", "step-N")
    yield "another ending", [run, "--to", folder / "a.pth"], (".safetensors", ".pt2")
    yield "no target", [run], ("--to",)
    yield "a target that is there", [run, "--to", folder / "there.pt2"], ("is there already", "--overwrite")
    yield "a target in no folder", [run, "--to", folder / "no" / "a.pt2"], ("there is no folder",)
    yield "a target that is a folder", [run, "--to", f"{empty}/"], (".safetensors",)
    yield "an mlp's program", [mlp, "--checkpoint", run, "--to", folder / "a.pt2"], ('model.kind is "mlp"', "a.safetensors")
    yield "a configuration without a checkpoint", [trial.config(), "--to", folder / "a.pt2"], ("--checkpoint RUN",)
    yield "a checkpoint of a run", [run, "--checkpoint", run, "--to", folder / "a.pt2"], ("go with a configuration",)
    yield "a program that is gone", [folder / "moved.toml", "--checkpoint", run, "--to", folder / "a.pt2"], ('model.path = "gone.pt2"', "--set model.path=FILE")
    yield "another program", [trial.config(), "--set", f"model.path={folder}/other.pt2", "--checkpoint", run, "--to", folder / "a.pt2"], ("is not the program that was trained", "layers.0.weight")
    yield "a program that is none", [trial.config(), "--set", f"model.path={folder}/there.pt2", "--checkpoint", run, "--to", folder / "a.pt2"], ("there.pt2 cannot be read",)


def check_mistakes(folder, trial, run):
    failures = 0
    for what, arguments, words in mistakes(folder, trial, run):
        said = " ".join(take_home(*arguments, expect=(2,)).split())
        missing = [word for word in words if word not in said]
        failures += report(not missing, f"refused: {what}", f"without {missing}: {said}")
    left = [path.name for path in folder.iterdir() if path.name.startswith("a.") or "partial" in path.name]
    failures += report(not left and (folder / "there.pt2").read_text() == "mine", "and nothing is left behind or replaced", str(left))
    take_home(run, "--to", folder / "there.pt2", "--overwrite")
    return failures + report(bool(torch.export.load(str(folder / "there.pt2")).state_dict), "--overwrite replaces a file")


class Pipe:
    """A file in which nobody can go back."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.write, self.flush, self.close = self.file.write, self.file.flush, self.file.close


def check_archives(folder, trial, run):
    """Programs whose archives others have written: headers of other kinds, a comment, wide sizes."""
    failures = 0
    wanted = load_file(model_file(run))
    for what, wide, make in (("with checksums in the headers", False, str), ("with descriptors", False, Pipe), ("with wide sizes", True, str), ("with wide descriptors", True, Pipe)):
        with zipfile.ZipFile(folder / "model.pt2") as program, zipfile.ZipFile(make(folder / "again.pt2"), "w") as again:
            again.comment = b"by somebody else"
            for name in program.namelist():
                with again.open(zipfile.ZipInfo(name), "w", force_zip64=wide) as record:
                    record.write(program.read(name))
        take_home(trial.config(), "--set", f"model.path={folder}/again.pt2", "--checkpoint", run, "--to", folder / "archive.pt2", "--overwrite")
        state = torch.export.load(str(folder / "archive.pt2")).state_dict
        whole = zipfile.ZipFile(folder / "archive.pt2").testzip() is None
        failures += report(whole and all(torch.equal(state[name], wanted[name]) for name in wanted), f"into an archive {what}")
    return failures


def full_disk():
    """A file may have no more than 1 KiB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def check_failures(folder, run):
    """A disk that is full, and a checkpoint that was altered."""
    failures = 0
    for ending in ("pt2", "safetensors"):
        target = folder / f"kept.{ending}"
        target.write_text("mine")
        done = subprocess.run([PROGRAM, "export", run, "--to", target, "--overwrite"], capture_output=True, text=True, preexec_fn=full_disk, timeout=60)
        kept = target.read_bytes() == b"mine" and not list(folder.glob(f"{target.name}.*"))
        failures += report(done.returncode == 2 and "No space left on device" in done.stderr and kept, f"a full disk leaves {target.name} as it was", f"{done.returncode}: {done.stderr}")
    copy = folder / "copy"
    shutil.copytree(run, copy, symlinks=True)
    file = model_file(copy)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    said = take_home(file.parent, "--to", folder / "altered.pt2", expect=(2,))
    failures += report("was altered" in said and not (folder / "altered.pt2").exists(), "an altered checkpoint is refused", said)
    said = take_home(copy, "--to", folder / "older.safetensors")
    right = "fallback" in said and (folder / "older.safetensors").read_bytes() == (file.parent.with_name("step-2") / "model.safetensors").read_bytes()
    failures += report(right, "of a run the one before it is taken, and said", said)
    said = take_home(copy, "--strict", "--to", folder / "strict.safetensors", expect=(1,))
    return failures + report("--strict" in said and not (folder / "strict.safetensors").exists(), "with --strict it is an error", said)


def main():
    warnings.filterwarnings("ignore")
    failures = check_round_trip("a net with BatchNorm", ConvNet, images, labels)
    failures += check_round_trip("a GPT with tied weights", Gpt, tokens, lambda n: torch.randint(0, 11, (n,))) + check_types()
    with scratch() as name:
        folder = pathlib.Path(name)
        _, trial, run = trained(folder, lambda: DropMlp(0.0), vectors, labels, 1, checkpoint="every_steps = 1\nkeep = 0")
        failures += check_forms(folder, trial, run) + check_archives(folder, trial, run) + check_mistakes(folder, trial, run) + check_failures(folder, run)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
