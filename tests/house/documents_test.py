#!/usr/bin/env python3
"""What the documents list is what the code has: configuration keys, notes, exit codes."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text()


def code():
    return [path for folder in ("comm", "trainer", "launch") for path in sorted((ROOT / folder).rglob("*.[ch]pp"))]


def differences(what, documented, real):
    return [f"{what} {name}: in the documents, not in the code" for name in sorted(documented - real)] + [
        f"{what} {name}: in the code, not in the documents" for name in sorted(real - documented)
    ]


def keys_of_code():
    source = text("launch/config_keys.cpp").split("future_keys()")[0] + text("launch/special_keys.cpp") + text("launch/simulate_key.cpp")
    plain = set(re.findall(r'"((?:%s)\.[a-z_]+)"' % "|".join(
        ["run", "batch", r"data\.augment", "model", "loss", "optimizer", "schedule", "precision", "batch_norm", "memory", "probe", "comm", "checkpoint", "verify", "log", "simulate"]), source))
    prefixes = set(re.findall(r'dataset_keys\("([a-z.]+)"', source))
    members = set(re.findall(r'prefix \+ "([a-z_]+)"', source))
    return plain | {prefix + member for prefix in prefixes for member in members}


def check_keys():
    documented = set(re.findall(r"^\| `([a-z_]+(?:\.[a-z_]+)+)` \|", text("docs/configuration.md"), re.M))
    real = keys_of_code()
    return (["no configuration keys were found"] if len(real) < 40 else []) + differences("key", documented, real)


def check_notes():
    """A note that the code cites is written in DESIGN.md, or beside the code and listed there."""
    design = text("DESIGN.md")
    written = set(re.findall(r"^### Note \[(.+?)\]", design, re.M)) | set(re.findall(r"^\* Note \[(.+?)\]", design, re.M))
    cited = set()
    for path in code():
        joined = re.sub(r"\s*\n\s*///?\s*", " ", path.read_text())
        cited |= set(re.findall(r"Note \[([^\]]+)\]", joined))
    return [f"Note [{name}] is cited and not in DESIGN.md" for name in sorted(cited - written)]


def check_places():
    """The files that DESIGN.md and docs/ name are there."""
    problems = []
    for document in [ROOT / "DESIGN.md", ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in re.findall(r"`((?:comm|trainer|launch|cmake|tests|docker|configs|examples|bench)/[\w./-]+\.\w+)`", document.read_text()):
            if not (ROOT / name).exists():
                problems.append(f"{document.name} names {name}, which is not there")
        for name in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            if not (document.parent / name).exists():
                problems.append(f"{document.name} links to {name}, which is not there")
    return problems


def check_exit_codes():
    documented = set(re.findall(r"^\| (\d+) \|", text("docs/exit_codes.md"), re.M))
    block = re.search(r"enum class ExitCode[^{]*{([^}]*)}", text("trainer/base/error.hpp")).group(1)
    return differences("exit code", documented, set(re.findall(r"= (\d+)", block)))


def test_the_keys_of_the_documents_are_those_of_the_code():
    assert check_keys() == []


def test_every_note_that_is_cited_is_written():
    assert check_notes() == []


def test_every_place_that_is_named_is_there():
    assert check_places() == []


def test_the_exit_codes_of_the_documents_are_those_of_the_code():
    assert check_exit_codes() == []


if __name__ == "__main__":  # ./dev lint and people, without pytest
    found = check_keys() + check_notes() + check_places() + check_exit_codes()
    print("\n".join(found) if found else "the documents hold")
    sys.exit(1 if found else 0)
