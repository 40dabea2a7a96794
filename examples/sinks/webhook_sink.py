"""A message to a chat (Slack, Mattermost, Discord with /slack behind its address) when a run begins, is validated, ends or fails. In the run's
configuration:

[[log.sinks]]
command = ["python3", "examples/sinks/webhook_sink.py"]
events = ["run", "validation", "replanned", "ended", "failed"]

ONEBATCH_WEBHOOK is the address that the chat gives out for incoming messages: keep it out of files.
"""
import json
import os
import sys
import urllib.request

from events import events

PATIENCE_SECONDS = 5


def validation_text(event):
    accuracy = f", accuracy {100 * event['accuracy']:.2f} %" if event.get("accuracy") is not None else ""
    loss = "of no finite loss" if event["loss"] is None else f"loss {event['loss']:.4f}"
    return f"step {event['step']}: validation {loss}{accuracy}"


def text_of(event):
    """None: nothing to say."""
    kind = event["event"]
    if kind == "run":
        return f"begins on {event['ranks']} rank(s) of {event['host']}: {event['command']}"
    if kind == "validation":
        return validation_text(event)
    if kind == "replanned":
        return f"step {event['step']}: a new plan ({event['cause']})"
    if kind == "ended":
        how = "saved and stopped" if event["stopped_by_signal"] else "done"
        return f"{how}: {event['result']['steps']} steps, train loss {event['result']['train_loss']}"
    if kind == "failed":
        return f"FAILED: {event['reason']}"
    return None


def send(address, text):
    """What the chat does not take is in the log beside the run; the run is not the worse for it."""
    request = urllib.request.Request(address, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
    except OSError as error:
        print(f"not sent ({error}): {text}", flush=True)


def main():
    address = os.environ.get("ONEBATCH_WEBHOOK")
    if not address:
        sys.exit("set ONEBATCH_WEBHOOK to the address that the chat gives out for incoming messages")
    name = "run"
    for event in events():
        name = event.get("name", name)
        text = text_of(event)
        if text is not None:
            send(address, f"{name}: {text}")


if __name__ == "__main__":
    main()
