#!/usr/bin/env python3
"""Test accuracy after some epochs of configs/cifar10.toml (a folder of JPEGs, ResNet-20, two unlike played devices, exact BatchNorm) and of the same in
PyTorch: torchvision's ImageFolder, the same network, changes to images, optimizer and schedule, over several seeds.

cifar.py FOLDER [--program build/onebatch] [--epochs 3] [--seeds 3] [--fraction 1.0]      FOLDER holds train and test
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torchvision import datasets, transforms

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/oracle"))
from common import CifarResNet  # noqa: E402

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH, RATE, MOMENTUM, DECAY = 128, 0.1, 0.9, 5e-4


def ours(given, seed, folder):
    settings = [f"data.path={given.folder / 'train'}", f"data.validation.path={given.folder / 'test'}", f"run.seed={seed}", f"run.epochs={given.epochs}",
                f"data.fraction={given.fraction}", f"run.output_dir={folder}", f'run.name="seed{seed}"']
    pairs = [word for pair in settings for word in ("--set", pair)]
    subprocess.run(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", given.program, "train", ROOT / "configs/cifar10.toml", "--quiet", *pairs], check=True,
                   env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"), stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / f"seed{seed}" / "validation.jsonl").read_text().splitlines()]
    return lines[-1]["accuracy"]


def theirs(given, seed, _folder):
    torch.manual_seed(seed)
    normal = [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    changes = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *normal])
    training = datasets.ImageFolder(given.folder / "train", changes)
    if given.fraction < 1:
        chosen = random.Random(seed).sample(range(len(training)), round(given.fraction * len(training)))
        training = torch.utils.data.Subset(training, chosen)
    loader = torch.utils.data.DataLoader(training, BATCH, shuffle=True, drop_last=True, num_workers=1)
    model = CifarResNet(20, channels=3)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs * len(loader))
    for _ in range(given.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in torch.utils.data.DataLoader(datasets.ImageFolder(given.folder / "test", transforms.Compose(normal)), 1000, num_workers=1):
            right += int((model(images).argmax(1) == labels).sum())
    return right / 10000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--program", default=ROOT / "build/onebatch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fraction", type=float, default=1.0)
    given = parser.parse_args()
    found = {"onebatch": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            for name, train in (("onebatch", ours), ("PyTorch", theirs)):
                begin = time.time()
                found[name].append(train(given, seed, pathlib.Path(folder)))
                print(f"{name}, seed {seed}: {100 * found[name][-1]:.2f} % of the test images right, {time.time() - begin:.0f} s", flush=True)
    for name, shares in found.items():
        deviation = statistics.stdev(shares) if len(shares) > 1 else 0.0
        print(f"{name}: mean {100 * statistics.mean(shares):.2f} %, standard deviation {100 * deviation:.2f}, from {100 * min(shares):.2f} to {100 * max(shares):.2f}")


if __name__ == "__main__":
    main()
