"""Whether what the card computes is the large batch."""
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from check import ROOT, TWO_ON_ONE_CARD, OutOfTime, last_words, settings, weights

MLP = {"kind": "mlp", "hidden": [512, 256], "dropout": 0.1}
RESNET = {"kind": "resnet", "depth": 8, "stem": "cifar"}
SHARED = ('comm.backend="mpi"', "comm.allow_shared_device=true")


def verify(check, config, *given, **options):
    """The document, or what was said where there is none."""
    document = check.folder / "verify.json"
    document.unlink(missing_ok=True)
    code, said = check.run("verify", config, "--json", document, *settings(*given), **options)
    return code, json.loads(document.read_text()) if document.exists() else {}, said


def basics(check):
    """The demo, dropout, graphs, determinism, resume."""
    code, said = check.run("info")
    found = re.search(r"cuda devices: (\d+)(.*)", said)
    check.row("the card is seen", found.group(0) if found else last_words(said), "1 or more", check.device == "cpu" or (found and int(found.group(1)) > 0))
    simulated = ["simulate.devices=[]", f"run.device={json.dumps(check.device)}", f'run.output_dir="{check.folder}/runs"']
    code, said, run = check.train(ROOT / "configs/demo.toml", "demo", *simulated)
    result = json.loads((run / "result.json").read_text()) if code == 0 else {}
    check.row("demo: accuracy", result.get("validation_accuracy", last_words(said)), ">= 0.93", result.get("validation_accuracy", 0) >= 0.93)
    code, document, said = verify(check, ROOT / "configs/demo.toml", *simulated)
    check.row("demo: verify, relative L2", f"{document.get('relative_l2')} of {document.get('tolerance')}", "PASS", code == 0)
    code, document, said = verify(check, check.configuration(batch={"global_batch_size": 100}, model=MLP))
    check.row("dropout: verify, relative L2", document.get("relative_l2", last_words(said)), "PASS", code == 0)
    same_bits(check)


def same_bits(check):
    deterministic = {"run": {"max_steps": 12, "deterministic": True}, "batch": {"global_batch_size": 96, "micro_batch_size": 16}, "checkpoint": {"every_steps": 6, "keep": 5}}
    for name, model, mode in (("MLP with dropout", MLP, "local"), ("ResNet-8", RESNET, "local"), ("Exact BatchNorm", RESNET, "exact")):
        config = check.configuration(**deterministic, model=model, batch_norm={"mode": mode})
        runs = {}
        for kind, given in {"once": [], "again": [], "without": ["run.cuda_graphs=false"], "half": ["run.max_steps=6"]}.items():
            code, said, run = check.train(config, f"{name[:3]}-{kind}", *given)
            runs[kind] = weights(run) if code == 0 else said
        check.train(config, f"{name[:3]}-half", "checkpoint.resume=\"auto\"")
        runs["half"] = weights(check.folder / f"runs/{name[:3]}-half")
        for kind, what in (("again", "twice"), ("without", "with and without CUDA graphs"), ("half", "in one go and resumed")):
            same = isinstance(runs["once"], bytes) and runs["once"] == runs[kind]
            check.row(f"{name}: {what}", "the same bits" if same else "others", "the same", same)
    bitwise = ["run.deterministic=\"bitwise\"", *SHARED]
    config = check.configuration(**deterministic, model=RESNET, batch_norm={"mode": "exact"})
    made = [check.train(config, f"bitwise-{ranks}", *bitwise, ranks=ranks) for ranks in (1, 2)]
    same = all(code == 0 for code, _, _ in made) and weights(made[0][2]) == weights(made[1][2])
    check.row("bitwise on one and two ranks", "the same bits" if same else last_words(made[1][1]), "the same", same)


def settings_to_verify():
    """What matters most first."""
    models = {"mlp": MLP, "resnet": RESNET}
    precisions = {"fp32": {}, "bf16": {"compute": "bfloat16"}, "fp16": {"compute": "float16"}, "fp64": {"compute": "float64", "parameters": "float64"}}
    for (model, values), precision, mode, segments in itertools.product(models.items(), precisions, ("exact", "local", "sync"), ("off", 2)):
        if model == "mlp" and mode != "exact" or model == "resnet" and mode != "local" and segments != "off":
            continue
        sections = {"model": values, "batch": {"global_batch_size": 48, "micro_batch_size": 16}, "precision": precisions[precision], "batch_norm": {"mode": mode},
                    "memory": {"recompute": segments}}
        yield f"{model} {precision} {mode} recompute {segments}", sections


