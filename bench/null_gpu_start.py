#!/usr/bin/env python3
"""From the start to the first step on a GPU, of a model of 163 M parameters in a file, beside reading that file once.

null_gpu_start.py [--build build] [--rounds 5]. On the null GPU, where kernels cost nothing: what is left is the host's.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from null_gpu_steps import ROOT, Gpt, save_file, torch, variables

CONFIG = """
[run]
max_steps = 1
output_dir = "{folder}/runs"
device = "cuda"
[batch]
global_batch_size = 16
micro_batch_size = 8
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "torchscript"
path = "{folder}/model.pt"
[checkpoint]
every_steps = 0
"""


def write(folder):
    """GPT-2 small's widths, its two matrices of words apart."""
    words, length = 50257, 32
    model = Gpt(width=768, layers=12, heads=12, length=length, words=words)
    torch.jit.script(model).save(str(folder / "model.pt"))
    save_file({"x": torch.randint(words, (64, length)), "y": torch.randint(words, (64, length))}, folder / "data.safetensors")
    (folder / "c.toml").write_text(CONFIG.format(folder=folder))
    return sum(parameter.numel() for parameter in model.parameters())


def seconds_to_read(path):
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return time.monotonic() - begin


def seconds_to_first_step(build, folder, number):
    """Until its line is in the file of metrics."""
    simulated = variables(build, watched=False, devices=[{"memory": 80 << 30}], lag_milliseconds=0)
    environment = dict(os.environ, **simulated, XDG_CACHE_HOME=str(folder / f"cache-{number}"))  # none has probed before
    metrics = folder / f"runs/r{number}/metrics.jsonl"
    begin = time.monotonic()
    process = subprocess.Popen([build / "onebatch", "train", folder / "c.toml", "--set", f'run.name="r{number}"'], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    said, _ = process.communicate()
    if process.returncode != 0 or not metrics.exists():
        sys.exit(said)
    assert json.loads(metrics.read_text().splitlines()[0])["step"] == 1
    return seconds


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if not (given.build / "tests/libnull_gpu.so").exists():
        print("no null GPU in this build: left out")
        return
    with tempfile.TemporaryDirectory(prefix="onebatch-null-gpu-") as scratch:
        folder = pathlib.Path(scratch)
        parameters = write(folder)
        pairs = [(seconds_to_read(folder / "model.pt"), seconds_to_first_step(given.build.resolve(), folder, i)) for i in range(given.rounds)]
    reading, starting = (statistics.median(values) for values in zip(*pairs))
    print(f"{parameters / 1e6:.0f} M parameters: {starting:.2f} s to the first step, of which reading the file takes {reading:.2f} s: {starting - reading:.2f} s beside it "
          f"(of {', '.join(f'{start - read:.2f}' for read, start in sorted(pairs, key=lambda pair: pair[1]))})")


if __name__ == "__main__":
    main()
