"""What the parts share: the program on the card, configurations, and rows of one table."""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Two ranks may share the card: NCCL takes them for two cards where their hosts have other names.
TWO_ON_ONE_CARD = ({"NCCL_HOSTID": "first", "NCCL_SOCKET_IFNAME": "lo"}, {"NCCL_HOSTID": "second", "NCCL_SOCKET_IFNAME": "lo"})


@dataclasses.dataclass
class Row:
    part: str
    check: str
    figure: str
    limit: str
    passed: bool


class OutOfTime(Exception):
    pass


class Check:
    """One part's. `device`: "cuda"; "cpu" shows that the parts themselves work."""

    def __init__(self, part, program, device, seconds):
        self.part, self.program, self.device = part, str(pathlib.Path(program).resolve()), device
        self.until = time.monotonic() + seconds
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="onebatch-gpu-check-"))
        self.rows = []

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self):
        """Seconds until the part's time is up. Throws OutOfTime then."""
        if time.monotonic() > self.until:
            raise OutOfTime
        return self.until - time.monotonic()

    def row(self, check, figure, limit, passed):
        self.rows.append(Row(self.part, check, str(figure), str(limit), bool(passed)))
        print(f"{'ok  ' if passed else 'FAIL'} {self.part}: {check}: {figure} ({limit})", flush=True)

    def command(self, arguments, environments):
        """`environments`: one for each rank, with what it has beside the others."""
        if len(environments) == 1:
            return [self.program, *arguments]
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for i, environment in enumerate(environments):
            command += [":"] * (i > 0) + ["-np", "1"]
            command += [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
            command += [self.program, *arguments]
        return command

    def start(self, *arguments, ranks=1, environments=None):
        variables = dict(
            os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1",
            XDG_CACHE_HOME=str(self.folder / "cache"))  # fmt: skip
        command = self.command([str(argument) for argument in arguments], environments or [{}] * ranks)
        return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace", start_new_session=True)  # fmt: skip

    def run(self, *arguments, seconds=300, **options):
        """The code and what was said; code 124: it was killed, since its time was up."""
        process = self.start(*arguments, **options)
        try:
            words, _ = process.communicate(timeout=min(seconds, self.left()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            words, _ = process.communicate()
            return 124, words
        return process.returncode, words

    def train(self, config, name, *given, arguments=(), **options):
        """The code, the words and the run's folder."""
        return *self.run("train", config, *arguments, *settings(f'run.name="{name}"', *given), **options), self.folder / "runs" / name

    def configuration(self, name="c", **sections):
        """Writes a file of these sections over a small run on the device; its path."""
        sections["run"] = {"output_dir": str(self.folder / "runs"), "device": self.device, "max_steps": 4, **sections.get("run", {})}
        if "epochs" in sections["run"]:
            del sections["run"]["max_steps"]
        if "data" not in sections:
            sections["data"] = {"kind": "idx", "path": str(ROOT / "data/digits")}
        lines = []
        for section, values in sections.items():
            lines.append(f"[{section.replace('__', '.')}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path


def settings(*given):
    """"--set" before each."""
    return [word for setting in given for word in ("--set", setting)]


def weights(run):
    """The bytes of a run's newest checkpoint."""
    return (run / "checkpoints/latest/model.safetensors").read_bytes()


def steps(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def last_words(words, most=160):
    """What the program itself said last."""
    lines = [line for line in words.splitlines() if line.strip() and not line.startswith("---")]
    own = [line for line in lines if line.startswith(("onebatch", "rank "))]
    return " | ".join((own or lines)[-2:])[-most:]
