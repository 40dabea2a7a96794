#!/usr/bin/env python3
"""Random signals to random processes of a run at random moments: it ends in time, with a code that is documented, leaves nothing that no document
names, and goes on to the very weights of a run that nobody disturbed.

random_faults.py PROGRAM [--cases N] [--minutes M] [--seed S] [--case I] [--jobs J] [--again]
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT = 2.0  # comm.timeout_seconds
ALLOWED = 5.0  # beyond it
LOADING = 6.0  # what a busy machine takes to load the program, before which nobody can be asked
LONGEST = 4.0  # the moment of a fault, seconds after the start: an undisturbed run takes about 2 to 3
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
# Bitwise: a run that begins anew may be planned otherwise, and has the same bits.
CONFIG = """
[run]
max_steps = 40
output_dir = "{folder}/runs"
name = "run"
deterministic = "bitwise"
[batch]
global_batch_size = 48
micro_batch_size = 12
[data]
kind = "synthetic"
shape = [16]
size = 480
[data.validation]
kind = "synthetic"
shape = [16]
size = 48
[model]
kind = "mlp"
hidden = [32]
[checkpoint]
every_steps = 5
[probe]
cache = false
steps_per_trial = 1
[comm]
timeout_seconds = {timeout}
[simulate]
devices = [{devices}]
"""
KINDS = ["KILL", "STOP", "STOP and CONT", "SEGV", "ABRT", "TERM", "INT", "HUP", "USR1", "USR2", "QUIT"]
NAMED = re.compile(r"config\.toml|metrics\.jsonl|samples\.jsonl|validation\.jsonl|(metrics|validation)\.csv|tensorboard|profile\.json|plan\.json|events\.jsonl|report\.html|result\.json|run\.lock|checkpoints|"
                   r"checkpoints/latest|checkpoints/step-\d+|\S+\.partial|incident-[0-9TZ.]+-rank\d\.(json|txt)")  # fmt: skip


class Failed(Exception):
    pass


class Case:
    def __init__(self, seed, number):
        rng = random.Random(seed * 100003 + number)
        self.number = number
        self.ranks = rng.randint(1, 4)
        self.kind = rng.choice(KINDS)
        # A launcher that stands still keeps its ranks from ending, and SIGQUIT ends it: neither is ours.
        choices = ["one", "all"] + (["mpirun"] if self.kind not in ("STOP", "STOP and CONT", "QUIT") else [])
        self.target = rng.choice(choices) if self.ranks > 1 else "one"
        if self.kind == "STOP" and (self.ranks == 1 or self.target == "all"):
            self.kind = "STOP and CONT"  # where all stand still, nobody is there to notice
        self.guilty = rng.randrange(self.ranks)
        self.moment = rng.uniform(0.0, LONGEST)
        self.pause = rng.uniform(0.05, 3 * TIMEOUT)
        self.is_held = False  # all who are struck were far enough to hold the signal
        self.name = f"{self.kind} to {self.target if self.target != 'one' else f'rank {self.guilty}'} of {self.ranks} after {self.moment:.2f} s"


def command_of(program, config, ranks, *more):
    command = [str(program), "train", str(config), *more]
    return command if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]


def environment_of(folder):
    return dict(ENVIRONMENT, XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(folder))


def processes_of(program, config):
    """By rank; a rank that is not there yet is missing."""
    found = {}
    for text in subprocess.run(["pgrep", "-f", f"^{program} train {config}"], capture_output=True, text=True).stdout.split():
        try:
            variables = pathlib.Path(f"/proc/{text}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = next((int(entry.split(b"=")[1]) for entry in variables if entry.startswith(b"OMPI_COMM_WORLD_RANK=")), 0)
        found[rank] = int(text)
    return found


def send(process, name):
    try:
        os.kill(process, getattr(signal, "SIG" + name))
    except ProcessLookupError:
        pass


def holds(process, name):
    """Whether it has come far enough to hold this signal: its libraries are loaded."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    held = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) | int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    return bool(held >> getattr(signal, "SIG" + name) - 1 & 1)


def strike(case, run, program, config):
    """Sends it; False where there was nobody any more, or not yet."""
    ranks = processes_of(program, config)
    targets = {"mpirun": [run.pid], "all": list(ranks.values()), "one": [ranks[case.guilty]] if case.guilty in ranks else []}[case.target]
    if run.poll() is not None or not targets:
        return False
    first = case.kind.split()[0]
    case.is_held = case.target != "mpirun" and all(holds(process, first) for process in targets)
    for process in targets:
        send(process, first)
    if case.kind == "STOP and CONT":
        time.sleep(case.pause)
        for process in targets:
            send(process, "CONT")
    return True


def where_they_are(program, config, launcher):
    """For people: every process of the run, and where its threads are."""
    text = ""
    for process in [launcher, *processes_of(program, config).values()]:
        text += subprocess.run(["ps", "-o", "pid,stat,wchan:20,args", "-p", str(process)], capture_output=True, text=True).stdout
        text += subprocess.run([program.parent / "onebatch-stacks", str(process)], capture_output=True, text=True, timeout=20).stdout
    return text


def wake_when_over(case, run, program, config, folder):
    """One that is stopped after all else is done has nobody left to notice: it is woken. And where all ranks are killed before they have met,
    Open MPI's launcher may wait for them for ever: it is killed. Whether either was so."""
    until = time.time() + TIMEOUT + ALLOWED + LOADING
    while run.poll() is None and time.time() < until:
        time.sleep(0.05)
    left = processes_of(program, config)
    if case.kind == "STOP" and (folder / "runs" / "run" / "result.json").exists() and list(left) == [case.guilty]:
        send(left[case.guilty], "CONT")
        return True
    if case.kind == "KILL" and case.target == "all" and not left and run.poll() is None:
        run.kill()
        return True
    return False


