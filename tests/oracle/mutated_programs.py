#!/usr/bin/env python3
"""Exported programs that are cut, flipped, forged: each is refused by name, or loads with the original's tensors; no crash, and no memory beyond four times the file.

By hand, any number: .deps/python/bin/python tests/oracle/mutated_programs.py build/tests/load_archives --number 2000 --seed 7
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile
import warnings

import torch

from exported_models import ConvNet, Gpt, Outputs, export, images, tokens, vectors
from mutated_archives import TOGETHER, cut, flip, flip_directory, forge_name, load, records_of, swap_sizes, write

SLACK = 64 << 10  # KiB: what one more file of any kind may take
NUMBERS = (-1, 0, 1, 7, 255, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 64, 1.5, 1e308)
WORDS = ("", "x", "../x", "a/b", "C:\\x", "torch.ops.aten.from_file.default", "torch.ops.aten.nothing.default", "torch.ops.mine.op.default", "torch.ops.higher_order.cond", "os.system",
         "_operator.pow", "as_tensor", "as_graph", "as_custom_obj", "parameter", "\x1b[2J")


def places(value, found):
    """Every container with a key or index into it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        places(item, found)
    return found


def names_of(value):
    return [container[key] for container, key in places(value, []) if key == "name" and isinstance(container[key], str)]


def forge(draw, json_, names):
    """One change."""
    found = places(json_, [])
    if not found:
        return
    container, key = draw.choice(found)
    kind = draw.randrange(7)
    if kind == 0 and isinstance(container, dict):
        del container[key]
    elif kind == 1 and isinstance(container, list):
        container.append(container[key])
    elif kind == 2 and isinstance(container, list):
        del container[key]
    elif kind == 3 and isinstance(container, list):
        other = draw.randrange(len(container))
        container[key], container[other] = container[other], container[key]
    elif kind == 4:
        container[key] = draw.choice((None, True, [], {}, [[]], {"as_int": 3}, {"as_tensor": {"name": "x"}}, {"as_none": True}))
    elif isinstance(container[key], str):
        container[key] = draw.choice(names if draw.random() < 0.6 else WORDS)
    elif isinstance(container[key], (int, float)):
        container[key] = draw.choice(NUMBERS)
    else:
        container[key] = draw.choice(WORDS)


def forge_json(draw, file, original, ending):
    records = records_of(original)
    index = next(i for i, (name, _, _) in enumerate(records) if name.endswith(ending))
    name, content, packing = records[index]
    forged = json.loads(content)
    names = names_of(forged) or ["x"]
    for _ in range(draw.choice((1, 1, 2, 5))):
        forge(draw, forged, names)
    records[index] = (name, json.dumps(forged).encode(), packing)
    write(file, records)


def forge_graph(draw, file, original):
    forge_json(draw, file, original, "models/model.json")


def forge_tensors(draw, file, original):
    forge_json(draw, file, original, draw.choice(("model_weights_config.json", "model_constants_config.json")))


def forge_bytes(draw, file, original):
    """Of any record, with right checksums: weights may be others."""
    records = records_of(original)
    index = draw.choice([i for i, (_, content, _) in enumerate(records) if content])
    name, content, packing = records[index]
    content = bytearray(content)
    for _ in range(draw.choice((1, 2, 8))):
        content[draw.randrange(len(content))] = draw.choice((draw.randrange(256), ord("{"), ord("["), ord('"'), 0, 255))
    records[index] = (name, bytes(content), packing)
    write(file, records)


def shorten(draw, file, original):
    records = records_of(original)
    index = draw.choice([i for i, (name, content, _) in enumerate(records) if "/data/weights/" in name or name.endswith("json")])
    name, content, packing = records[index]
    records[index] = (name, content[:draw.randrange(len(content))], packing)
    write(file, records)


def nest(draw, file, original):
    """Deeper than any stack, or longer than any list."""
    records = records_of(original)
    index = next(i for i, (name, _, _) in enumerate(records) if name.endswith("models/model.json"))
    name, content, packing = records[index]
    depth = draw.choice((200, 100_000))
    content = content.replace(b'"inputs":', draw.choice((b'"inputs":' + b"[" * depth, b'"inputs":' + b'{"a":' * depth)), 1)
    records[index] = (name, content, packing)
    write(file, records)


DAMAGES = (cut, flip, flip_directory, swap_sizes, forge_name, shorten)
FORGERIES = (forge_graph, forge_graph, forge_graph, forge_tensors, forge_tensors, forge_bytes, nest)


def judge(kind, file, outcome, digest):
    if outcome is None:
        return "nothing was said"
    if outcome[0] == "refused":
        return "" if str(file) in outcome[1] else f"its message does not name the file: {outcome[1]}"
    return "" if outcome[1] == digest or kind in FORGERIES else "loads with other tensors"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loader")
    parser.add_argument("--number", type=int, default=390)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="write the files into this folder, to look at one")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    draw = random.Random(arguments.seed)
    failures, loaded = 0, 0
    with tempfile.TemporaryDirectory(prefix="onebatch-programs-") as name:
        folder = pathlib.Path(arguments.keep or name)
        torch.manual_seed(1)
        originals = {folder / "conv.pt2": (ConvNet(), images), folder / "gpt.pt2": (Gpt(), tokens), folder / "outputs.pt2": (Outputs(), vectors)}
        for file, (model, data) in originals.items():
            export(model.train(), file, data(4))
        whole = load(arguments.loader, list(originals) * 3)
        least = int(whole.pop("peak")[1])
        assert all(outcome[0] == "loaded" for outcome in whole.values()), whole
        kinds = DAMAGES + FORGERIES
        cases = [(kinds[number % len(kinds)], draw.choice(list(originals)), folder / f"{number}.pt2") for number in range(arguments.number)]
        for kind, original, file in cases:
            kind(draw, file, original)
        for begin in range(0, len(cases), TOGETHER):
            some = cases[begin:begin + TOGETHER]
            outcomes = load(arguments.loader, [file for _, _, file in some])
            most = int(outcomes.pop("peak")[1])
            allowed = least + SLACK + 4 * max(file.stat().st_size for _, _, file in some) // 1024
            if most > allowed:
                print(f"FAIL {some[0][2]} and those after it: {most} KiB, and {allowed} are allowed (--seed {arguments.seed})")
                failures += 1
            for kind, original, file in some:
                outcome = outcomes.get(str(file))
                wrong = judge(kind, file, outcome, whole[str(original)][1])
                failures += bool(wrong)
                loaded += outcome is not None and outcome[0] == "loaded"
                if wrong:
                    print(f"FAIL {kind.__name__} {file}: {wrong} (--seed {arguments.seed})")
    print(f"{len(cases)} mutations: {len(cases) - loaded} refused, {loaded} loaded, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
