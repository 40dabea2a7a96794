"""Names with control characters, from everywhere that names come from: none reaches a terminal or a picture as it is; JSON keeps the true name."""
import json
import re
import struct
import subprocess

import pytest

from program import ROOT, read_json, settings

ESCAPE = "\x1b[31m\x9b2J\x7f"
SHOWN = "\\x1b[31m"
FORBIDDEN = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def toml(text):
    """A basic string."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


@pytest.fixture
def say(onebatch):
    """What the program writes; fails where a control character is among it."""

    def run(*arguments, code=0, ranks=1):
        done = subprocess.run(onebatch.command_line(ranks, *arguments), cwd=ROOT, env=onebatch.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        assert done.returncode == code, done.stdout
        assert not FORBIDDEN.search(done.stdout.replace(b"\r\n", b"\n"))
        return done.stdout.decode(errors="replace")

    return run


def test_a_key_is_shown(say, scratch):
    scratch.config.write_text(scratch.config.read_text() + f'{toml("lr" + ESCAPE)} = 1\n')
    assert SHOWN in say("train", scratch.config, code=2)


def test_a_value_is_shown(say, scratch):
    scratch.config.write_text(scratch.config.read_text().replace('kind = "sgd"', f"kind = {toml('sgd' + ESCAPE)}"))
    say("train", scratch.config, code=2)


def test_the_place_where_the_text_is_wrong_is_shown(say, scratch):
    scratch.config.write_bytes(scratch.config.read_bytes() + b"\nlr = \x1b[31m\x9b\n")
    say("train", scratch.config, code=2)


def test_an_assignment_is_shown(say, scratch):
    assert SHOWN in say("train", scratch.config, "--set", f"run.nam{ESCAPE}=x", code=2)


@pytest.mark.parametrize("arguments", (("tra" + ESCAPE,), ("train", "x.toml", "--" + ESCAPE)))
def test_an_argument_is_shown(say, arguments):
    say(*arguments, code=2)


def test_a_configurations_name_is_shown(say):
    assert SHOWN in say("train", f"/nowhere/{ESCAPE}.toml", code=2)


def test_a_name_that_is_no_utf_8_is_shown(say):
    say("train", b"/nowhere/\x9b2J\xff.toml".decode(errors="surrogateescape"), code=2)


def test_a_data_sets_name_is_shown(say, scratch):
    assert SHOWN in say("train", scratch.config, *settings(f"data.path=/nowhere{ESCAPE}"), code=2)


def test_a_profiles_name_is_shown(say, scratch):
    assert SHOWN in say("plan", scratch.config, "--profile", f"/nowhere{ESCAPE}", code=2)


def test_a_tensors_name_is_shown(say, scratch):
    header = json.dumps({"layer" + ESCAPE: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weights = scratch.path / "weights.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert SHOWN in say("train", scratch.config, *settings(f"model.weights={weights}"), code=2)


def test_a_whole_run_is_shown_and_its_documents_keep_the_true_name(say, scratch):
    result = scratch.path / "result.json"
    out = say("train", scratch.config, *settings("run.max_steps=2", f"run.name={toml('run' + ESCAPE)}"), "--json", result, ranks=2)
    assert SHOWN in out
    assert read_json(result)["run_dir"] == str(scratch.runs / f"run{ESCAPE}")


def test_a_device_is_shown_in_a_page_and_a_plan_keeps_the_true_name(say, scratch):
    profile, page, plan = (scratch.path / name for name in ("profile.json", "plan.html", "plan.json"))
    say("probe", scratch.config, "--json", profile)
    document = read_json(profile)
    document["ranks"][0]["device"] = "card <1>" + ESCAPE
    profile.write_text(json.dumps(document))
    say("plan", scratch.config, "--profile", profile, "--html", page, "--json", plan)
    assert "card &lt;1&gt;" + SHOWN in page.read_text()
    assert not FORBIDDEN.search(page.read_bytes())
    assert ESCAPE in read_json(plan)["ranks"][0]["device"]
