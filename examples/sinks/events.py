"""The events of a run as onebatch tells them, a JSON object a line: docs/running.md#telling-other-programs."""
import json
import sys


def hears_the_end(run):
    """Whether none of the run's sinks leaves "ended" or "failed" out of its events: where one does, silence may mean nothing."""
    lists = [sink.get("events") for sink in run.get("configuration", {}).get("log.sinks", [])]
    return all(not names or {"ended", "failed"} <= set(names) for names in lists)


def events(stream=sys.stdin):
    """Each event as a dictionary. A run that ends without a word has ended as "failed"."""
    first = last = None
    for line in stream:
        last = json.loads(line)
        first = first or last
        yield last
    if last is not None and last["event"] not in ("ended", "failed") and hears_the_end(first):
        yield {"event": "failed", "code": None, "reason": "the run was ended from outside", "time": last["time"]}


def numbers(event):
    """What of a step or a validation is a number, by its name; what is per rank as its largest."""
    found = {}
    for name, value in event.items():
        if name in ("event", "number", "time", "step"):
            continue
        if isinstance(value, list) and value and all(isinstance(one, (int, float)) for one in value):
            found[f"{name}_most"] = max(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found
