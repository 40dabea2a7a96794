#!/usr/bin/env python3
"""Milliseconds a step of PyTorch with its data on the card: speed_of_torch.py CASE eager|compile|graph"""
import sys
import time

import torch
from torch.nn import functional

from models import CASES

STEPS = 30


def main():
    name, mode = sys.argv[1:]
    make, data, size, precision = CASES[name]
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = mode != "eager"
    images = mode != "eager" and name.startswith("ResNet")
    model = make().cuda().to(memory_format=torch.channels_last if images else torch.preserve_format)
    batch = {key: value.cuda() for key, value in data(size).items()}
    x, y = batch["x"].to(memory_format=torch.channels_last) if images else batch["x"], batch["y"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=mode == "graph")
    forward = torch.compile(model) if mode == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=mode != "graph")
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            out = forward(x)
            loss = functional.cross_entropy(out.transpose(1, 2).flatten(0, 1), y.flatten()) if out.dim() == 3 else functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()

    run = step
    if mode == "graph":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    for _ in range(10):
        run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        run()
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - begin) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
