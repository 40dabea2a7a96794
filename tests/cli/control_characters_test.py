#!/usr/bin/env python3
"""Names with control characters, from everywhere that names come from: none reaches a terminal or a picture as it is; JSON keeps the true name."""
import re
import struct
import xml.dom.minidom

from common import *

ESCAPE = "\x1b[31m\x9b2J\x7f"
SHOWN = "\\x1b[31m"
FORBIDDEN = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def say(*arguments, code=0, ranks=1):
    """What the program writes, in bytes; exits the test where a control character is among it."""
    done = subprocess.run(command_line(ranks, arguments), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    check(done.returncode in (code if isinstance(code, tuple) else (code,)), f"{arguments} returned {done.returncode}, not {code}", done.stdout)
    written = done.stdout.replace(b"\r\n", b"\n")
    check(not FORBIDDEN.search(written), f"{arguments} writes a control character", str(written))
    return written.decode(errors="replace")


def toml(text):
    """A basic string."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


def safetensors(file, name):
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


with Scratch() as s:
    text = s.config.read_text()

    # Keys, values, and the place where the text is wrong.
    s.config.write_text(text + f'{toml("lr" + ESCAPE)} = 1\n')
    out = say("train", s.config, code=2)
    check(SHOWN in out, "a key", out)
    s.config.write_text(text.replace('kind = "sgd"', f"kind = {toml('sgd' + ESCAPE)}"))
    say("train", s.config, code=2)
    s.config.write_bytes(text.encode() + b"\nlr = \x1b[31m\x9b\n")
    say("train", s.config, code=2)
    s.config.write_text(text)
    check(SHOWN in say("train", s.config, "--set", f"run.nam{ESCAPE}=x", code=2), "an assignment")
    say("tra" + ESCAPE, code=2)
    say("train", s.config, "--" + ESCAPE, code=2)

    # Files, of names in UTF-8 and not.
    check(SHOWN in say("train", f"/nowhere/{ESCAPE}.toml", code=2), "a configuration's name")
    say("train", b"/nowhere/\x9b2J\xff.toml".decode(errors="surrogateescape"), code=2)
    check(SHOWN in say("train", s.config, "--set", f"data.path=/nowhere{ESCAPE}", code=2), "a data set's name")
    check(SHOWN in say("plan", s.config, "--profile", f"/nowhere{ESCAPE}", code=2), "a profile's name")

    # Tensors.
    weights = s.path / "weights.safetensors"
    safetensors(weights, "layer" + ESCAPE)
    check(SHOWN in say("train", s.config, "--set", f"model.weights={weights}", code=2), "a tensor's name")

    # A whole run by such a name: its documents keep it.
    result = s.path / "result.json"
    out = say("train", s.config, "--set", "run.max_steps=2", "--set", f"run.name={toml('run' + ESCAPE)}", "--json", result, ranks=2)
    check(SHOWN in out, "a run's name", out)
    check(read_json(result)["run_dir"] == str(s.runs / f"run{ESCAPE}"), "a document keeps the true name", result.read_text())

    # A device that a profile names, in a plan and its picture.
    profile = s.path / "profile.json"
    say("probe", s.config, "--json", profile)
    document = read_json(profile)
    document["ranks"][0]["device"] = "card <1>" + ESCAPE
    profile.write_text(json.dumps(document))
    picture, plan = s.path / "plan.svg", s.path / "plan.json"
    say("plan", s.config, "--profile", profile, "--svg", picture, "--json", plan)
    check("card &lt;1&gt;" + SHOWN in picture.read_text() and not FORBIDDEN.search(picture.read_bytes()), "a picture shows it", picture.read_text())
    xml.dom.minidom.parse(str(picture))
    check(ESCAPE in read_json(plan)["ranks"][0]["device"], "a plan keeps the true name", plan.read_text())
print("control characters are shown, not sent")
