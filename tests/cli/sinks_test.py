"""[[log.sinks]]: programs are told every event of a run; what they do, or fail to do, changes nothing about it. The examples are tried with what
they speak to, where that is installed, else with a stand-in that notes what it is called with."""
import http.server
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest

from program import ROOT, Scratch, read_json, read_json_lines, settings

EXAMPLES = ROOT / "examples/sinks"
COPY = "import sys; out = open(sys.argv[1], 'w'); [out.write(line) or out.flush() for line in sys.stdin]"
STEPS = 6
FAST = settings(f"run.max_steps={STEPS}", "checkpoint.every_steps=3")
WEIGHTS = settings('run.deterministic="bitwise"', "batch.micro_batch_size=20")


def sink(*words, events=None):
    only = f", events = {json.dumps(list(events))}" if events else ""
    return f"{{command = {json.dumps([str(word) for word in words])}{only}}}"


def sinks(*all_of_them):
    return settings(f"log.sinks=[{', '.join(all_of_them)}]")


def copying(path, events=None):
    """A sink that writes what it is told into a file."""
    return sink(sys.executable, "-c", COPY, path, events=events)


class Told:
    """A run on two ranks with a sink that keeps all and one that keeps some."""

    def __init__(self, program, path):
        self.scratch = Scratch(path)
        self.out = program.run(2, "train", self.scratch.config, *FAST, *sinks(copying(path / "all"), copying(path / "some", ("step", "ended"))))
        self.folder = self.scratch.runs / "run"
        self.all, self.some = read_json_lines(path / "all"), read_json_lines(path / "some")

    def of(self, kind):
        return [event for event in self.all if event["event"] == kind]


@pytest.fixture(scope="module")
def told(onebatch, tmp_path_factory):
    return Told(onebatch, tmp_path_factory.mktemp("told"))


def test_every_event_is_numbered_and_none_is_missing(told):
    assert [event["number"] for event in told.all] == list(range(len(told.all)))
    times = [event["time"] for event in told.all]
    assert time.time() - 600 < min(times) <= max(times) <= time.time()


def test_the_first_says_which_run_it_is(told):
    first = told.all[0]
    assert (first["event"], first["name"], first["run_dir"], first["ranks"]) == ("run", "run", str(told.folder), 2)
    keys = first["configuration"]
    assert (keys["optimizer.lr"], keys["run.max_steps"], keys["model.hidden"], keys["log.samples"]) == (0.2, STEPS, [64, 48], True)
    assert "train" in first["command"]


def test_steps_and_validations_say_what_the_runs_files_say(told):
    for kind, name in (("step", "metrics"), ("validation", "validation")):
        said = [{key: value for key, value in event.items() if key not in ("event", "number")} for event in told.of(kind)]
        assert said == read_json_lines(told.folder / f"{name}.jsonl")


def test_documents_are_inside(told):
    assert told.of("plan")[-1]["plan"] == read_json(told.folder / "plan.json")
    assert told.of("profile")[-1]["profile"] == read_json(told.folder / "profile.json")
    assert told.of("training_begins")[0]["last_step"] == STEPS
    assert [event["step"] for event in told.of("checkpoint")] == [3, 6]
    assert told.all[-1]["event"] == "ended"
    assert told.all[-1]["result"] == read_json(told.folder / "result.json")


def test_a_sink_is_told_what_it_asked_for_alone(told):
    assert [event["event"] for event in told.some] == ["run", *["step"] * STEPS, "ended"]


def test_what_a_sink_starts_is_no_rank(onebatch, tmp_path):
    scratch = Scratch(tmp_path)
    show = "import os, sys; open(sys.argv[1], 'w').write(' '.join(os.environ)); sys.stdin.read()"
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "ONEBATCH_LAUNCH_FOLDER": str(tmp_path), "PMIX_ID": "x"}
    onebatch.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, "-c", show, tmp_path / "names")), environment=script)
    names = (tmp_path / "names").read_text().split()
    assert set(names) & {*script} == {"SLURM_NTASKS"}


def test_a_configuration_that_is_kept_names_its_sinks(onebatch, told, tmp_path):
    again = (told.folder / "config.toml").read_text()
    assert '"step", "ended"' in again
    copied = tmp_path / "again.toml"
    copied.write_text(again)
    onebatch.run(1, "plan", copied)


