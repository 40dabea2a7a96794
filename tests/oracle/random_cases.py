"""Draws a case: a model of a family, data for it, and a configuration; the same for the same seed and number, on any machine."""
import dataclasses
import json
import random

import torch
from torch import nn

import random_image_models  # noqa: F401  (registers)
import random_sequence_models  # noqa: F401
import random_tricky_models  # noqa: F401
import random_vector_models  # noqa: F401
from random_families import FAMILIES, Family

TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclasses.dataclass
class Case:
    seed: int
    number: int
    family: Family
    way: str
    model: nn.Module  # in the run's parameters' type
    train: dict
    validation: dict
    sections: dict  # of the configuration
    ranks: int
    precision: str
    batch_norm: str  # local, sync, exact, frozen; "" where the model has none
    resume_ranks: int  # 0: not resumed
    resume_step: int
    start: dict  # weights that are not the file's own

    @property
    def parameters_type(self):
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def name(self):
        return f"seed {self.seed} case {self.number}: {self.family.name}, {self.way}, {self.precision}"


def cast(model, dtype):
    """Floating-point and complex tensors to the type's width, everything else and every tie and stride as it is."""
    to_complex = torch.complex128 if dtype == torch.float64 else torch.complex64
    return model._apply(lambda tensor: tensor.to(to_complex) if tensor.is_complex() else tensor.to(dtype) if tensor.is_floating_point() else tensor)


def dimensions(rng):
    size = rng.randint(5, 9)
    chosen = {"F": rng.randint(3, 8), "K": rng.randint(3, 6), "C": rng.randint(1, 3), "H": size, "W": rng.choice([size, 6]), "V": rng.randint(9, 19),
              "L": rng.randint(5, 9)}
    chosen["T"] = rng.choice([t for t in range(3, 9) if t not in (chosen["K"], chosen["V"])])
    return chosen


def make_inputs(kind, samples, d, generator):
    def normal(*shape):
        return torch.randn(samples, *shape, generator=generator, dtype=torch.float64)

    if kind == "vector":
        return {"x": normal(d["F"])}
    if kind == "image":
        return {"x": normal(d["C"], d["H"], d["W"])}
    if kind == "signal":
        return {"x": normal(d["C"], d["L"])}
    if kind == "series":
        return {"x": normal(d["T"], d["F"])}
    words = torch.randint(1, d["V"], (samples, d["T"]), generator=generator)
    return {"x": words.int()} if kind == "tokens" else {"x": words, "counts": normal(d["T"])}


def make_target(family, samples, inputs, d, generator):
    def classes(*shape, count=d["K"]):
        return torch.randint(0, count, (samples, *shape), generator=generator)

    if family.out in ("classes", "own"):
        return classes()
    if family.out in ("tokens", "second"):
        return classes(d["T"])
    if family.out in ("words", "own_tokens"):
        return classes(d["T"], count=d["V"])
    if family.out == "pixels":
        return classes(d["H"], d["W"])
    shape = {"values": (d["K"],), "column": (), "series_values": (d["T"], 2)}[family.out]
    return torch.randn(samples, *shape, generator=generator, dtype=torch.float64)


def make_data(rng, family, samples, d, facts):
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    data = make_inputs(family.data, samples, d, generator)
    data["y"] = make_target(family, samples, data, d, generator)
    labels = data["y"]
    if not labels.is_floating_point() and facts["ignored"]:
        labels[torch.rand(labels.shape, generator=generator) < 0.2] = facts["ignore_index"]
    if facts["lengths"]:
        lengths = torch.randint(1, d["T"] + 1, (samples,), generator=generator)
        inside = torch.arange(d["T"]) < lengths.unsqueeze(1)
        data["lengths"] = lengths
        for name in ("x", "counts"):
            if name in data:
                outside = ~inside.reshape(inside.shape + (1,) * (data[name].dim() - 2))
                data[name] = data[name].masked_fill(outside, 0)
        if labels.dim() > 1:
            outside = ~inside.reshape(inside.shape + (1,) * (labels.dim() - 2))
            data["y"] = labels.masked_fill(outside, 0.0 if labels.is_floating_point() else facts["ignore_index"])
    if not labels.is_floating_point():
        data["y"].view(samples, -1)[0, 0] = d["V"] - 1 if family.out in ("words", "own_tokens") else d["K"] - 1  # every class is known from either file
    if facts["weights"]:
        data["w"] = torch.rand(data["y"].shape, generator=generator, dtype=torch.float64) + 0.05
        if rng.random() < 0.3:
            data["w"][torch.rand(data["w"].shape, generator=generator) < 0.1] = 0.0
    return data


