#!/usr/bin/env python3
"""Images a second of reading alone, by two threads of onebatch and by torchvision's ImageFolder with PyTorch's DataLoader and two workers, in
turns: random resized crops and flips of small and of usual JPEGs. python bench/images.py [build/bench/image_bench] [--small FOLDER] [--rounds 5]"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import torch
    from PIL import Image
    from torchvision import datasets, transforms
except ImportError as error:
    print(f"no {error.name} in this Python: left out")
    sys.exit(0)

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_folder(folder, count, height, width):
    """Smooth shapes with noise, as large as photographs of that size."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    for number in range(count):
        rng = np.random.default_rng(number)
        planes = [np.sin(x / rng.uniform(8, 60)) + np.cos(y / rng.uniform(8, 60) + rng.uniform(0, 6)) for _ in range(3)]
        values = np.stack(planes, -1) * 55 + 128 + rng.normal(0, 9, (height, width, 1)) + rng.normal(0, 3, (height, width, 3))
        file = folder / str(number % 10) / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(file, quality=90)
    sizes = [file.stat().st_size for file in folder.rglob("*.jpg")]
    print(f"{count} JPEGs of {width}x{height}, {statistics.mean(sizes) / 1000:.1f} kB each")


def ours(program, folder, size, seconds):
    return float(subprocess.run([program, folder, *map(str, size), "2", str(seconds)], capture_output=True, text=True, check=True).stdout)


def theirs(folder, size, seconds):
    """From the first batch that arrives: starting the workers is not counted."""
    changes = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                                  transforms.Normalize(MEAN, DEVIATION)])
    data = datasets.ImageFolder(folder, changes)
    order = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10**9)
    loader = iter(torch.utils.data.DataLoader(data, 32, sampler=order, num_workers=2))
    next(loader)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        count += len(next(loader)[0])
    return count / (time.perf_counter() - begin)


def compare(name, program, folder, size, rounds, seconds):
    pairs = [(ours(program, folder, size, seconds), theirs(folder, size, seconds)) for _ in range(rounds)]
    a, b = (statistics.median(column) for column in zip(*pairs))
    ratio = statistics.median(x / y for x, y in pairs)
    print(f"{name}: onebatch {a:.0f} images/s, torchvision {b:.0f} images/s: {ratio:.2f} times as many "
          f"(from {min(x / y for x, y in pairs):.2f} to {max(x / y for x, y in pairs):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="?", default="build/bench/image_bench")
    parser.add_argument("--small", help="a folder of class folders of 32x32 JPEGs, as CIFAR-10's; else some are made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, usual = pathlib.Path(given.small or f"{folder}/small"), pathlib.Path(folder, "usual")
        if not given.small:
            make_folder(small, 5000, 32, 32)
        make_folder(usual, 300, 375, 500)
        compare("32x32 to 32x32", given.program, small, (32, 32), given.rounds, given.seconds)
        compare("500x375 to 224x224", given.program, usual, (224, 224), given.rounds, given.seconds)


if __name__ == "__main__":
    main()
