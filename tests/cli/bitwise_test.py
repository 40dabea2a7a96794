#!/usr/bin/env python3
"""run.deterministic = "bitwise": the same bits on 1, 2, 3 and 4 ranks, under three plans each, after 100 steps, with exact BatchNorm, in float64, and resumed elsewhere."""
from common import *

PLANS = ((1.0, 1.0, 1.0, 1.0), (1.0, 4.0, 2.0, 1.0), (3.0, 1.0, 1.0, 9.0))


def settings(name, slowdowns, *more):
    devices = ", ".join(f"{{slowdown = {slowdown}}}" for slowdown in slowdowns)
    pairs = [f"run.name={name}", 'run.deterministic="bitwise"', "batch.micro_batch_size=20", f"simulate.devices=[{devices}]", *more]
    return ["--quiet", *(word for pair in pairs for word in ("--set", pair))]


def train(s, name, ranks, slowdowns, *more):
    run(ranks, "train", s.config, *settings(name, slowdowns, *more))
    latest = s.runs / name / "checkpoints" / "latest"
    plan = read_json(s.runs / name / "plan.json")
    return (latest / "model.safetensors").read_bytes() + (latest / "optimizer.safetensors").read_bytes(), tuple(rank["samples"] for rank in plan["ranks"])


def all_alike(s, what, cases, *more):
    results = [train(s, f"{what}-{i}", ranks, slowdowns, *more) for i, (ranks, slowdowns) in enumerate(cases)]
    for (ranks, slowdowns), (state, _) in zip(cases, results):
        check(state == results[0][0], f"{what}: {ranks} ranks of slowness {slowdowns} have other bits than {cases[0]}")
    return results


STEPS = ("run.max_steps=100",)
with Scratch(DIGITS_MLP.replace("epochs = 3\n", "")) as s:
    results = all_alike(s, "mlp", [(ranks, plan) for ranks in (1, 2, 3, 4) for plan in PLANS], *STEPS, "optimizer.max_grad_norm=0.5", "model.dropout=0.1")
    plans = {plan for _, plan in results}
    check(len(plans) >= 7, "the plans differ", str(plans))
    check(all(share % 20 == 0 for plan in plans for share in plan[:-1] if share != sum(plan) % 20 and share % 20 != 257 % 20), "shares are whole calls", str(plans))

    # It does train, and its steps are those of an ordinary run but for the last bits.
    run(2, "train", s.config, "--quiet", "--set", "run.name=plain", *(word for step in STEPS for word in ("--set", step)), "--set", "optimizer.max_grad_norm=0.5", "--set", "model.dropout=0.1")
    bitwise, plain = (read_json_lines(s.runs / name / "metrics.jsonl") for name in ("mlp-0", "plain"))
    check(abs(bitwise[9]["loss"] - plain[9]["loss"]) <= 1e-4 * plain[9]["loss"], "ten steps are an ordinary run's", f"{bitwise[9]} {plain[9]}")
    check(bitwise[-1]["loss"] < 0.2, "it trains", str(bitwise[-1]))

    all_alike(s, "float64", [(1, PLANS[0]), (3, PLANS[1])], "run.max_steps=20", "precision.compute=float64", "precision.parameters=float64")
    resnet = ("run.max_steps=6", "model.kind=resnet", "model.depth=8", "model.stem=cifar", "model.hidden=[512, 512]", "batch_norm.mode=exact")
    all_alike(s, "exact", [(1, PLANS[0]), (2, PLANS[2]), (3, PLANS[1])], *resnet)

    # Float64 keeps the last bit of running statistics too: every rank has them, so nothing is averaged.
    all_alike(s, "exact64", [(1, PLANS[0]), (2, PLANS[2]), (3, PLANS[1])], *resnet, "precision.compute=float64", "precision.parameters=float64")

    # Stopped after 40 steps on two ranks, gone on with on three.
    train(s, "resumed", 2, PLANS[1], "run.max_steps=40", "optimizer.max_grad_norm=0.5", "model.dropout=0.1")
    state, _ = train(s, "resumed", 3, PLANS[2], *STEPS, "optimizer.max_grad_norm=0.5", "model.dropout=0.1", "checkpoint.resume=auto")
    check(state == results[0][0], "a resumed run has the bits of the uninterrupted one")

    # What cannot be kept is refused.
    out = run(1, "train", s.config, *settings("local", PLANS[0], *resnet[:-1]), code=2)
    check('write batch_norm.mode = "exact"' in out, "local BatchNorm is refused", out)
    out = run(1, "train", s.config, "--set", "run.deterministic=bitwise", "--set", "run.max_steps=1", code=2)
    check("needs batch.micro_batch_size = n" in out, "a grain is needed", out)
print("the same bits, whoever computes what")
