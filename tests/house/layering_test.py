#!/usr/bin/env python3
"""Checks the includes: an arrow points only downward (launch -> trainer -> comm), and each library stays where it belongs. What the program
says goes through launch/standard_streams.hpp alone."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
OURS_ALLOWED = {"comm": ("comm/",), "trainer": ("trainer/", "comm/"), "launch": ("launch/", "trainer/", "comm/")}
OTHER_PROGRAMS = {"comm/stacks_main.cpp"}  # whose only words are their answer
SPEAKS = re.compile(r"\bfmt::print\b|\bstd::(cout|cerr|clog)\b|\b(std::)?(printf|fprintf|puts|fputs|perror)\(")
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
ONLY_UNDER = [
    (re.compile(r"^mpi\.h$"), ("comm",)),
    (re.compile(r"^nccl\.h$"), ("comm",)),
    (re.compile(r"^(toml\+\+|CLI|fmt|spdlog)/"), ("launch",)),
    (LIBTORCH, ("trainer",)),
]


def includes(path):
    return INCLUDE.findall(path.read_text())


def sources(folder):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".cpp", ".hpp"))


def pure_sources():
    """Files of the CMake target that must never see LibTorch."""
    found = []
    for cmake in (ROOT / "trainer").rglob("sources.cmake"):
        for block in re.findall(r"target_sources\(onebatch_pure PRIVATE ([^)]*)\)", cmake.read_text()):
            found += [ROOT / "trainer" / name for name in block.split()]
    return found


def closure(path, seen=None):
    """A file's own includes and those of our headers that it includes."""
    seen = set() if seen is None else seen
    for name in includes(path):
        if name in seen:
            continue
        seen.add(name)
        if (ROOT / name).is_file():
            closure(ROOT / name, seen)
    return seen


def check():
    problems = []
    for folder, allowed in OURS_ALLOWED.items():
        for path in sources(folder):
            place = path.relative_to(ROOT)
            if str(place) not in OTHER_PROGRAMS and SPEAKS.search(path.read_text()):
                problems.append(f"{place} writes to people itself: launch/standard_streams.hpp does that for all")
            for name in includes(path):
                if name.split("/")[0] in OURS_ALLOWED and not name.startswith(allowed):
                    problems.append(f"{place} includes {name}: {folder}/ may include {', '.join(allowed)} alone")
                for pattern, places in ONLY_UNDER:
                    if pattern.search(name) and folder not in places:
                        problems.append(f"{place} includes {name}, which belongs under {', '.join(places)}/")
    free = pure_sources() + [ROOT / "trainer/trainer.hpp", ROOT / "trainer/run/session.hpp"]
    if len(free) < 10:
        problems.append("the list of pure sources was not found")
    for path in free + sources("launch"):
        for name in closure(path):
            if LIBTORCH.search(name):
                problems.append(f"{path.relative_to(ROOT)} reaches {name}: it must not see LibTorch")
    return problems


if __name__ == "__main__":
    found = check()
    print("\n".join(found) if found else "layers hold")
    sys.exit(1 if found else 0)
