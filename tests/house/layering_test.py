#!/usr/bin/env python3
"""Checks the includes: an arrow points only downward (launch -> trainer -> comm, and inside trainer/ from floor to floor), no files include
each other in a circle, and each library stays where it belongs. What the program says goes through launch/standard_streams.hpp alone."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
OURS_ALLOWED = {"comm": ("comm/",), "trainer": ("trainer/", "comm/"), "launch": ("launch/", "trainer/", "comm/")}
# The folders of trainer/ from the top floor down: one includes only those of lower floors. Beside them lie headers for library users.
FLOORS = (("run",), ("verify",), ("probe", "checkpoint"), ("step",), ("replica",), ("graph", "optim", "batch_norm"), ("gradients",), ("models",), ("data",), ("events",),
          ("documents",), ("device", "plan"), ("io",), ("settings",), ("base",))
FOR_LIBRARY_USERS = {"trainer/trainer.hpp", "trainer/kinds.hpp"}
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
        for folder, names in re.findall(r"onebatch_add_kinds\(onebatch_pure (\w+) \w+ ([^)]*)\)", cmake.read_text()):
            found += [ROOT / "trainer" / folder / f"{name}.cpp" for name in names.split()]
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


def floor_problems(includes_of):
    """includes_of: {file: [what it includes]}, all below trainer/."""
    height = {folder: -number for number, floor in enumerate(FLOORS) for folder in floor}
    problems = []
    for file, names in includes_of.items():
        if file in FOR_LIBRARY_USERS:
            continue
        folder = file.split("/")[1]
        if folder not in height:
            problems.append(f"{file}: trainer/{folder} is on no floor")
            continue
        for name in names:
            other = name.split("/")[1] if name.startswith("trainer/") else folder
            if other != folder and height.get(other, 1) >= height[folder]:
                problems.append(f"{file} includes {name}: trainer/{folder} stands on the floor of trainer/{other} or below it")
    return problems


def circles(includes_of):
    """Headers that reach themselves."""
    problems = []
    for file in includes_of:
        reached, left = set(), list(includes_of[file])
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += includes_of.get(name, [])
        if file in reached:
            problems.append(f"{file} includes itself by way of others")
    return problems


def check_the_checks():
    """Each must find what is put there."""
    sound = {"trainer/run/a.hpp": ["trainer/base/b.hpp"], "trainer/base/b.hpp": []}
    assert not floor_problems(sound) and not circles(sound)
    assert floor_problems({"trainer/base/b.hpp": ["trainer/run/a.hpp"]}) and floor_problems({"trainer/plan/b.hpp": ["trainer/device/a.hpp"]})
    assert floor_problems({"trainer/attic/b.hpp": []}) and circles({**sound, "trainer/base/b.hpp": ["trainer/run/a.hpp"]})


def check():
    check_the_checks()
    problems = []
    includes_of = {str(path.relative_to(ROOT)): includes(path) for path in sources("trainer")}
    problems += floor_problems(includes_of)
    problems += circles({str(path.relative_to(ROOT)): includes(path) for folder in OURS_ALLOWED for path in sources(folder)})
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
