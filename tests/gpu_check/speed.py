"""Samples a second against the best that PyTorch in Python does on the same card, in turns."""
import pathlib
import statistics
import subprocess
import sys

from check import last_words, steps

HERE = pathlib.Path(__file__).resolve().parent
LEAST = {"MLP 784-512-512-10": 1.0, "ResNet-18 for CIFAR": 1.0, "ResNet-50": 1.0, "GPT-2 small": 0.9}
ROUNDS = 2


def milliseconds(run, skip=20):
    return 1e3 * statistics.median(line["step_seconds"] for line in steps(run)[skip:])


def ours(check, name, number):
    from models import CASES, write

    _, _, size, precision = CASES[name]
    folder = check.folder / name.replace(" ", "-")
    if not folder.exists():
        folder.mkdir()
        write(name, folder, 8 * size)
    config = check.configuration(data={"kind": "safetensors", "path": str(folder / "data.safetensors"), "inputs": ["x"], "target": "y"}, model={"kind": "torchscript", "path": str(folder / "model.pt")},
                                 precision={"compute": precision, "cudnn_benchmark": True}, optimizer={"kind": "adamw", "lr": 1e-4}, batch_norm={"mode": "local"},
                                 batch={"global_batch_size": size, "micro_batch_size": size}, run={"max_steps": 80}, log={"every_steps": 20}, checkpoint={"every_steps": 0},
                                 verify={"at_start": False})  # fmt: skip
    code, said, run = check.train(config, f"{folder.name}-{number}")
    if code != 0:
        raise RuntimeError(last_words(said))
    return milliseconds(run)


def theirs(name, mode):
    """None where that mode does not run."""
    done = subprocess.run([sys.executable, str(HERE / "speed_of_torch.py"), name, mode], capture_output=True, text=True, timeout=240, cwd=HERE)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def speed(check):
    """Against PyTorch: eager, torch.compile, a CUDA graph; the last two with channels_last and cudnn.benchmark."""
    if check.device != "cuda":
        return
    for name, least in LEAST.items():
        check.left()
        mine, others = [], {"eager": [], "graph": [], "compile": []}
        try:
            for number in range(ROUNDS):
                mine.append(ours(check, name, number))
                for mode, times in others.items():
                    if (taken := theirs(name, mode)) is not None:
                        times.append(taken)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            check.row(f"{name}", error, "it runs", False)
            continue
        best = {mode: min(times) for mode, times in others.items() if times}
        mode = min(best, key=best.get)
        words = ", ".join(f"{key} {value:.2f}" for key, value in best.items())
        check.row(f"{name}: speed over PyTorch's best ({mode})", f"{best[mode] / min(mine):.2f} ({min(mine):.2f} ms; PyTorch {words})", f">= {least}", best[mode] / min(mine) >= least)


def exact_over_local(check):
    """What exact BatchNorm costs, of two models; off a card of the small one alone."""
    size, count = (256, 4) if check.device == "cuda" else (4, 2)
    exact_over_local_of(check, "ResNet-18", size, count, "float32", 1.4, {"kind": "resnet", "depth": 18, "stem": "cifar"}, {"kind": "synthetic", "shape": [3, 32, 32], "size": 4096})
    if check.device != "cuda":
        return
    from models import write

    write("ResNet-50", check.folder, 256)
    data = {"kind": "safetensors", "path": str(check.folder / "data.safetensors"), "inputs": ["x"], "target": "y"}
    exact_over_local_of(check, "ResNet-50", 64, 4, "bfloat16", 1.45, {"kind": "torchscript", "path": str(check.folder / "model.pt")}, data)


def exact_over_local_of(check, name, size, count, compute, most, model, data):
    """A row: of so many micro-batches, how many times as long a step may take."""
    row = f"exact over local BatchNorm, {name}, {count} x {size} {compute}"
    times = {"local": [], "exact": []}
    for number in range(ROUNDS):
        for mode, taken in times.items():
            config = check.configuration(data=data, model=model, precision={"compute": compute}, batch_norm={"mode": mode}, run={"max_steps": 30},
                                         batch={"global_batch_size": size * count, "micro_batch_size": size}, checkpoint={"every_steps": 0})  # fmt: skip
            code, said, run = check.train(config, f"{name}-{mode}-{number}")
            if code != 0:
                return check.row(row, last_words(said), "it runs", False)
            taken.append(milliseconds(run, 5))
    ratio = min(times["exact"]) / min(times["local"])
    check.row(row, f"{ratio:.2f}", f"<= {most}", ratio <= most)


def tutorial(check):
    """ResNet-50 with Adam on images of 3 x 224 x 224, as a user would start it."""
    if check.device != "cuda":
        return
    from models import write

    write("ResNet-50", check.folder, 1000)
    config = check.configuration(data={"kind": "safetensors", "path": str(check.folder / "data.safetensors"), "inputs": ["x"], "target": "y"}, model={"kind": "torchscript", "path": str(check.folder / "model.pt")},
                                 optimizer={"kind": "adam", "lr": 1e-3}, batch={"global_batch_size": 1000}, run={"epochs": 5})  # fmt: skip
    sampler = subprocess.Popen(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"], stdout=subprocess.PIPE, text=True)
    code, said, run = check.train(config, "tutorial")
    sampler.terminate()
    busy = [int(line) for line in sampler.communicate()[0].split() if line.isdigit()]
    figure = last_words(said) if code else f"{1e3 * 1000 / milliseconds(run, 1):.0f} samples/s, the card busy {statistics.mean(busy[len(busy) // 2:] or [0]):.0f} %"
    check.row("tutorial: ResNet-50, 1,000 images, Adam, exact BatchNorm", figure, "it runs", code == 0)
