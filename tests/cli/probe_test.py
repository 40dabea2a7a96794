#!/usr/bin/env python3
"""The probe on played budgets against trying every size, for both models; and training at what it found."""
import math

from common import *

MODELS = {
    "mlp": '[data]\nkind = "synthetic"\nshape = [{width}]\nsize = 9000\n[model]\nkind = "mlp"\nhidden = [{width}, {width}]\n',
    "resnet": '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 9000\n[model]\nkind = "resnet"\ndepth = {depth}\nstem = "cifar"\n',
}
# --full takes minutes: the budgets of a real card's scale.
FULL = "--full" in sys.argv
BUDGETS = ("128MiB", "512MiB", "1GiB") if FULL else ("12MiB", "40MiB")
SIZES = {"width": 1024, "depth": 20} if FULL else {"width": 512, "depth": 8}
CASES = [(name, text.format(**SIZES), BUDGETS) for name, text in MODELS.items()]
HEAD = '[run]\nmax_steps = 1\noutput_dir = "{runs}"\n[batch]\nglobal_batch_size = 8192\n[checkpoint]\nresume = "never"\n'


def fits(config, size, memory):
    """Whether a fixed micro-batch of this size trains: the truth, found by trying."""
    out = run(1, "probe", config, "--set", f'simulate.devices=[{{memory = "{memory}"}}]', "--set", f"batch.micro_batch_size={size}", "--set", "probe.mode=binsearch",
              "--set", f"probe.init_val={size}", "--set", "probe.steps_per_trial=1", code=(0, 3))
    return "does not fit" not in out


for name, text, budgets in CASES:
    for memory in budgets:
        with Scratch(HEAD + text) as s:
            device = ["--set", f'simulate.devices=[{{memory = "{memory}"}}]']
            run(1, "probe", s.config, *device, "--json", s.path / "p.json")
            rank = read_json(s.path / "p.json")["ranks"][0]
            found, trials = rank["largest_micro_batch"], rank["trials"]
            failures = sum(trial["out_of_memory"] for trial in trials)
            check(len(trials) <= 8 and failures <= 2, f"{name} {memory}: {len(trials)} trials, {failures} out of memory", str(trials))
            # The truth lies between: found fits, and what is 1/0.95 of it must not, unless the cap was reached.
            check(fits(s.config, found, memory), f"{name} {memory}: {found} fits")
            beyond = int(found / 0.95) + 1
            check(found == 8192 or not fits(s.config, beyond, memory), f"{name} {memory}: {beyond} fits too, but {found} was found")
            kept = math.ceil(0.95 * found - 1e-9)
            check(0.95 * kept < rank["max_micro_batch"] <= kept or found == 8192, f"{name} {memory}: the margin, and at most 5 % for a size that kernels like", str(rank))
            run(1, "probe", s.config, *device, "--json", s.path / "again.json")
            cached = read_json(s.path / "again.json")["ranks"][0]
            check(cached["from_cache"] and len(cached["trials"]) == 1 and cached["max_micro_batch"] == rank["max_micro_batch"], f"{name} {memory}: the cache", str(cached))
            for other in (["--set", "probe.cache=false"], ["--set", "probe.margin=0.06"], ["--set", "optimizer.kind=sgd"], ["--set", "comm.backend=mpi"]):
                run(1, "probe", s.config, *device, *other, "--json", s.path / "other.json")
                check(not read_json(s.path / "other.json")["ranks"][0]["from_cache"], f"{name} {memory}: another question has another answer", str(other))
            print(f"ok: {name} {memory}: {found} found in {len(trials)} trials, {failures} out of memory", flush=True)

# A cached answer that the steps contradict is not believed another time; one that they confirm is. Of devices of a known speed.
PLAYED = '[run]\nmax_steps = {steps}\noutput_dir = "{{runs}}"\n[batch]\nglobal_batch_size = 64\n[data]\nkind = "synthetic"\nshape = [16]\nsize = 6400\n[model]\nkind = "mlp"\nhidden = [8]\n'
for ranks, changes, kept in ((1, "", True), (1, ", changes = [{step = 3, slowdown = 2.0}]", False), (2, ", changes = [{step = 3, slowdown = 2.0}]", False)):
    with Scratch(PLAYED.format(steps=32)) as s:
        device = f"{{slowdown = 1.0, step_seconds = [[1, 0.01], [64, 0.12]]{changes}}}"
        played = ["--set", f"simulate.devices=[{', '.join([device] * ranks)}]"]
        run(ranks, "probe", s.config, *played)
        out = run(ranks, "train", s.config, *played)
        check("from the cache" in out, f"{ranks}{changes}: the first answer is kept", out)
        check(("times what the probe's cache says" in out) != kept, f"{ranks}{changes}: a contradiction is said", out)
        again = run(ranks, "probe", s.config, *played, "--json", s.path / "p.json")
        check(all(rank["from_cache"] == kept for rank in read_json(s.path / "p.json")["ranks"]), f"{ranks}{changes}: measured anew", again)

# A model that needs two samples (BatchNorm over one value) is found out.
with Scratch(HEAD + '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 64\n[model]\nkind = "resnet"\ndepth = 18\n') as s:
    run(1, "probe", s.config, "--set", "batch.global_batch_size=8", "--json", s.path / "p.json")
    check(read_json(s.path / "p.json")["ranks"][0]["min_micro_batch"] == 2, "min_micro_batch")
print("the probe finds what fits")
