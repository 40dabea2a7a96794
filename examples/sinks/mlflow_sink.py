"""A run in MLflow. In the run's configuration:

[[log.sinks]]
command = ["python3", "examples/sinks/mlflow_sink.py", "--experiment", "my-experiment"]
events = ["run", "step", "validation", "ended", "failed"]

MLFLOW_TRACKING_URI says where; without it everything is kept in a file, mlflow.db, where onebatch was started. A run that is gone on with goes
on there too.
"""
import argparse
import os
import pathlib

import mlflow
from events import events, numbers

MOST_PARAMETERS = 100  # that MLflow takes at once
LONGEST_PARAMETER = 500


def parameters(event):
    values = {**event["configuration"], "onebatch": event["onebatch"], "ranks": event["ranks"], "command": event["command"]}
    return [(name, str(value)[:LONGEST_PARAMETER]) for name, value in values.items()]


def begin(event, experiment):
    """Of this folder's run, the same at every start."""
    file = pathlib.Path(event["run_dir"]) / "sinks" / "mlflow_id"
    if file.exists():
        return mlflow.start_run(run_id=file.read_text())
    mlflow.set_experiment(experiment)
    run = mlflow.start_run(run_name=event["name"])
    file.write_text(run.info.run_id)
    pairs = parameters(event)
    for first in range(0, len(pairs), MOST_PARAMETERS):
        mlflow.log_params(dict(pairs[first : first + MOST_PARAMETERS]))
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiment", default="onebatch")
    arguments = parser.parse_args()
    if "MLFLOW_TRACKING_URI" not in os.environ:
        mlflow.set_tracking_uri("sqlite:///mlflow.db")
    status = None
    for event in events():
        kind = event["event"]
        if kind == "run":
            begin(event, arguments.experiment)
        elif kind in ("step", "validation"):
            prefix = "train" if kind == "step" else "validation"
            mlflow.log_metrics({f"{prefix}/{name}": float(value) for name, value in numbers(event).items()}, step=event["step"])
        elif kind == "ended":
            mlflow.log_metrics({f"result/{name}": float(value) for name, value in numbers(event["result"]).items()})
            status = "KILLED" if event["stopped_by_signal"] else "FINISHED"
        elif kind == "failed":
            mlflow.set_tag("failure", event["reason"][:LONGEST_PARAMETER])
            status = "FAILED"
    if status is not None:
        mlflow.end_run(status)


if __name__ == "__main__":
    main()