def weights(scratch, name="run"):
    return (scratch.runs / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()


BAD = {
    "dies at once": ("import sys; sys.exit(3)", "has ended with code 3: training goes on without it"),
    "dies of a signal": ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
    "never reads": ("import time; time.sleep(1000)", "has not ended in time"),
    "reads no longer": ("import os, time; os.close(0); time.sleep(3)", "reads no longer"),
    "ends badly": ("import sys; sys.stdin.read(); print('at the end'); sys.exit(4)", "has ended with code 4"),
}


@pytest.mark.parametrize("how", BAD)
def test_what_a_sink_does_wrong_is_said_and_changes_nothing(onebatch, scratch, how):
    script, words = BAD[how]
    (scratch.path / "bad.py").write_text(script)
    onebatch.run(1, "train", scratch.config, *FAST, *WEIGHTS, "--set", "run.name=alone")
    out = onebatch.run(1, "train", scratch.config, *FAST, *WEIGHTS, *settings("simulate.devices=[{step_seconds = [[1, 0.02], [20, 0.021]]}]"), *sinks(sink(sys.executable, scratch.path / "bad.py")))
    assert out.count("onebatch: warning: log.sinks: bad") == 1, out
    assert words in out
    assert weights(scratch) == weights(scratch, "alone")
    log = scratch.runs / "run" / "sinks" / "bad.log"
    assert log.read_text() == ("at the end\n" if how == "ends badly" else "")
    time.sleep(0.1)
    left = subprocess.run(["pgrep", "-f", str(scratch.path / "bad.py")], capture_output=True, text=True)
    assert left.stdout == "", "nothing is left running"


def test_a_sink_that_is_slow_slows_nothing(onebatch, scratch):
    """It takes a second for a line; six steps come in much less."""
    slow = "import sys, time\nfor line in sys.stdin: time.sleep(1)"
    onebatch.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, "-c", slow)))
    metrics = read_json_lines(scratch.runs / "run" / "metrics.jsonl")
    assert metrics[-1]["time"] - metrics[0]["time"] < 5


WRONG = (
    (sink("no-such-program"), "there is no program no-such-program"),
    (sink("python3", "nowhere/sink.py"), "there is no file nowhere/sink.py"),
    (sink("cat", events=("steps",)), 'there is no event "steps"; there are run, info'),
    ("{events = ['step']}", "a sink needs its command"),
    ("{command = 'cat'}", 'write command = ["python3", "sink.py"]'),
    ("{command = ['cat'], every = 3}", 'a sink has command and events, not "every"'),
)


@pytest.mark.parametrize("written, words", WRONG)
def test_a_mistake_is_said_before_anything_begins(onebatch, scratch, written, words):
    out = onebatch.run(1, "train", scratch.config, *FAST, *sinks(written), code=2)
    assert words in out
    assert not scratch.runs.exists() or not any(scratch.runs.iterdir()), "nothing is left of it"


def test_a_start_that_is_refused_tells_nobody(onebatch, scratch):
    onebatch.run(1, "train", scratch.config, *FAST, *sinks(copying(scratch.path / "told")), "--set", "data.path=/nowhere", code=2)
    assert not (scratch.path / "told").exists()


def test_a_failure_is_told(onebatch, scratch):
    onebatch.run(1, "train", scratch.config, *FAST, *sinks(copying(scratch.path / "told")), "--set", "optimizer.lr=1e30", code=1)
    last = read_json_lines(scratch.path / "told")[-1]
    assert (last["event"], last["code"]) == ("failed", 1)
    assert "not finite" in last["reason"]


STAND_IN = """
import json, os
def note(what, *arguments, **named):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps([what, list(arguments), named]) + "\\n")
"""
WANDB = STAND_IN + """
class Summary(dict):
    def __setitem__(self, name, value): note("summary", name, value)
    def update(self, values): note("summary", values)
class Run:
    summary = Summary()
    def define_metric(self, *a, **n): note("define_metric", *a, **n)
    def log(self, *a): note("log", *a)
    def finish(self, **n): note("finish", **n)
def init(**n):
    note("init", **n)
    return Run()
"""
MLFLOW = STAND_IN + """
class Info: run_id = "abc"
class Run: info = Info()
def start_run(**n):
    note("start_run", **n)
    return Run()
set_tracking_uri = lambda *a: note("set_tracking_uri", *a)
set_experiment = lambda *a: note("set_experiment", *a)
set_tag = lambda *a: note("set_tag", *a)
log_params = lambda *a: note("log_params", *a)
log_metrics = lambda *a, **n: note("log_metrics", *a, **n)
end_run = lambda *a: note("end_run", *a)
"""


