"""What a run has trained, as a state_dict."""
import json
import pathlib
import re
import warnings

import torch

from .files import read_header, read_tensors

try:
    import xxhash
except ImportError:
    xxhash = None

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
AVERAGED = "ema."  # and a parameter's name: its average, among the optimizer's tensors
CHOICES = ("auto", "raw", "ema")
BLOCK_BYTES = 1 << 20
STEP = re.compile(r"step-(\d+)")


def steps_of(folder):
    """A run's checkpoints, the newest first. Those that are being written have another name."""
    found = [(int(match[1]), path) for path in folder.glob("checkpoints/step-*") if (match := STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def checksum_of(path):
    """As a manifest has it."""
    checksum = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            checksum.update(block)
    return checksum.hexdigest()


def check_written(folder, name):
    """Raises ValueError where a file is not the one that the checkpoint was written with: by its size, and where xxhash is installed by its
    checksum."""
    path = folder / name
    said = json.loads((folder / "manifest.json").read_text())["files"][name]
    size = path.stat().st_size
    if size != said["bytes"]:
        raise ValueError(f"{path} has {size} bytes, and was written with {said['bytes']}")
    if xxhash is not None and checksum_of(path) != said["checksum"]:
        raise ValueError(f"{path} was altered: its checksum is not the manifest's")


def read_averages(folder):
    """{a parameter's name: its average}; empty where the run had none."""
    path = folder / OPTIMIZER
    check_written(folder, OPTIMIZER)
    with open(path, "rb") as file:
        entries, _ = read_header(file, path)
    if not any(name.startswith(AVERAGED) for name in entries):
        return {}
    return {name.removeprefix(AVERAGED): tensor for name, tensor in read_tensors(path).items() if name.startswith(AVERAGED)}


def read_checkpoint(folder, weights):
    """The model's tensors, the averages where they may be wanted, and the names that are shared, where the checkpoint tells."""
    check_written(folder, MODEL)
    averages = {} if weights == "raw" else read_averages(folder)
    shared = None
    if averages:
        check_written(folder, STATE)
        shared = json.loads((folder / STATE).read_text()).get("shared_names")
    return read_tensors(folder / MODEL), averages, shared


def same_bits(one, other):
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def average_of(name, model, averages, shared):
    """A tied weight has its average under one of its names, which the checkpoint tells. Older ones do not: there what has the same bits as a weight that was averaged is that weight."""
    if name in averages:
        return averages[name]
    tied = shared.get(name) if shared is not None else next((other for other in sorted(averages) if other in model and same_bits(model[name], model[other])), None)
    return averages[tied].clone() if tied in averages else model[name]


def chosen(folder, model, averages, shared, weights):
    if weights == "ema" and not averages:
        raise ValueError(f"{folder} has no averaged weights, since its run had optimizer.ema_decay = 0: leave weights out, or write weights=\"raw\"")
    return {name: average_of(name, model, averages, shared) for name in model}


def load_checkpoint(run, weights="auto"):
    """The state_dict of a run's newest checkpoint, or of one: `run` is a run's folder ("runs/name") or a checkpoint's
    ("runs/name/checkpoints/step-90"). Weights that are tied stand under each of their names.

    `weights`: "auto", as `onebatch eval` and `onebatch export` take them: averaged (optimizer.ema_decay) where there are any, in the average's
    type, and else as they were trained; "raw": as they were trained; "ema": averaged, and ValueError where there are none.

    A run may still be going. A checkpoint that is not whole is passed over with a warning: one that lacks a file, or has one of another size
    than it was written with or, where the module xxhash is installed, of another checksum. Without xxhash, altered numbers are not seen. Raises
    FileNotFoundError where there is none, and ValueError where none is whole.
    """
    if weights not in CHOICES:
        raise ValueError(f"weights is {weights!r}: write \"auto\", \"raw\" or \"ema\"")
    folder = pathlib.Path(run)
    if folder.name == MODEL:
        folder = folder.parent
    if (folder / MODEL).is_file():
        return chosen(folder, *read_checkpoint(folder, weights), weights)
    for _ in range(3):  # a run that goes on adds one before it takes older ones away
        candidates = steps_of(folder)
        broken = []
        for candidate in candidates:
            try:
                found = read_checkpoint(candidate, weights)
            except FileNotFoundError:
                broken.append(f"{candidate} is gone, or lacks {MODEL}, {OPTIMIZER}, {STATE} or manifest.json")
            except (ValueError, KeyError) as error:
                broken.append(str(error))
            else:
                for reason in broken:
                    warnings.warn(f"{reason}: {candidate.name} is taken instead", stacklevel=2)
                return chosen(candidate, *found, weights)
    if broken:
        raise ValueError(f"{folder} has no whole checkpoint: {'; '.join(broken)}")
    if (folder / "config.toml").is_file():
        raise FileNotFoundError(f"{folder} has no checkpoint yet: a run writes one at its end, and before by checkpoint.every_minutes and every_steps")
    raise FileNotFoundError(f"{folder} is neither a run's folder with a checkpoint nor a checkpoint: give runs/NAME, or runs/NAME/checkpoints/step-N")
