#!/usr/bin/env python3
"""A scripted model that runs out of memory inside its forward: found by the probe, and survived in mid-run, with the gradient of the whole batch."""
import copy
import sys

import torch
from torch import nn

from archives import Report, Trial, archive, sgd
from common import relative_l2, scratch

PROGRAM = sys.argv[1]
SAMPLES, WIDTH, CLASSES = 600, 32, 5


class Wide(nn.Module):
    """Most of its memory is asked for in the forward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.first(x).unsqueeze(2).repeat(1, 1, 16)
        for i in range(8):
            x = torch.tanh(x)
        return self.last(x.mean(2))


def main():
    report = Report()
    torch.manual_seed(10)
    model = Wide().train()
    inputs, targets = torch.randn(SAMPLES, WIDTH, dtype=torch.float64), torch.randint(0, CLASSES, (SAMPLES,))
    made = archive(model, "script", None)
    # What 300 samples need is beyond it; from step 3 on there is an eighth.
    # Of a size that is given: on a busy machine a plan may be made of micro-batches that fit there too.
    for name, device, micro in (("probe", 'memory = "8MiB"', '"auto"'), ("mid-run", 'memory = "8MiB", changes = [{step = 3, memory = "1MiB"}]', 50)):
        with scratch() as folder:
            trial = Trial(PROGRAM, folder, made, inputs, targets, batch=300, micro=micro, steps=4, more="[simulate]\ndevices = [{" + device + "}]")
            said = trial.train()
            reference = copy.deepcopy(model).double()
            start = {key: value.clone() for key, value in reference.state_dict().items()}
            sgd(reference, inputs, targets, trial.batches)
            moved = relative_l2({key: trial.weights[key] - start[key] for key in start}, {key: value - start[key] for key, value in reference.state_dict().items()})
            events = trial.result["out_of_memory_events"]
            report.check(moved <= 1e-12 and (events > 0) == (name == "mid-run"), f"{name}: four steps {moved:.1e}, {events} out of memory in steps", said)
    return report.failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