def draw_loss(rng, family, d):
    """The [loss] section, and what it means for the data."""
    facts = {"ignored": False, "ignore_index": -100, "lengths": False, "weights": family.weighted}
    facts["lengths"] = family.padding and rng.random() < 0.6
    if family.out in ("own", "own_tokens"):
        facts["ignored"] = family.out == "own_tokens" and rng.random() < 0.5
        return {"kind": "model"}, facts
    section = {}
    facts["weights"] = rng.random() < 0.25
    if family.out in ("values", "column", "series_values"):
        section["kind"] = "mse"
    else:
        if rng.random() < 0.35:
            section["label_smoothing"] = rng.choice([0.1, 0.3])
        if rng.random() < 0.25:
            section["class_weights"] = [round(rng.uniform(0.2, 2.0), 3) for _ in range(d["V"] if family.out == "words" else d["K"])]
        facts["ignored"] = rng.random() < 0.35
        if facts["ignored"] and rng.random() < 0.4:
            facts["ignore_index"] = section["ignore_index"] = rng.choice([-1, 0, 255])
        if (facts["lengths"] or facts["ignored"]) and rng.random() < 0.3 and "class_weights" not in section and not facts["weights"]:
            section["normalize_by"] = "samples"
    return section, facts


def draw_optimizer(rng, model, precision):
    kind = rng.choice(["sgd", "sgd", "adam", "adamw"])
    section = {"kind": kind, "lr": rng.choice([0.02, 0.05, 0.1]) if kind == "sgd" else rng.choice([0.003, 0.01])}
    if kind == "sgd" and rng.random() < 0.6:
        section["momentum"] = rng.choice([0.5, 0.9])
        section["nesterov"] = rng.random() < 0.5
    if kind != "sgd":
        section["eps"] = rng.choice([1e-8, 1e-3, 1e-2])
        if rng.random() < 0.4:
            section["betas"] = [rng.choice([0.8, 0.9]), rng.choice([0.95, 0.999])]
    if rng.random() < 0.5:
        section["weight_decay"] = rng.choice([0.01, 0.1])
    clip = rng.random()
    if clip < 0.25:
        section["max_grad_norm"] = rng.choice([0.05, 0.5, 5.0])
    elif clip < 0.4:
        section["max_grad_value"] = rng.choice([0.01, 0.1])
    biases = [name for name, parameter in model.named_parameters() if name.endswith(".bias") and parameter.requires_grad]
    if biases and rng.random() < 0.3:
        group = {"match": rng.choice(["*.bias", biases[0]])}
        group.update({"weight_decay": 0.0} if rng.random() < 0.5 else {"lr": section["lr"] * 0.3, "weight_decay": 0.05})
        section["groups"] = [group]
    return section


def draw_schedule(rng):
    kind = rng.choice(["constant", "constant", "linear", "cosine", "step"])
    section = {"kind": kind}
    if rng.random() < 0.3:
        section["warmup_steps"] = rng.randint(1, 3)
    if kind in ("linear", "cosine"):
        section["final_lr_fraction"] = rng.choice([0.0, 0.1])
    if kind == "step":
        section.update(step_size=rng.randint(1, 3), gamma=0.5)
    return section


