"""Whether the probe finds what fits, and what happens where memory runs out all the same."""
import json
import subprocess
import sys

from check import last_words

GIB = 1 << 30
# Holds all of the card's memory but so many bytes; says so, and lets go where its input ends.
FILLER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
left = int(sys.argv[1])
held = torch.empty(max(0, free - left), dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""
BF16 = {"compute": "bfloat16"}
SYNTHETIC, OF_A_FILE = 16384, 256  # samples of a global batch


class Filled:
    def __init__(self, check, left):
        self.process = None
        if check.device == "cuda":
            self.process = subprocess.Popen([sys.executable, "-c", FILLER, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.communicate()


def cases(check):
    """Name, memory that is free, sections."""
    digits = {"kind": "synthetic", "shape": [3, 32, 32], "size": 65536}
    resnet = {"kind": "resnet", "depth": 18, "stem": "cifar"}
    yield "ResNet-18 bf16, local BatchNorm", 6 * GIB, {"data": digits, "model": resnet, "precision": BF16, "batch_norm": {"mode": "local"}}
    yield "ResNet-18 fp32, exact BatchNorm", 12 * GIB, {"data": digits, "model": resnet, "batch_norm": {"mode": "exact"}}
    if check.device == "cuda":
        from models import write

        for name, free, samples in (("ResNet-50", 12, 512), ("GPT-2 small", 24, 256)):
            folder = check.folder / name.replace(" ", "-")
            folder.mkdir(exist_ok=True)
            write(name, folder, samples)
            yield f"{name} bf16", free * GIB, {"data": {"kind": "safetensors", "path": str(folder / "data.safetensors"), "inputs": ["x"], "target": "y"},
                                               "model": {"kind": "torchscript", "path": str(folder / "model.pt")}, "precision": BF16, "batch_norm": {"mode": "local"}}  # fmt: skip


def of_size(size):
    """One micro-batch a step."""
    return f"batch.micro_batch_size={size}", f"batch.global_batch_size={size}"


def fits(check, config, size):
    """In a fresh process."""
    code, said, run = check.train(config, f"tries-{size}", *of_size(size), "run.max_steps=2", "probe.cache=false", "verify.at_start=false")
    if code not in (0, 3):
        raise RuntimeError(last_words(said))
    return code == 0 and json.loads((run / "result.json").read_text())["out_of_memory_events"] == 0


def largest_that_fits(check, config, found, most):
    """By halving, from what the probe has found upward."""
    low, high = found, min(most + 1, found + max(2, found // 10))
    while high - low > max(1, found // 200):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(check, config, middle) else (low, middle)
    return low


def probe(check):
    """The probe against trying sizes in fresh processes; 1,000 steps after it."""
    for name, free, sections in cases(check):
        with Filled(check, free):
            most = SYNTHETIC if sections["data"]["kind"] == "synthetic" else OF_A_FILE
            config = check.configuration(**sections, batch={"global_batch_size": most}, probe={"steps_per_trial": 1})
            document = check.folder / "profile.json"
            code, said = check.run("probe", config, "--json", document)
            if code != 0:
                check.row(f"probe: {name}, {free / GIB:g} GiB free", last_words(said), "a profile", False)
                continue
            rank = json.loads(document.read_text())["ranks"][0]
            found, trials = rank["largest_micro_batch"], rank["trials"]
            true = largest_that_fits(check, config, found, most) if check.device == "cuda" else found
            failed = sum(trial["out_of_memory"] for trial in trials)
            check.row(f"probe: {name}, {free / GIB:g} GiB free", f"{found} of {true}, {len(trials)} trials, {failed} out of memory", ">= 0.98 of it; <= 6 trials; <= 1 out of memory",
                      0.98 * true <= found <= true and len(trials) <= 6 and failed <= 1)  # fmt: skip
            size = rank["max_micro_batch"]
            steps = 1000 if size * 1000 < 4e6 else 100
            code, said, run = check.train(config, f"after-{size}", *of_size(size), f"run.max_steps={steps}", "checkpoint.every_steps=0", seconds=120)
            events = json.loads((run / "result.json").read_text())["out_of_memory_events"] if code == 0 else last_words(said)
            check.row(f"after it: {name}, {steps} steps of {size}", f"{events} out of memory", "0", events == 0)


def out_of_memory(check):
    """A neighbour takes the memory that the plan was made for."""
    if check.device != "cuda":
        return
    data = {"kind": "synthetic", "shape": [3, 32, 32], "size": 65536}
    for mode in ("local", "exact"):
        config = check.configuration(data=data, model={"kind": "resnet", "depth": 18, "stem": "cifar"}, batch_norm={"mode": mode}, batch={"global_batch_size": 8192})
        code, said, run = check.train(config, f"planned-{mode}", "run.max_steps=1")
        if code == 0:
            with Filled(check, 4 * GIB):
                code, said, _ = check.train(config, f"short-{mode}", "run.max_steps=4", arguments=("--plan", run / "plan.json"))
        check.row(f"less memory than planned, {mode} BatchNorm", f"exit code {code}" + ("" if code == 0 else f": {last_words(said)}"), "0, or 3 and its words", code in (0, 3))