def verify_settings(check):
    """verify over models, precisions, BatchNorm and recomputation."""
    verdicts, wrong, todo = {"pass": 0, "cannot judge": 0, "failed": 0}, [], list(settings_to_verify())
    try:
        for number, (name, sections) in enumerate(todo):
            check.left()
            code, document, said = verify(check, check.configuration(**sections))
            kind = {0: "pass", 5: "cannot judge"}.get(code, "failed")
            verdicts[kind] += 1
            if kind == "failed":
                wrong.append(f"{name}: {document.get('reason') or last_words(said)}")
    except OutOfTime:
        check.row("all settings were tried in time", f"{number} of {len(todo)}", "all", False)
    check.row("verify over settings", ", ".join(f"{count} {kind}" for kind, count in verdicts.items()) + "".join(f"; {one}" for one in wrong[:5]), "0 failed", not wrong)


def random_runs(check):
    """Random models, plans and configurations against PyTorch on the CPU."""
    command = [sys.executable, str(ROOT / "tests/oracle/random_runs.py"), check.program, "--minutes", str(check.left() / 60 - 1.5), "--jobs", str(max(1, (os.cpu_count() or 2) - 2)),
               "--seed", str(int(time.time()) % 100000)]  # fmt: skip
    command += settings(f"run.device={check.device}", "simulate.devices=[]", "comm.allow_shared_device=true")
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    counts = dict((kind, int(count)) for count, kind in re.findall(r"(\d+) (equal|refused|not judged|WRONG|failed)", lines[-1] if lines else ""))
    for line in lines:
        if re.search(r"WRONG|failed", line):
            print(line[:400])
    check.row("random runs", lines[-1] if lines else done.stderr[-300:], "0 WRONG, 0 failed", counts.get("equal", 0) > 0 and counts.get("WRONG") == counts.get("failed") == 0)


def ranks_of(process):
    """Processes of the program below mpirun."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid:
            found.append(int(entry.parent.name))
    return sorted(found)


def lost_rank(check, config, number, name):
    """Seconds until the run of that name has ended after its second rank is struck, and its words."""
    process = check.start("train", config, *settings(f'run.name="{name}"'), environments=TWO_ON_ONE_CARD)
    metrics = check.folder / "runs" / name / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
        check.left()
        time.sleep(0.1)
    begin = time.monotonic()
    for rank in ranks_of(process)[1:2]:
        os.kill(rank, number)
    try:
        said, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    return time.monotonic() - begin, said


def nccl(check):
    """Two NCCL ranks on one card: sums, overlap, kill and stop; never speed."""
    ours = {"comm": {"backend": "nccl" if check.device == "cuda" else "auto", "allow_shared_device": True, "timeout_seconds": 10}, "model": RESNET}
    for mode, overlap, bucket in itertools.product(("exact", "sync", "local"), (True, False), (0.01, 25)):
        sections = {**ours, "comm": {**ours["comm"], "overlap": overlap, "bucket_cap_mb": bucket}, "batch_norm": {"mode": mode}, "batch": {"global_batch_size": 48, "micro_batch_size": 8},
                    "precision": {"compute": "float64", "parameters": "float64"}}
        code, document, said = verify(check, check.configuration(**sections), environments=TWO_ON_ONE_CARD)
        good = (code == 0 or (mode != "exact" and document.get("cause") == "batch_norm")) and "pinned host memory" not in said
        check.row(f"{mode}, overlap {overlap}, buckets of {bucket} MiB: relative L2 in float64", document.get("relative_l2", last_words(said)),
                  "PASS over NCCL" if mode == "exact" else "off by its own statistics alone, over NCCL", good)  # fmt: skip
    config = check.configuration(**ours, run={"max_steps": 10**6}, batch={"global_batch_size": 48, "micro_batch_size": 8})
    for what, number, most in (("killed", signal.SIGKILL, 10.0), ("stopped", signal.SIGSTOP, 15.0)):
        seconds, said = lost_rank(check, config, number, what)
        check.row(f"a rank is {what}", f"{seconds:.1f} s" + ("" if "rank 1" in said else ", nobody named: " + last_words(said)), f"<= {most:g} s, rank 1 named", seconds <= most and "rank 1" in said)
