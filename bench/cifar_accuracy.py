#!/usr/bin/env python3
"""What ResNet-20 learns of CIFAR-10 in a few epochs, trained by onebatch from JPEG files on two unlike simulated devices with exact BatchNorm, and by
PyTorch in Python in one batch on one device: the same network, images, changes, optimizer and schedule, over several seeds in turns.

python bench/cifar_accuracy.py [FOLDER] [--program build/onebatch] [--seeds 3] [--epochs 3] [--fraction 1] [--test-fraction 1]

FOLDER holds train/CLASS/*.jpg and test/CLASS/*.jpg. Fractions take so much of each class, in both programs the same files. The exit code is 1
where the mean accuracies are further apart than the seeds' noise explains: more than twice the standard error of their difference."""
import argparse
import csv
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    from PIL import Image
    from torch import nn
    from torchvision import transforms
except ImportError as error:
    print(f"no {error.name} in this Python: left out")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/oracle"))
from common import CifarResNet  # noqa: E402

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH, LR, MOMENTUM, DECAY = 128, 0.1, 0.9, 1e-4
torch.set_num_threads(os.cpu_count())  # common takes one


def resnet20():
    """He et al. (2016), section 4.2, with projections as shortcuts; weights begin as torchvision's."""
    model = CifarResNet(20, channels=3)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class Files(torch.utils.data.Dataset):
    def __init__(self, rows, classes, changes):
        steps = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()] if changes else []
        self.change = transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
        self.samples = [(Image.open(path).convert("RGB"), classes.index(label)) for path, label in rows]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        image, label = self.samples[index]
        return self.change(image), label


def train_in_pytorch(train, test, classes, seed, epochs):
    torch.manual_seed(seed)
    model = resnet20()
    loader = torch.utils.data.DataLoader(Files(train, classes, changes=True), BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM, weight_decay=DECAY)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        loader = torch.utils.data.DataLoader(Files(test, classes, changes=False), 500)
        return sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader) / len(test)


def train_in_onebatch(program, folder, seed, epochs, slowdown):
    settings = (f"run.seed={seed}", f"run.epochs={epochs}", f"run.output_dir='{folder}/runs'", f"run.name='seed{seed}'", f"data.path='{folder}/train.csv'",
                f"data.validation.path='{folder}/test.csv'", f"batch.global_batch_size={BATCH}", f"optimizer.lr={LR}", f"optimizer.weight_decay={DECAY}",
                f"optimizer.momentum={MOMENTUM}", f"simulate.devices=[{{slowdown = 1.0}}, {{slowdown = {slowdown}}}]")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", program, "train", ROOT / "configs/cifar10.toml", "--json", f"{folder}/result.json"]
    done = subprocess.run([*map(str, command), *(word for pair in settings for word in ("--set", pair))], capture_output=True, text=True,
                          env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    if done.returncode != 0:
        sys.exit(f"onebatch returned {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(pathlib.Path(folder, "result.json").read_text())["validation_accuracy"]


def choose(folder, fraction):
    """(path, class) of so much of each class, drawn once."""
    draw, rows = random.Random(0), []
    for name in sorted(path.name for path in folder.iterdir()):
        files = sorted((folder / name).glob("*.jpg"))
        rows += [(str(file.resolve()), name) for file in sorted(draw.sample(files, round(fraction * len(files))))]
    return rows


def write_list(file, rows):
    with open(file, "w", newline="") as out:
        csv.writer(out).writerows([("path", "label"), *rows])


def timed(train, *arguments):
    begin = time.perf_counter()
    return train(*arguments), time.perf_counter() - begin


def tell(accuracies):
    means = {name: statistics.mean(values) for name, values in accuracies.items()}
    spread = {name: statistics.stdev(values) for name, values in accuracies.items()}
    for name, values in accuracies.items():
        print(f"{name:9} {100 * means[name]:.2f} % ± {100 * spread[name]:.2f} (standard deviation over {len(values)} seeds)")
    error = math.sqrt(sum(spread[name] ** 2 / len(values) for name, values in accuracies.items()))
    difference = means["onebatch"] - means["PyTorch"]
    within = abs(difference) <= 2 * error
    print(f"difference {100 * difference:+.2f} points; its standard error {100 * error:.2f}: {'within' if within else 'NOT within'} twice that")
    return within


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="cifar10", type=pathlib.Path)
    parser.add_argument("--program", default="build/onebatch", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--test-fraction", type=float, default=1.0)
    parser.add_argument("--slowdown", type=float, default=2.0, help="of the second device")
    given = parser.parse_args()
    if not (given.folder / "train").is_dir():
        print(f"there is no {given.folder}/train: CIFAR-10 as JPEG files is needed, as train/CLASS/*.jpg and test/CLASS/*.jpg: left out")
        return 0
    train, test = choose(given.folder / "train", given.fraction), choose(given.folder / "test", given.test_fraction)
    classes = sorted({label for _, label in train})
    print(f"{len(train)} training and {len(test)} test images, {given.epochs} epochs")
    accuracies = {"onebatch": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as folder:
        write_list(f"{folder}/train.csv", train)
        write_list(f"{folder}/test.csv", test)
        for seed in range(1, given.seeds + 1):
            ours, our_seconds = timed(train_in_onebatch, given.program.resolve(), folder, seed, given.epochs, given.slowdown)
            theirs, their_seconds = timed(train_in_pytorch, train, test, classes, seed, given.epochs)
            accuracies["onebatch"].append(ours)
            accuracies["PyTorch"].append(theirs)
            print(f"seed {seed}: onebatch {100 * ours:.2f} % in {our_seconds:.0f} s, PyTorch {100 * theirs:.2f} % in {their_seconds:.0f} s", flush=True)
    return 0 if given.seeds < 2 or tell(accuracies) else 1


if __name__ == "__main__":
    sys.exit(main())
