"""What the documents quote is what the program says: docs/troubleshooting.md's messages stand in the sources, docs/from_pytorch.md's keys are the program's."""
import re
import subprocess

import pytest

from program import ROOT

LITERAL = re.compile(r'(?:R"\((?:.*?)\)"|"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)', re.S)
LEAST = 8  # letters of a part that tells a message from another
PAGE = (ROOT / "docs/troubleshooting.md").read_text()


def plain(literal):
    """The text of literals that stand beside each other; what is filled in becomes …."""
    text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', literal))
    text = text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")
    return re.sub(r"\{[^{}]*\}", "…", text)


@pytest.fixture(scope="module")
def said():
    """All that the program can say, a text for each place."""
    texts = []
    for folder in ("comm", "trainer", "launch"):
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            source = re.sub(r"^\s*//.*$|^\s*#include.*$", "", path.read_text(), flags=re.M)
            texts += [plain(literal) for literal in LITERAL.findall(source)]
    assert len(texts) > 1000
    return texts


def quoted():
    """The messages of the page's tables, but for those of other programs."""
    own = PAGE.split("## Messages of other programs")[0]
    return [match[1] for match in re.finditer(r"^\| `([^`]+)` \|", own, re.M)]


def is_said(message, said):
    """Whether each part between … stands in some text that the program has, in full."""
    parts = [part.strip() for part in message.split("…")]
    long = [part for part in parts if len(part) >= LEAST]
    return bool(long) and all(any(part in text for text in said) for part in long)


def test_a_message_that_is_not_said_is_found(said):
    assert not is_said("the moon is in the way of rank …", said)
    assert is_said("no CUDA GPU is visible on …", said)


def test_many_messages_are_quoted():
    assert len(quoted()) > 30


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_stands_in_the_sources(message, said):
    assert is_said(message, said)


@pytest.mark.parametrize("document", ["docs/from_pytorch.md", "docs/troubleshooting.md"])
def test_keys_that_are_named_are_the_programs(request, document):
    rows = subprocess.run([request.config.getoption("--program"), "info", "--keys"], text=True, capture_output=True, check=True).stdout
    keys = set(re.findall(r"^\| `([\w.]+)`", rows, re.M))
    sections = {key.split(".")[0] for key in keys}
    text = re.sub(r"`[^`]*(?:torch|Trainer|accelerate|train_|_optimization)[^`]*`", "", (ROOT / document).read_text())
    named = {name for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)\b(?!\()", text) if name.split(".")[0] in sections}
    assert named and named - keys - {name for name in named if any(key.startswith(name + ".") for key in keys)} == set()
