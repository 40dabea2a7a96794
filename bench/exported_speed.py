#!/usr/bin/env python3
"""A step of an exported program, of the same model as TorchScript, and of eager PyTorch in Python (AdamW, fused): one rank, one thread, in turn. And how long a large program takes to load.

exported_speed.py [--program build/onebatch] [--rounds 5] [--seconds 6] [--only NAME] [--load | --compiled]

A figure is the median over the rounds of the other side's median step over ours: above 1 the exported program is quicker. --seconds: for each process and round. BERT needs transformers.
--compiled: ours is the program's native code (model.compiled), over the same program without it, and over torch.compile in Python.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

try:
    import torch
    from safetensors.torch import save_file
    from torch import nn
    from torch.nn import functional as F

    from in_turn import Side, in_turn, of_run
    from null_gpu_steps import Gpt, mlp, resnet18
except ImportError:
    print("no PyTorch in this Python: left out; .deps/python/bin/python has it after ./dev test with ONEBATCH_CUDA=1")
    sys.exit(0)

CONFIG = """
[run]
max_steps = 1000000
output_dir = "{folder}/runs"
[batch]
global_batch_size = {batch}
micro_batch_size = {batch}
replan = "never"
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "{kind}"
path = "{folder}/model.{ending}"
{more}
[optimizer]
kind = "adamw"
lr = 0.001
[probe]
steps_per_trial = 1
cache = false
[verify]
at_start = false
[checkpoint]
every_minutes = 0
"""


class ConvNextBlock(nn.Module):
    """Of Liu et al., "A ConvNet for the 2020s", 2022: a wide depthwise convolution, and two products by channel."""

    def __init__(self, width):
        super().__init__()
        self.spread, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down, self.scale = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        h = self.norm(self.spread(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(h)))).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, widths=(32, 64), blocks=2):
        super().__init__()
        first, second = widths
        self.stem, self.narrow, self.head = nn.Conv2d(3, first, 4, 4), nn.Conv2d(first, second, 2, 2), nn.Linear(second, 10)
        self.before, self.after = (nn.Sequential(*(ConvNextBlock(width) for _ in range(blocks))) for width in widths)

    def forward(self, x):
        return self.head(self.after(self.narrow(self.before(self.stem(x)))).mean((2, 3)))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        import transformers
        sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 128}
        self.bert = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=10))

    def forward(self, x):
        return self.bert(input_ids=x).logits


# name: model, batch, inputs, labels
MODELS = {
    "mlp": (mlp, 256, lambda n: torch.randn(n, 784), lambda n: torch.randint(0, 10, (n,))),
    "gpt": (lambda: Gpt(width=128), 4, lambda n: torch.randint(0, 512, (n, 128)), lambda n: torch.randint(0, 512, (n, 128))),
    "bert": (Bert, 8, lambda n: torch.randint(0, 1000, (n, 64)), lambda n: torch.randint(0, 10, (n,))),
    "convnext": (ConvNext, 32, lambda n: torch.randn(n, 3, 32, 32), lambda n: torch.randint(0, 10, (n,))),
    "resnet18": (resnet18, 16, lambda n: torch.randn(n, 3, 32, 32), lambda n: torch.randint(0, 10, (n,))),
}
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


def export(model, x, file):
    batch = torch.export.Dim("batch", min=1, max=4096)
    torch.export.save(torch.export.export(model.train(), (x,), dynamic_shapes=({0: batch},), strict=False), str(file))


def eager(name, compiled):
    """In a process of its own, until it is killed: prints of each step when it ended and its seconds, with or without torch.compile."""
    torch.set_num_threads(1)
    make, batch, inputs, labels = MODELS[name]
    model, x, y = make().train(), inputs(8 * batch), labels(8 * batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)
    forward = torch.compile(model) if compiled else model
    while True:
        begin = time.perf_counter()
        rows = torch.randperm(8 * batch)[:batch]
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x[rows]).flatten(0, -2), y[rows].flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        print(time.time(), time.perf_counter() - begin, flush=True)


def of_eager(name, folder, *more):
    return Side([sys.executable, __file__, "--eager", name, *more], folder / f"eager{time.monotonic_ns()}", lambda line: tuple(map(float, line.split())), is_output=True, env=ENVIRONMENT)


def of_program(program, folder, name, kind, more=""):
    run = f"r{time.monotonic_ns()}"
    config = folder / f"{run}.toml"
    config.write_text(CONFIG.format(folder=folder, batch=MODELS[name][1], kind=kind, ending="pt2" if kind == "exported" else "pt", more=more))
    return of_run([program, "train", config, "--quiet", "--set", f'run.name="{run}"'], folder / "runs" / run, env=ENVIRONMENT)


def middle(ratios):
    return f"{statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))})"


def compare(program, name, rounds, seconds):
    make, batch, inputs, labels = MODELS[name]
    with tempfile.TemporaryDirectory(prefix="onebatch-exported-") as scratch:
        folder = pathlib.Path(scratch)
        torch.manual_seed(1)
        model = make()
        save_file({"x": inputs(8 * batch), "y": labels(8 * batch)}, folder / "data.safetensors")
        export(model, inputs(4), folder / "model.pt2")
        traced = torch.jit.trace(model.train(), (inputs(4),), check_trace=False) if name == "bert" else torch.jit.script(model)
        traced.save(str(folder / "model.pt"))
        over_script, over_eager = [], []
        for _ in range(rounds):
            sides = [of_program(program, folder, name, kind) for kind in ("exported", "torchscript")]
            ours, script, theirs = in_turn([*sides, of_eager(name, folder)], seconds)
            over_script.append(script / ours)
            over_eager.append(theirs / ours)
    print(f"{name} at {batch}: over TorchScript {middle(over_script)}, over eager {middle(over_eager)}; our step in the last round {ours * 1e3:.2f} ms", flush=True)


def compare_compiled(program, name, rounds, seconds):
    make, batch, inputs, labels = MODELS[name]
    with tempfile.TemporaryDirectory(prefix="onebatch-compiled-") as scratch:
        folder = pathlib.Path(scratch)
        torch.manual_seed(1)
        save_file({"x": inputs(8 * batch), "y": labels(8 * batch)}, folder / "data.safetensors")
        export(make(), inputs(4), folder / "model.pt2")
        began = time.perf_counter()
        command = [sys.executable, "-m", "onebatch", "compile", folder / "model.pt2", "--loss", "cross_entropy"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(ENVIRONMENT, PYTHONPATH=str(ROOT / "python")))
        compiling = time.perf_counter() - began
        code = f'compiled = "{folder}/model.compiled"'
        over_itself, over_python = [], []
        for _ in range(rounds):
            sides = [of_program(program, folder, name, "exported", more) for more in (code, "")]
            ours, plain, theirs = in_turn([*sides, of_eager(name, folder, "--with-compile")], seconds)
            over_itself.append(plain / ours)
            over_python.append(theirs / ours)
    print(f"{name} at {batch}, compiled in {compiling:.0f} s: over uncompiled {middle(over_itself)}, over torch.compile {middle(over_python)}; our step in the last round {ours * 1e3:.2f} ms", flush=True)


def peak_of(process):
    """Megabytes that it has had at once; 0 where it is none of ours any more."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return float(fields["VmHWM"].split()[0]) / 1e3 if fields["Name"].strip() == "onebatch" and "VmHWM" in fields else 0.0