def noted(program, scratch, name, stand_in):
    """What the example called of a stand-in for the module of that name."""
    folder = scratch.path / "modules"
    folder.mkdir()
    (folder / f"{name}.py").write_text(stand_in)
    file = scratch.path / "noted"
    environment = {"PYTHONPATH": str(folder), "NOTED": str(file)}
    out = program.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, EXAMPLES / f"{name}_sink.py")), environment=environment)
    assert "warning: log.sinks" not in out
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_wandb_example_calls_what_wandb_has(onebatch, scratch):
    calls = noted(onebatch, scratch, "wandb", WANDB)
    begun = calls[0][2]
    assert (calls[0][0], begun["name"], begun["resume"]) == ("init", "run", "allow")
    assert begun["id"] == (scratch.runs / "run" / "sinks" / "wandb_id").read_text()
    assert begun["config"]["optimizer.lr"] == 0.2
    logged = [arguments[0] for what, arguments, _ in calls if what == "log"]
    metrics = read_json_lines(scratch.runs / "run" / "metrics.jsonl")
    assert [(one["step"], one["train/loss"]) for one in logged if "train/loss" in one] == [(line["step"], line["loss"]) for line in metrics]
    assert [one["step"] for one in logged if "validation/accuracy" in one] == [STEPS]
    assert calls[-1] == ["finish", [], {"exit_code": 0}]


def test_the_mlflow_example_calls_what_mlflow_has(onebatch, scratch):
    calls = noted(onebatch, scratch, "mlflow", MLFLOW)
    parameters = {name: value for what, arguments, _ in calls if what == "log_params" for name, value in arguments[0].items()}
    assert parameters["optimizer.lr"] == "0.2"
    assert all(len(arguments[0]) <= 100 for what, arguments, _ in calls if what == "log_params"), "MLflow takes no more"
    losses = [(named["step"], arguments[0]["train/loss"]) for what, arguments, named in calls if what == "log_metrics" and "train/loss" in arguments[0]]
    assert losses == [(line["step"], line["loss"]) for line in read_json_lines(scratch.runs / "run" / "metrics.jsonl")]
    assert calls[-1] == ["end_run", ["FINISHED"], {}]


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed; the stand-in above was tried")
def test_the_wandb_example_runs_offline(onebatch, scratch):
    out = onebatch.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, EXAMPLES / "wandb_sink.py")), environment={"WANDB_MODE": "offline"})
    assert "warning: log.sinks" not in out
    assert list((scratch.runs / "run").glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed; the stand-in above was tried")
def test_the_mlflow_example_runs_offline(onebatch, scratch):
    address = f"sqlite:///{scratch.path}/mlflow.db"
    out = onebatch.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, EXAMPLES / "mlflow_sink.py")), environment={"MLFLOW_TRACKING_URI": address})
    assert "warning: log.sinks" not in out
    import mlflow

    client = mlflow.MlflowClient(address)
    (run,) = client.search_runs([client.get_experiment_by_name("onebatch").experiment_id])
    assert run.info.status == "FINISHED"
    losses = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "train/loss")]
    assert sorted(losses) == [(line["step"], line["loss"]) for line in read_json_lines(scratch.runs / "run" / "metrics.jsonl")]


class Chat(http.server.BaseHTTPRequestHandler):
    said = []

    def do_POST(self):
        self.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_webhook_example_tells_a_chat(onebatch, scratch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        onebatch.run(1, "train", scratch.config, *FAST, *sinks(sink(sys.executable, EXAMPLES / "webhook_sink.py")), environment={"ONEBATCH_WEBHOOK": address})
    finally:
        server.shutdown()
    assert re.fullmatch(r"run: begins on 1 rank\(s\) of \S+: .*train.*", Chat.said[0])
    assert re.fullmatch(rf"run: step {STEPS}: validation loss \d\.\d+, accuracy \d+\.\d\d %", Chat.said[1])
    assert re.fullmatch(rf"run: done: {STEPS} steps, train loss \S+", Chat.said[-1])


def test_the_webhook_example_outlives_a_validation_without_a_number():
    sys.path.insert(0, str(EXAMPLES))
    try:
        import webhook_sink
    finally:
        sys.path.remove(str(EXAMPLES))
    assert webhook_sink.text_of({"event": "validation", "step": 3, "loss": None, "accuracy": 0.5}) == "step 3: validation of no finite loss, accuracy 50.00 %"


def test_examples_say_in_their_first_words_how_they_are_configured():
    for path in EXAMPLES.glob("*_sink.py"):
        assert f'"{path.relative_to(ROOT)}"' in path.read_text(), pathlib.Path(path).name
