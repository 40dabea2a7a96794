#!/usr/bin/env python3
"""Which folder a start takes: a new training is a new run, --resume goes on with the right one, and never do two write into one."""
import re
import shlex
import signal
import socket
import time

from common import *

QUICK = DIGITS_MLP.replace("epochs = 3", "max_steps = 6").replace('[data.validation]\n', '').replace("hidden = [64, 48]", "hidden = [16]")
ENDLESS = ("--set", "run.max_steps=1000000")


def start(s, *arguments):
    return subprocess.Popen(command_line(1, ["train", s.config, *arguments]), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition, process, what):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return
        time.sleep(0.01)
    check(False, f"{what} did not come", process.communicate()[0])


def begun(s, name, *arguments):
    """A run that has done some steps, and goes on."""
    metrics = s.runs / name / "metrics.jsonl"
    before = metrics.read_text() if metrics.exists() else ""
    process = start(s, *ENDLESS, *arguments)
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 3 and not before.startswith(metrics.read_text()), process, f"a step of {name}")
    return process


def stop(process):
    process.send_signal(signal.SIGUSR1)
    output = process.communicate(timeout=60)[0]
    check(process.returncode == 75, f"USR1 returned {process.returncode}", output)
    return output


def folders(s):
    return sorted(path.name for path in s.runs.iterdir())


def steps(s, name):
    return [line["step"] for line in read_json_lines(s.runs / name / "metrics.jsonl")]


# A sweep: three configurations of one name are three runs, each with its own result, none another's.
with Scratch(QUICK) as s:
    losses = []
    for lr in ("0.05", "0.1", "0.2"):
        out = run(1, "train", s.config, "--set", f"optimizer.lr={lr}", "--json", s.path / "r.json")
        losses.append(read_json(s.path / "r.json")["train_loss"])
    check(folders(s) == ["run", "run-2", "run-3"] and len(set(losses)) == 3, "three learning rates are three runs", f"{folders(s)} {losses}")
    check("a new run of this name: it is in" in out and "run-3" in out, "the folder is said in one line", out)
    for name, lr, loss in zip(folders(s), ("0.05", "0.1", "0.2"), losses):
        check(f"\nlr = {lr} " in (s.runs / name / "config.toml").read_text(), f"{name} has its own configuration")
        check(read_json(s.runs / name / "result.json")["train_loss"] == loss, f"{name} has its own result")
        check(steps(s, name) == [1, 2, 3, 4, 5, 6], f"{name} has each step once")

    # What is complete is said to be; more steps go on, and every key that differs is said.
    out = run(1, "train", s.config, "--resume", "--set", "optimizer.lr=0.1")
    check("run-2 was complete" in out and "complete at step 6" in out and "differs" not in out, "the run of this configuration is complete", out)
    out = run(1, "train", s.config, "--resume", "--set", "run.max_steps=9", "--set", "optimizer.lr=0.3")
    check("run-3 was complete; its configuration differs: run.max_steps: 6 -> 9, optimizer.lr: 0.2 -> 0.3\n" in out, "what differs is said, and nothing else", out)
    check(folders(s) == ["run", "run-2", "run-3"] and steps(s, "run-3") == list(range(1, 10)), "the newest goes on", out)

    # What identifies a run is refused, and what is there stays as it was.
    before = (s.runs / "run-3" / "config.toml").read_bytes()
    out = run(1, "train", s.config, "--resume", "--set", "model.hidden=[8]", code=2)
    check("model.hidden is [8], the checkpoint has [16]" in out, "another model is refused", out)
    check((s.runs / "run-3" / "config.toml").read_bytes() == before and (s.runs / "run-3" / "result.json").exists(), "a refused start has changed nothing")
    check(folders(s) == ["run", "run-2", "run-3"], "nor left anything", str(folders(s)))

# A start that is refused leaves nothing; what a killed one has left is no obstacle.
with Scratch(QUICK) as s:
    run(1, "train", s.config, "--set", "data.path=/nonexistent", code=2)
    check(folders(s) == [], "a refused start leaves no folder", str(folders(s)))
    (s.runs / "run").mkdir()
    (s.runs / "run" / "config.toml.partial").write_text("[run]\nna")
    (s.runs / "run" / "run.lock").write_text("")
    out = run(1, "train", s.config)
    check(folders(s) == ["run"] and steps(s, "run")[-1] == 6, "half a configuration is written anew", out)
    check(not (s.runs / "run" / "run.lock").exists(), "the lock goes with its run", str(list((s.runs / "run").iterdir())))

