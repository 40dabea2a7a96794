#!/usr/bin/env python3
"""The example of a model and data from Python does what its page says."""
import json
import pathlib
import subprocess
import sys

from common import ROOT, onebatch, scratch

PROGRAM = sys.argv[1]


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.executable, ROOT / "examples" / "from_python" / "save_tagger.py", folder], check=True)
        moved = [word for key, value in (("data.path", "train.safetensors"), ("data.validation.path", "validation.safetensors"), ("model.path", "tagger.pt"))
                 for word in ("--set", f"{key}={folder / value}")]
        onebatch(PROGRAM, 2, ["train", "configs/tagger.toml", "--quiet", *moved, "--set", f"run.output_dir={folder}", "--json", folder / "train.json"])
        result = json.loads((folder / "train.json").read_text())
        print(f"validation accuracy {result['validation_accuracy']:.4f}")
        onebatch(PROGRAM, 2, ["verify", "configs/tagger.toml", *moved])
        return 0 if result["validation_accuracy"] > 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
