"""What a run has trained, as a state_dict."""
import json
import pathlib
import re
import warnings

from .files import read_tensors

MODEL = "model.safetensors"
STEP = re.compile(r"step-(\d+)")


def steps_of(folder):
    """A run's checkpoints, the newest first. Those that are being written have another name."""
    found = [(int(match[1]), path) for path in folder.glob("checkpoints/step-*") if (match := STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def read_checkpoint(folder):
    """The model's tensors. Raises ValueError where a file is not the one that the checkpoint was written with."""
    wanted = json.loads((folder / "manifest.json").read_text())["files"][MODEL]["bytes"]
    size = (folder / MODEL).stat().st_size
    if size != wanted:
        raise ValueError(f"{folder / MODEL} has {size} bytes, and was written with {wanted}")
    return read_tensors(folder / MODEL)


def load_checkpoint(run):
    """The state_dict of a run's newest checkpoint, or of one: `run` is a run's folder ("runs/name") or a checkpoint's
    ("runs/name/checkpoints/step-90"). Weights that are tied stand under each of their names.

    A run may still be going. A checkpoint that is not whole is passed over with a warning. Raises FileNotFoundError where there is none, and
    ValueError where none is whole.
    """
    folder = pathlib.Path(run)
    if folder.name == MODEL:
        folder = folder.parent
    if (folder / MODEL).is_file():
        return read_checkpoint(folder)
    for _ in range(3):  # a run that goes on adds one before it takes older ones away
        candidates = steps_of(folder)
        broken = []
        for candidate in candidates:
            try:
                tensors = read_checkpoint(candidate)
            except FileNotFoundError:
                broken.append(f"{candidate} is gone, or lacks {MODEL} or manifest.json")
            except (ValueError, KeyError) as error:
                broken.append(str(error))
            else:
                for reason in broken:
                    warnings.warn(f"{reason}: {candidate.name} is taken instead", stacklevel=2)
                return tensors
    if broken:
        raise ValueError(f"{folder} has no whole checkpoint: {'; '.join(broken)}")
    if (folder / "config.toml").is_file():
        raise FileNotFoundError(f"{folder} has no checkpoint yet: a run writes one at its end, and before by checkpoint.every_minutes and every_steps")
    raise FileNotFoundError(f"{folder} is neither a run's folder with a checkpoint nor a checkpoint: give runs/NAME, or runs/NAME/checkpoints/step-N")