def draw_plan(rng, case_facts, family, ranks):
    """[batch] and [simulate]: uneven lists, simulated devices, ranks without work."""
    most = max(case_facts["batch"], 1)
    least = family.least if case_facts["batch_norm"] in ("local",) else 1
    batch, simulate = {"global_batch_size": case_facts["batch"]}, {}
    kind = rng.random()
    if case_facts["bitwise"] or kind < 0.35:
        batch["micro_batch_size"] = max(least, rng.randint(1, max(1, most // rng.choice([1, 2, 4]))))
    elif kind < 0.9:
        batch["micro_batch_size"] = [max(least, rng.randint(1, max(1, most // rng.choice([1, 2, 3])))) for _ in range(ranks)]
    if family.hungry:
        batch.pop("micro_batch_size", None)
        simulate["devices"] = [{"memory": rng.choice(["48MiB", "64MiB"]), "slowdown": 1.0} for _ in range(ranks)]
    elif rng.random() < 0.6:
        factors = [rng.choice([1.0, 1.0, 1.5, 2.5, 30.0 if rng.random() < 0.3 else 1.2]) for _ in range(ranks)]
        simulate["devices"] = [{"slowdown": factor} for factor in factors]
    if rng.random() < 0.2:
        batch["last_batch"] = "drop"
    if case_facts["batch_norm"] in ("local", "sync"):
        batch["replan"] = "never"
    return batch, simulate


def section_text(name, values):
    lines = [f"[{name}]"]
    tables = []
    for key, value in values.items():
        if key == "groups":
            tables = [[f"[[{name}.groups]]"] + [f"{k} = {json.dumps(v)}" for k, v in group.items()] for group in value]
        elif key == "devices":
            lines.append("devices = [" + ", ".join("{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in device.items()) + "}" for device in value) + "]")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines + [line for table in tables for line in table])


def configuration_text(sections):
    return "\n".join(section_text(name, values) for name, values in sections.items()) + "\n"


def draw_model(rng, family, d, precision):
    torch.manual_seed(rng.randrange(2**31))
    model = cast(family.make(rng, d), torch.float64 if precision == "float64" else torch.float32)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                if part.running_mean is not None:
                    part.running_mean.uniform_(-0.2, 0.2)
                    part.running_var.uniform_(0.5, 1.5)
                if part.affine:
                    part.weight.uniform_(0.5, 1.5)
                    part.bias.uniform_(-0.2, 0.2)
    return model


def draw_batch_norm(rng, family, ranks):
    if not family.batch_norm:
        return ""
    return rng.choice(["exact", "frozen"] if family.random else ["exact", "exact", "exact", "frozen", "local", "sync"])


def draw_sections(rng, family, d, precision, facts, drawn, model):
    """The configuration, but for what depends on a resume and on the devices."""
    sections = {
        "run": {"max_steps": drawn["steps"], "seed": rng.randint(1, 1000)}, "batch": drawn["batch"], "data": drawn["data"], "data.validation": {"path": "validation.safetensors"},
        "model": {"kind": "torchscript", "path": "model.pt"}, "loss": drawn["loss"], "optimizer": draw_optimizer(rng, model, precision), "schedule": draw_schedule(rng),
        "precision": {"compute": precision, "parameters": "float64" if precision == "float64" else "float32"}, "probe": {"cache": False, "steps_per_trial": 1},
        "checkpoint": {"keep": 0}, "log": {"samples": True}, "comm": {}, "memory": {},
    }
    if family.builtin:
        sections["model"] = {"kind": family.builtin, "weights": "start.safetensors", "num_classes": d["K"]}
        sections["model"].update({"hidden": model.hidden} if family.builtin == "mlp" else {"depth": 8, "stem": "cifar"})
    if precision == "float16":
        sections["precision"]["loss_scale"] = rng.choice(["dynamic", 128.0, 1024.0])
    if facts["batch_norm"]:
        sections["batch_norm"] = {"frozen": True} if facts["batch_norm"] == "frozen" else {"mode": facts["batch_norm"]}
    if facts["batch_norm"] in ("local", "sync") and rng.random() < 0.7:
        sections["batch_norm"]["min_micro_batch_size"] = rng.choice([1, 2])
    if facts["bitwise"]:
        sections["run"]["deterministic"] = "bitwise"
    elif rng.random() < 0.1:
        sections["run"]["deterministic"] = True
    if rng.random() < 0.15 and facts["batch_norm"] not in ("exact", "sync"):
        sections["memory"]["recompute"] = rng.choice(["auto", 2, 3])
    if rng.random() < 0.4:
        sections["comm"].update(bucket_cap_mb=rng.choice([0.0002, 0.001, 1.0]), overlap=rng.choice([True, False]))
    if rng.random() < 0.3:
        sections["comm"]["check_replicas_every_steps"] = 1
    return sections


def families(only, name):
    """Those that were asked for, in an order in which any few of them are of many kinds."""
    names = [known for known in FAMILIES if (name is None or known == name) and (only is None or only in known)]
    random.Random(0).shuffle(names)
    return names


def draw_case(seed, number, precision=None, only=None, name=None):
    """The draw depends on seed, number and family alone, not on which other families there are."""
    names = families(only, name)
    family = FAMILIES[names[number % len(names)]]
    rng = random.Random(f"onebatch {seed} {number}")
    precision_drawn = rng.choices(["float64", "float32", "bfloat16", "float16"], [0.6, 0.25, 0.1, 0.05])[0]
    precision = precision or precision_drawn
    if precision not in family.precisions:
        precision = "float64"
    d = dimensions(rng)
    ranks = rng.choices([1, 2, 3, 4], [0.4, 0.35, 0.12, 0.13])[0]
    facts = {"batch": rng.choices([rng.randint(1, 6), rng.randint(7, 40)], [0.15, 0.85])[0], "batch_norm": draw_batch_norm(rng, family, ranks)}
    if facts["batch_norm"]:
        facts["batch"] = max(facts["batch"], 4 * ranks + 4)
    facts["bitwise"] = rng.random() < 0.1 and not family.hungry and facts["batch_norm"] not in ("local", "sync")
    loss, loss_facts = draw_loss(rng, family, d)
    model = draw_model(rng, family, d, precision)
    way = rng.choice(family.ways)
    steps = rng.randint(2, 5)
    samples = max(2, int(facts["batch"] * rng.uniform(1.0, 3.5)))
    if facts["batch_norm"] in ("local", "sync"):
        samples = facts["batch"] * rng.randint(1, 3)  # no short batch, of which one micro-batch might hold one sample
    train = make_data(rng, family, samples, d, loss_facts)
    validation = make_data(rng, family, rng.randint(3, 30), d, loss_facts)
    batch, simulate = draw_plan(rng, facts, family, ranks)
    data = {"kind": "safetensors", "path": "train.safetensors", "inputs": [name for name in ("x", "counts") if name in train]}
    if loss_facts["weights"]:
        data["weights"] = "w"
    if loss_facts["lengths"]:
        data["lengths"] = "lengths"
    sections = draw_sections(rng, family, d, precision, facts, {"batch": batch, "data": data, "loss": loss, "steps": steps}, model)
    resumed = rng.random() < 0.15 and not family.hungry and facts["batch_norm"] != "local"
    resume_step = rng.randint(1, steps - 1)
    resume_ranks = rng.choice([1, 2, 3, 4])
    if resumed:
        sections["checkpoint"]["every_steps"] = resume_step
        if isinstance(batch.get("micro_batch_size"), list):
            batch["micro_batch_size"] = batch["micro_batch_size"][0]
        simulate.pop("devices", None)
    if simulate:
        sections["simulate"] = simulate
    start = {}
    writable = not any(tensor.dtype in (torch.bool, torch.complex128) for tensor in model.state_dict().values())
    if rng.random() < 0.15 and family.builtin == "" and writable:
        start = {name: parameter for name, parameter in model.named_parameters(remove_duplicate=False)}
    return Case(seed, number, family, way, model, train, validation, sections, ranks, precision, facts["batch_norm"],
                resume_ranks if resumed else 0, resume_step, start)
