#!/usr/bin/env python3
"""The same configuration on 1, 2, 3 and 4 ranks: the same samples in each step, the same validation loss; launchers' traps."""
from common import *

with Scratch() as s:
    losses = {}
    samples = {}
    for ranks in (1, 2, 3, 4):
        run(ranks, "train", s.config, "--quiet", "--set", f"run.name=r{ranks}", "--json", s.path / f"{ranks}.json")
        losses[ranks] = read_json(s.path / f"{ranks}.json")["validation_loss"]
        samples[ranks] = read_json_lines(s.runs / f"r{ranks}" / "samples.jsonl")
    for ranks in (2, 3, 4):
        difference = abs(losses[ranks] - losses[1]) / losses[1]
        check(difference <= 1e-4, f"{ranks} ranks: validation loss differs by {difference:.1e} relative", str(losses))
        check(samples[ranks] == samples[1], f"{ranks} ranks: the same samples in each step")
    print("validation loss on 1, 2, 3, 4 ranks:", losses)

    # Dropout draws by sample: a plan of other ranks has the same masks.
    for ranks in (1, 3):
        run(ranks, "train", s.config, "--quiet", "--set", "model.dropout=0.3", "--set", f"run.name=d{ranks}", "--json", s.path / f"{ranks}.json")
        losses[ranks] = read_json(s.path / f"{ranks}.json")["validation_loss"]
    check(abs(losses[3] - losses[1]) / losses[1] <= 1e-4, "dropout is the same on any ranks", str(losses))

    # Exact BatchNorm: the statistics of the whole batch, on any ranks; synchronised: one step of all ranks.
    batch_norm = ["--set", "model.kind=resnet", "--set", "model.depth=8", "--set", "model.stem=cifar", "--set", "model.hidden=[512, 512]", "--set", "precision.compute=float64", "--set",
                  "precision.parameters=float64", "--set", "run.epochs=1", "--set", "batch.last_batch=drop"]
    for mode in ("exact", "sync"):
        for ranks in (1, 2, 3):
            micro = ["--set", "batch.gradient_accumulation_steps=1"] if mode == "sync" else ["--set", f"batch.micro_batch_size={90 // ranks}"]
            run(ranks, "train", s.config, "--quiet", *batch_norm, *micro, "--set", f"batch_norm.mode={mode}", "--set", f"run.name={mode}{ranks}", "--json", s.path / f"{mode}{ranks}.json")
            losses[ranks] = read_json(s.path / f"{mode}{ranks}.json")["validation_loss"]
        for ranks in (2, 3):
            difference = abs(losses[ranks] - losses[1]) / losses[1]
            check(difference <= 1e-9, f"{mode} BatchNorm on {ranks} ranks: validation loss differs by {difference:.1e} relative", str(losses))

    # In lock-step a rank may have no samples in one micro-step and some in the others: 32 on 3 ranks, one at a time.
    run(3, "train", s.config, "--quiet", *batch_norm, "--set", "batch_norm.mode=sync", "--set", "batch.global_batch_size=32", "--set", "batch.micro_batch_size=1",
        "--set", "run.name=dummies")
    shares = read_json(s.runs / "dummies" / "plan.json")["ranks"]
    check(any({0, 1} <= {size for size, count in rank["micro_batches"]} for rank in shares), "a rank with and without samples", str(shares))

    # mpirun's default binding: works, with a word where it wastes cores.
    bound = subprocess.run(["mpirun", "--oversubscribe", "-np", "2", PROGRAM, "train", s.config, "--quiet", "--set", "run.name=bound"], cwd=ROOT, env=ENVIRONMENT,
                           capture_output=True, text=True, timeout=120)
    check(bound.returncode == 0, "mpirun's default binding", bound.stdout + bound.stderr)

    # A rank that fails alone takes the others along, and is named.
    out = run(2, "train", s.config, "--set", 'simulate.devices=[{slowdown = 1.0}, {memory = "20KiB"}]', "--set", "run.name=small", code=3)
    check("rank 1 (" in out, "the rank that does not fit is named", out)
print("any number of ranks is one run")