def weights_of(folder):
    return (folder / "runs" / "run" / "checkpoints" / "latest" / "model.safetensors").read_bytes()


def check_end(case, struck, code, seconds, output):
    allowed = TIMEOUT + ALLOWED + (LOADING if case.moment < 1.5 else 0.0) + (case.pause if case.kind == "STOP and CONT" else 0.0)
    harmless = case.kind in ("QUIT", "STOP and CONT", "USR1", "USR2") or case.kind in ("TERM", "INT", "HUP") and case.ranks == 1
    if struck and not harmless and seconds > allowed:
        raise Failed(f"it took {seconds:.1f} s to end")
    if code == 0:
        return
    if not struck:
        raise Failed(f"nobody was struck, and it returned {code}")
    documented = {1, 4, 75, 130, 143} | {-number for number in range(1, 32)} | {128 + number for number in range(1, 32)}
    if code not in documented:
        raise Failed(f"it returned {code}")
    if case.kind == "QUIT" and case.is_held:
        raise Failed(f"a request ended it with {code}")
    if case.kind == "STOP" and case.target == "one" and case.ranks > 1 and not (f"rank {case.guilty} " in output and "stopped" in output):
        raise Failed(f"rank {case.guilty} is not named")


def check_left(folder, program, config):
    until = time.time() + 3
    while (left := processes_of(program, config)) and time.time() < until:
        time.sleep(0.05)
    if left:
        raise Failed(f"processes left: {left}")
    run = folder / "runs" / "run"
    names = [str(path.relative_to(run)) for path in [*run.glob("*"), *run.glob("checkpoints/*")]]
    if strange := [name for name in names if not NAMED.fullmatch(name)]:
        raise Failed(f"left in the run's folder: {strange}")
    if others := [path.name for path in (folder / "runs").glob("*") if path != run]:
        raise Failed(f"other runs: {others}")


def go_on(case, program, config, folder):
    for attempt in range(3):
        done = subprocess.run(command_of(program, config, case.ranks, "--resume", "--quiet"), env=environment_of(folder), capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return
        if "another run" not in done.stderr and done.returncode != 75:
            break
    raise Failed(f"it did not go on: {done.returncode}\n{done.stdout}{done.stderr}")


def run_case(program, case, expected):
    with tempfile.TemporaryDirectory(prefix="onebatch-random-faults-") as name:
        folder = pathlib.Path(name)
        config = folder / "c.toml"
        config.write_text(CONFIG.format(folder=folder, timeout=TIMEOUT, devices=", ".join(["{step_seconds = [[12, 0.008]]}"] * case.ranks)))
        log = folder / "log"
        output = ""
        try:
            with open(log, "w") as out:
                run = subprocess.Popen(command_of(program, config, case.ranks, "--quiet"), env=environment_of(folder), stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            time.sleep(case.moment)
            struck = strike(case, run, program, config)
            begin = time.time()
            was_over = wake_when_over(case, run, program, config, folder)
            try:
                code = run.wait(timeout=90)
            except subprocess.TimeoutExpired:
                where = where_they_are(program, config, run.pid)
                os.killpg(run.pid, signal.SIGKILL)
                output = log.read_text(errors="replace")
                raise Failed(f"it does not end\n{where}") from None
            output = log.read_text(errors="replace")
            if not was_over:
                check_end(case, struck, code, time.time() - begin, output)
            check_left(folder, program, config)
            go_on(case, program, config, folder)
            check_left(folder, program, config)
            if expected is not None and weights_of(folder) != expected:
                raise Failed("it went on to other weights")
            return None, struck, code, weights_of(folder)
        except Failed as failure:
            for process in processes_of(program, config).values():
                send(process, "KILL")
            return f"{failure}\n{output[-3000:]}", False, None, None


def undisturbed(program):
    case = Case(0, 0)
    case.ranks, case.kind, case.target, case.guilty, case.moment = 1, "QUIT", "one", 9, 0.0
    failure, _, _, weights = run_case(program, case, None)
    if failure:
        sys.exit(f"an undisturbed run failed: {failure}")
    return weights


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--cases", type=int, default=100)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--case", type=int)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--again", action="store_true", help="a case that fails is said and tried once more: moments are never the same twice")
    given = options.parse_args()
    program = pathlib.Path(given.program).resolve()
    expected = undisturbed(program)
    until = time.time() + given.minutes * 60
    codes, failures, done = collections.Counter(), [], 0

    def one(number):
        case = Case(given.seed, number)
        if time.time() > until:
            return None
        result = run_case(program, case, expected)
        if result[0] and given.again:
            print(f"failed once --seed {given.seed} --case {case.number}: {case.name}: {result[0]}", flush=True)
            result = run_case(program, case, expected)
        return (case, *result)

    numbers = [given.case] if given.case is not None else range(given.cases)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for result in pool.map(one, numbers):
            if result is None:
                continue
            case, failure, struck, code, _ = result
            done += 1
            codes[(case.kind, "nobody struck" if not struck and not failure else code)] += 1
            if failure:
                failures.append(case)
                print(f"FAILED --seed {given.seed} --case {case.number}: {case.name}: {failure}", flush=True)
    for (kind, code), count in sorted(codes.items(), key=str):
        print(f"  {kind:14} {code!s:14} {count}")
    print(f"{done - len(failures)} of {done} random faults ended in time and went on to the same weights; {len(numbers)} were asked for")
    return 1 if failures or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
