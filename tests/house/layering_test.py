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
          ("documents", "plan/elsewhere"), ("device", "plan"), ("images",), ("io",), ("settings",), ("base",))
FOR_LIBRARY_USERS = {"trainer/trainer.hpp", "trainer/kinds.hpp", "trainer/plugin.hpp"}
OTHER_PROGRAMS = {"comm/stacks_main.cpp"}  # whose only words are their answer
OTHERS_WORDS = {"trainer/device/native_words.cpp"}  # which it holds back, and passes on
SPEAKS = re.compile(r"\bfmt::print\b|\bstd::(cout|cerr|clog)\b|\b(std::)?(printf|fprintf|puts|fputs|perror)\(")
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
ONLY_UNDER = [
    (re.compile(r"^mpi\.h$"), ("comm",)),
    (re.compile(r"^nccl\.h$"), ("comm",)),
    (re.compile(r"^(toml\+\+|CLI|spdlog)/"), ("launch",)),
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


def folder_of(file):
    """The folder of a file below trainer/ that has a floor of its own: plan/elsewhere is not a part of plan."""
    inside = file.split("/")[1:-1]
    return "/".join(inside) if "/".join(inside) in sum(FLOORS, ()) else inside[0]


def floor_problems(includes_of):
    """includes_of: {file: [what it includes]}, all below trainer/."""
    height = {folder: -number for number, floor in enumerate(FLOORS) for folder in floor}
    problems = []
    for file, names in includes_of.items():
        if file in FOR_LIBRARY_USERS:
            continue
        folder = folder_of(file)
        if folder not in height:
            problems.append(f"{file}: trainer/{folder} is on no floor")
            continue
        for name in names:
            other = folder_of(name) if name.startswith("trainer/") else folder
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


def storey_problems():
    """Includes that point up, and libraries that are not where they belong."""
    problems = []
    for folder, allowed in OURS_ALLOWED.items():
        for path in sources(folder):
            place = path.relative_to(ROOT)
            for name in includes(path):
                if name.split("/")[0] in OURS_ALLOWED and not name.startswith(allowed):
                    problems.append(f"{place} includes {name}: {folder}/ may include {', '.join(allowed)} alone")
                for pattern, places in ONLY_UNDER:
                    if pattern.search(name) and folder not in places:
                        problems.append(f"{place} includes {name}, which belongs under {', '.join(places)}/")
    return problems


def fmt_problems(includes_of):
    """Who includes an installed header finds LibTorch's fmt before the system's, which the library is linked with: no header passes fmt on."""
    return [f"{file} includes fmt: below launch/ sources alone may" for file, names in includes_of.items() if file.endswith(".hpp") and any(name.startswith("fmt/") for name in names)]


def speaking_problems():
    speaking = [path for folder in OURS_ALLOWED for path in sources(folder) if SPEAKS.search(path.read_text())]
    places = {str(path.relative_to(ROOT)) for path in speaking} - OTHER_PROGRAMS - OTHERS_WORDS
    return [f"{place} writes to people itself: launch/standard_streams.hpp does that for all" for place in sorted(places)]


def pure_problems():
    free = pure_sources() + [ROOT / "trainer/trainer.hpp", ROOT / "trainer/run/session.hpp"]
    if len(free) < 10:
        return ["the list of pure sources was not found"]
    return [f"{path.relative_to(ROOT)} reaches {name}: it must not see LibTorch" for path in free + sources("launch") for name in closure(path) if LIBTORCH.search(name)]


def includes_below(*folders):
    return {str(path.relative_to(ROOT)): includes(path) for folder in folders for path in sources(folder)}


# Each check finds what is put there.
SOUND = {"trainer/run/a.hpp": ["trainer/base/b.hpp"], "trainer/base/b.hpp": []}


def test_a_sound_house_has_no_problems():
    assert floor_problems(SOUND) == []
    assert floor_problems({"trainer/plan/elsewhere/a.hpp": ["trainer/plan/b.hpp"]}) == []
    assert circles(SOUND) == []


def test_an_include_upward_is_found():
    assert floor_problems({"trainer/base/b.hpp": ["trainer/run/a.hpp"]})
    assert floor_problems({"trainer/plan/b.hpp": ["trainer/device/a.hpp"]})
    assert floor_problems({"trainer/plan/b.hpp": ["trainer/plan/elsewhere/a.hpp"]})


def test_a_folder_without_a_floor_is_found():
    assert floor_problems({"trainer/attic/b.hpp": []})


def test_a_circle_is_found():
    assert circles({**SOUND, "trainer/base/b.hpp": ["trainer/run/a.hpp"]})


def test_floors_hold():
    assert floor_problems(includes_below("trainer")) == []


def test_no_files_include_each_other():
    assert circles(includes_below(*OURS_ALLOWED)) == []


def test_storeys_hold_and_libraries_are_where_they_belong():
    assert storey_problems() == []


def test_fmt_in_a_header_is_found():
    assert fmt_problems({"comm/error.hpp": ["fmt/format.h"]})
    assert fmt_problems({"comm/error.cpp": ["fmt/format.h"]}) == []


def test_no_header_passes_fmt_on():
    assert fmt_problems(includes_below("comm", "trainer")) == []


def test_one_place_writes_to_people():
    assert speaking_problems() == []


def test_what_decides_does_not_see_libtorch():
    assert pure_problems() == []


if __name__ == "__main__":  # ./dev lint and people, without pytest
    found = floor_problems(includes_below("trainer")) + circles(includes_below(*OURS_ALLOWED)) + storey_problems() + speaking_problems() + pure_problems()
    found += fmt_problems(includes_below("comm", "trainer"))
    print("\n".join(found) if found else "layers hold")
    sys.exit(1 if found else 0)