def load(program):
    """124 M parameters: the time and memory that `onebatch check` takes to read the file and to say what is in it."""
    with tempfile.TemporaryDirectory(prefix="onebatch-exported-") as scratch:
        file = pathlib.Path(scratch) / "large.pt2"
        model = Gpt(width=768, layers=12, heads=12, words=50257)
        export(model, torch.randint(0, 512, (2, 128)), file)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        begin = time.perf_counter()
        process = subprocess.Popen([program, "check", file], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        most = 0.0
        while process.poll() is None:  # what wait4() tells has this Python's own memory in it, from before exec
            most = max(most, peak_of(process.pid))
            time.sleep(0.002)
        print(f"{parameters / 1e6:.0f} M parameters, a file of {file.stat().st_size / 1e6:.0f} MB: {time.perf_counter() - begin:.2f} s, at most {most:.0f} MB of memory, code {process.returncode}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", type=pathlib.Path, default=ROOT / "build/onebatch")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=6.0)
    options.add_argument("--only", choices=MODELS)
    options.add_argument("--load", action="store_true")
    options.add_argument("--compiled", action="store_true")
    options.add_argument("--eager", choices=MODELS, help=argparse.SUPPRESS)
    options.add_argument("--with-compile", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.eager:
        eager(given.eager, given.with_compile)  # until it is killed
    if given.load:
        load(given.program.resolve())
        return
    for name in [given.only] if given.only else MODELS:
        try:
            (compare_compiled if given.compiled else compare)(given.program.resolve(), name, given.rounds, given.seconds)
        except ImportError:
            print(f"{name}: transformers is not here: left out")


if __name__ == "__main__":
    main()