# Nothing to go on with; killed before the first checkpoint; stopped; interrupted again and again: one folder.
with Scratch(QUICK) as s:
    process = begun(s, "run", "--resume")
    process.kill()
    check("there is no run run in" in process.communicate()[0], "--resume begins a new run where there is none, and says so")
    check((s.runs / "run" / "profile.json").exists() and not (s.runs / "run" / "checkpoints").exists(), "killed before its first checkpoint")
    out = stop(process := begun(s, "run", "--resume"))
    check("has ended before its first checkpoint: it begins again there" in out, "and goes on in its folder", out)
    first = steps(s, "run")
    check(folders(s) == ["run"] and first == list(range(1, len(first) + 1)), "each step once", str(first))
    command = re.search(r"to go on: (.*)\n", out).group(1)
    check(command.endswith("--resume") and str(s.config) in command, "how to go on is said", out)
    done = subprocess.run(shlex.split(command) + ["--set", f"run.max_steps={first[-1] + 3}"], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0 and "resumed from" in done.stdout, "and works as it is said", done.stdout + done.stderr)
    check(folders(s) == ["run"] and steps(s, "run") == list(range(1, first[-1] + 4)), "in the same folder")

# Two jobs of one name, both stopped and put back in the queue: each finds its own run.
with Scratch(QUICK) as s:
    jobs = (("run", "0.05"), ("run-2", "0.1"))
    for name, lr in jobs:
        stop(begun(s, name, "--set", f"optimizer.lr={lr}"))
    for name, lr in jobs:
        before = steps(s, name)[-1]
        out = stop(begun(s, name, "--resume", "--set", f"optimizer.lr={lr}"))
        check(f"{name} goes on\n" in out and "differs" not in out and steps(s, name)[-1] > before, f"{name} goes on as it was", out)
    check(folders(s) == ["run", "run-2"], "no third run", str(folders(s)))
    # A checkpoint that is named decides itself.
    out = stop(begun(s, "run", "--set", f"checkpoint.resume={s.runs}/run", "--set", "optimizer.lr=0.05"))
    check("run goes on\n" in out and "resumed from" in out and folders(s) == ["run", "run-2"], "a checkpoint's own run goes on", out)
    out = run(1, "train", s.config, "--set", f"checkpoint.resume={s.runs}/run", "--set", "run.name=other", "--set", "run.max_steps=1")
    check("resumed from" in out and folders(s) == ["other", "run", "run-2"], "another run begins from it", out)

# One writer: a new start takes another folder, --resume is refused with host and process.
with Scratch(QUICK) as s:
    process = begun(s, "run")
    out = run(1, "train", s.config, "--resume", *ENDLESS, code=2)
    check(f"run is in use: process {process.pid} on {socket.gethostname()}, since 2" in out, "who holds it is said", out)
    run(1, "train", s.config)
    check(folders(s) == ["run", "run-2"], "a new run has a folder of its own", str(folders(s)))
    process.kill()
    process.communicate()
    check((s.runs / "run" / "run.lock").exists(), "a killed process leaves its lock")
    stop(begun(s, "run", "--resume"))
    check(folders(s) == ["run", "run-2"], "which is in nobody's way", str(folders(s)))

# A lock of another machine that shows signs of life.
with Scratch(QUICK) as s:
    stop(begun(s, "run"))
    lock = s.runs / "run" / "run.lock"
    lock.write_text('{"host": "node3", "kernel": "another", "process": 17, "since": "2026-01-31 12:00:00 UTC"}\n')
    process = start(s, "--resume", *ENDLESS)
    while process.poll() is None:
        os.utime(lock)
        time.sleep(0.2)
    out = process.communicate()[0]
    check(process.returncode == 2 and "run is in use: process 17 on node3, since 2026-01-31 12:00:00 UTC" in out, "another machine's lock holds", out)

# Many starts of one name at the same moment: as many runs, each whole.
rounds, at_once = (20, 2) if "--full" in sys.argv else (3, 5)
for _ in range(rounds):
    with Scratch(QUICK) as s:
        processes = [start(s, "--set", f"optimizer.lr=0.0{i + 1}", "--json", s.path / f"{i}.json") for i in range(at_once)]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        check(all(process.returncode == 0 for process in processes), "all of them train", "\n".join(outputs))
        taken = [pathlib.Path(read_json(s.path / f"{i}.json")["run_dir"]) for i in range(at_once)]
        check(len(set(taken)) == at_once == len(folders(s)), "each has a folder of its own", str(taken))
        for i, folder in enumerate(taken):
            check(f"\nlr = 0.0{i + 1} " in (folder / "config.toml").read_text() and steps(s, folder.name) == [1, 2, 3, 4, 5, 6], f"{folder} is its own run's alone")
print("every run has its folder")
