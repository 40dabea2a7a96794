"""A run in Weights & Biases. In the run's configuration:

[[log.sinks]]
command = ["python3", "examples/sinks/wandb_sink.py", "--project", "my-project"]
events = ["run", "step", "validation", "checkpoint", "ended", "failed"]

WANDB_API_KEY or `wandb login` says who you are; WANDB_MODE=offline keeps everything below the run's folder, for `wandb sync` later.
A run that is gone on with goes on there too.
"""
import argparse
import pathlib
import uuid

import wandb
from events import events, numbers


def run_id(folder):
    """Of this folder's run, the same at every start."""
    file = pathlib.Path(folder) / "sinks" / "wandb_id"
    if not file.exists():
        file.write_text(uuid.uuid4().hex[:8])
    return file.read_text()


def begin(event, project):
    run = wandb.init(project=project, name=event["name"], id=run_id(event["run_dir"]), resume="allow", dir=event["run_dir"],
                     config={**event["configuration"], "onebatch": event["onebatch"], "ranks": event["ranks"], "command": event["command"]})
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", default="onebatch")
    arguments = parser.parse_args()
    run, failed = None, False
    for event in events():
        kind = event["event"]
        if kind == "run":
            run = begin(event, arguments.project)
        elif kind == "step":
            run.log({"step": event["step"], **{f"train/{name}": value for name, value in numbers(event).items()}})
        elif kind == "validation":
            run.log({"step": event["step"], **{f"validation/{name}": value for name, value in numbers(event).items()}})
        elif kind == "checkpoint":
            run.summary["checkpoint"] = event["path"]
        elif kind == "ended":
            run.summary.update({f"result/{name}": value for name, value in numbers(event["result"]).items()})
        elif kind == "failed":
            failed = True
            run.summary["failure"] = event["reason"]
    if run is not None:
        run.finish(exit_code=1 if failed else 0)


if __name__ == "__main__":
    main()
