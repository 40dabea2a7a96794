"""What makes a process run on the stand-in."""
import json
import os
import pathlib


def variables(build, watched=True, **settings):
    """Of the environment; `settings` are those of settings.hpp. Not `watched`: nobody follows what streams touch, which takes the host's time."""
    tests = pathlib.Path(build) / "tests"
    libraries = ["null_gpu", "no_cudnn"] + ["watched_operators"] * watched
    folders = [str(tests / "null_gpu_driver"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders), "LD_PRELOAD": " ".join(str(tests / f"lib{name}.so") for name in libraries), "NULL_GPU": json.dumps(settings)}
