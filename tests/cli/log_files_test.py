#!/usr/bin/env python3
"""--log-dir: a file for each rank with all that it said, and what libraries wrote; an older one is added to; one that cannot be had is said before anything begins."""
import re
import signal
import time

from common import *

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z .+")


def lines_of(file, foreign=()):
    lines = file.read_text().splitlines()
    check(all(LINE.fullmatch(line) or line in foreign for line in lines), f"{file.name}: each line has its time", "\n".join(lines))
    return [line if line in foreign else line.split(" ", 1)[1] for line in lines]


def wait_for(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened():
        check(time.monotonic() < end, "it never came")
        time.sleep(0.05)


with Scratch() as s:
    logs = s.path / "some" / "logs"
    out = run(2, "train", s.config, "--set", "run.max_steps=4", "--set", "log.every_steps=2", "--log-dir", logs)
    check(sorted(file.name for file in logs.iterdir()) == ["rank-0.log", "rank-1.log"], "a file for each rank", str(list(logs.iterdir())))
    first, second = (lines_of(logs / f"rank-{rank}.log") for rank in (0, 1))
    for rank, lines in enumerate((first, second)):
        check(re.fullmatch(rf"rank {rank} of 2 on \S+, process \d+: .*onebatch train .*--log-dir .*", lines[0]), "who it is, and what was typed", lines[0])
        check(re.fullmatch(r"ended with exit code 0 after \d+\.\d s", lines[-1]), "how it ended", lines[-1])
    # What the terminal shows is in the file.
    shown = [line for line in out.splitlines() if line]
    check(sorted(first[1:-1]) == sorted(shown), "the file has what was shown", "\n".join(first) + "\n---\n" + out)
    check(any(line.startswith("step 4/4") for line in first), "steps", "\n".join(first))

    # The second run is added; --quiet keeps nothing from the file.
    out = run(1, "train", s.config, "--quiet", "--set", "run.max_steps=4", "--set", "log.every_steps=2", "--log-dir", logs)
    check("step 2/4" not in out, "--quiet", out)
    both = lines_of(logs / "rank-0.log")
    check(both[: len(first)] == first and any(line.startswith("step 2/4") for line in both[len(first) :]), "added, and all of it", "\n".join(both))

    # A mistake's words and code; a rank that fails alone.
    run(1, "train", s.config, "--set", "optimizer.lrr=1", "--log-dir", logs, code=2)
    lines = lines_of(logs / "rank-0.log")
    check(lines[-1].startswith("ended with exit code 2") and any("optimizer.lrr" in line for line in lines[-5:]), "a mistake", "\n".join(lines[-6:]))

    # What a library writes itself does not reach the terminal's stream.
    crashed = s.path / "crashed"
    process = subprocess.Popen(command_line(1, ["train", s.config, "--set", "run.max_steps=100000", "--log-dir", crashed]), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (crashed / "rank-0.log").exists() and "step 10/" in (crashed / "rank-0.log").read_text())
    process.send_signal(signal.SIGABRT)
    process.communicate(timeout=60)
    text = (crashed / "rank-0.log").read_text()
    check(process.returncode == -signal.SIGABRT and "what it did, and where its threads were, is in" in text, "a crash's words", text)

    # A folder that cannot be had.
    (s.path / "file").write_text("")
    out = run(1, "train", s.config, "--log-dir", s.path / "file", code=2)
    check("--log-dir" in out and "name a folder that can be written" in out, "no folder", out)
print("what ranks say is kept")
