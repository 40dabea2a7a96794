#!/usr/bin/env python3
"""How soon the program says its first line, and how long it is silent at most, from the shell's enter to the end of a few steps and a validation.
ResNet-50 on two ranks:

python -m onebatch export torchvision:resnet50 --out resnet50.pt2
bench/watching.py --model resnet50.pt2 [--program build/onebatch] [--ranks 2] [--side 224] [--samples 16] [--steps 3] [--show]
"""
import argparse
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

CONFIG = """
[run]
name = "watched"
output_dir = "{folder}/runs"
max_steps = {steps}
[batch]
global_batch_size = {samples}
[data]
kind = "synthetic"
shape = [3, {side}, {side}]
num_classes = 1000
size = {size}
[data.validation]
[model]
{kind}
[optimizer]
kind = "sgd"
lr = 0.1
[probe]
cache = false
max_val = {samples}
"""


def watch(command, environment):
    """[(seconds since the start, text)], the exit code and all seconds."""
    begin, pieces = time.monotonic(), []
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    source = process.stdout.fileno()
    while True:
        select.select([source], [], [])
        piece = os.read(source, 65536)
        if not piece:
            return pieces, process.wait(), time.monotonic() - begin
        pieces.append((time.monotonic() - begin, piece.decode(errors="replace")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/onebatch")
    parser.add_argument("--model", type=pathlib.Path, help="an exported program; without one the built-in ResNet-18")
    for name, default in (("ranks", 2), ("side", 224), ("samples", 16), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--show", action="store_true", help="what it said, and when")
    arguments = parser.parse_args()
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    kind = f'kind = "exported"\npath = "{arguments.model.resolve()}"' if arguments.model else 'kind = "resnet"\nstem = "imagenet"\nnum_classes = 1000'
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "watched.toml"
        config.write_text(CONFIG.format(folder=folder, kind=kind, size=2 * arguments.samples, **vars(arguments)))
        command = [arguments.program, "train", str(config)]
        if arguments.ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(arguments.ranks), *command]
        pieces, code, seconds = watch(command, environment)
    if arguments.show or code != 0:
        print("".join(f"{moment:7.2f}  {text}" for moment, text in pieces))
    moments = [moment for moment, _ in pieces]
    silences = sorted(((later - sooner, sooner) for sooner, later in zip([0.0, *moments], [*moments, seconds])), reverse=True)
    print(f"{arguments.model.name if arguments.model else 'ResNet-18'}, {arguments.ranks} rank(s), {seconds:.0f} s in all: the first line after {moments[0]:.2f} s; "
          f"the longest silence {silences[0][0]:.2f} s, at {silences[0][1]:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
