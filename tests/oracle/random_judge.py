"""Judges one run: what the program left against what PyTorch computes, within the error that the problem itself has."""
import collections
import copy
import dataclasses
import math

import torch

from random_cases import TYPES
from random_program import Stopped, checkpoint_of, read_json, read_lines
from random_reference import Outcome, Reference, ROUNDED_OTHERWISE, perturbed

FLOAT64_TARGET = 1e-12
TOO_ILL = 1e-2  # a quantity that the large batch's own rounding moves by this part of itself says nothing
VARIANTS = 5
SPOILT = {"float64": 1e-9, "float32": 1e-2, "bfloat16": 0.5, "float16": 0.5}


@dataclasses.dataclass
class Verdict:
    kind: str
    words: str
    error: float = None  # float64: relative L2 of what was added to the weights
    ratio: float = None  # other types: that error against float64, over the one batch's own
    case: str = ""
    family: str = ""
    facts: str = ""
    precision: str = ""
    honest: bool = True
    noticed: float = None  # the least part by which a result spoilt on purpose is found to be wrong
    verify: str = ""  # what the program's own verify says of it


def quantities(outcome, start):
    """Everything that is compared, by kind and name: the tensor, the norm that errors are relative to, and what rounding an update costs besides."""
    result = {}
    for name, values in (("loss", outcome.losses), ("gradient norm", outcome.norms)):
        for step, value in enumerate(values):
            result[f"{name} of step {step + 1}"] = (torch.tensor(value, dtype=torch.float64), abs(value), abs(value))
    for name, value in (("validation loss", outcome.validation_loss),):
        if value is not None:
            result[name] = (torch.tensor(value, dtype=torch.float64), abs(value), abs(value))
    for name, tensor in outcome.state.items():
        if name in start and (tensor.is_floating_point() or tensor.is_complex()):
            wide = widened(tensor)
            change = wide - widened(start[name])
            if torch.isfinite(change.abs()).all():
                result[f"weights or buffer {name}"] = (change, change.norm().item(), wide.norm().item())
    for name, moments in outcome.moments.items():
        for kind, tensor in moments.items():
            if tensor is not None and kind != "step":
                wide = widened(tensor)
                result[f"{kind} of {name}"] = (wide, wide.norm().item(), 0.0)
    return result


def widened(tensor):
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def distance(one, other):
    return (one - other).norm().item() if one.numel() else 0.0


def from_program(case, folder, document, outcome_of_reference):
    """What the program left, as an outcome."""
    state, optimizer = checkpoint_of(folder)
    lines, result = read_lines(folder / "metrics.jsonl"), read_json(document)
    losses = [0.0 if line["loss"] is None and line["skipped"] else line["loss"] for line in lines]  # nothing counts in it: none, and the reference's is 0
    outcome = Outcome(losses, [line["grad_norm"] for line in lines], [line["lr"] for line in lines], True, state)
    outcome.trained = outcome_of_reference.trained
    for name, moments in outcome_of_reference.moments.items():
        outcome.moments[name] = {kind: optimizer.get(f"{kind}.{name}") for kind in moments if kind != "step"}
    outcome.validation_loss, outcome.validation_accuracy = result["validation_loss"], result["validation_accuracy"]
    return outcome, lines, result


def check_samples(case, batches):
    """Every epoch is a permutation, cut into batches, of which the last is short or dropped."""
    size, samples = case.sections["batch"]["global_batch_size"], len(case.train["y"])
    dropped = case.sections["batch"].get("last_batch") == "drop"
    of_epoch = samples // size if dropped else math.ceil(samples / size)
    for first in range(0, len(batches), of_epoch):
        epoch = batches[first:first + of_epoch]
        seen = [index for batch in epoch for index in batch]
        expected = [min(size, samples - i * size) for i in range(len(epoch))]
        if len(set(seen)) != len(seen) or [len(batch) for batch in epoch] != expected or not all(0 <= index < samples for index in seen):
            raise Stopped("WRONG", f"the samples of an epoch are not a permutation in batches of {expected}: {epoch}")


def rows_of_plan(plan):
    """For every rank its micro-batches, as ranges of the batch."""
    ranks, start = [], 0
    for rank in plan["ranks"]:
        parts = []
        for size, count in rank["micro_batches"]:
            for _ in range(count):
                parts.append(torch.arange(start, start + size))
                start += size
        ranks.append(parts)
    return ranks


def groups_of_steps(folder, batches, shared):
    """Which samples of each step are together: in a micro-batch ("local"), or in the micro-batches of all ranks that run at once ("sync")."""
    plan, groups = read_json(folder / "plan.json"), []
    for batch in batches:
        fitting = plan if plan["global_batch_size"] == len(batch) else plan["last_batch"]
        if fitting is None or fitting["global_batch_size"] != len(batch):
            raise Stopped("not judged", "the plan of the short batch is not in plan.json")
        ranks = rows_of_plan(fitting)
        if shared == "local":
            groups.append([(owner, rows) for owner, parts in enumerate(ranks) for rows in parts])
        else:
            together = [[parts[i] for parts in ranks if i < len(parts)] for i in range(max(len(parts) for parts in ranks))]
            groups.append([(0, torch.cat(parts)) for parts in together])
    return groups


def computed(case, compute, variant, batches, groups, lines, dropout=True):
    torch.manual_seed(case.number)  # noise that a model draws itself is the same in every variant
    reference = Reference(case, compute, variant, dropout)
    scales = [line.get("loss_scale") or 1.0 for line in lines]
    try:
        outcome = reference.train(batches, groups, scales, [line["skipped"] for line in lines])
    except (RuntimeError, ValueError, IndexError) as error:
        raise Stopped("not judged", f"PyTorch itself refuses: {str(error).splitlines()[-1][:200]}") from error
    if not outcome.finite:
        raise Stopped("not judged", "PyTorch's own numbers are not finite")
    return reference, outcome


def check_exact_things(case, ours, reference, start):
    """Names, types, rates and whatever training must not change: equal, not nearly."""
    passing = {name for name, _ in case.model.named_buffers()} - set(start)  # not persistent, which TorchScript's files do not say
    if set(ours.state) - passing != set(start):
        raise Stopped("WRONG", f"the checkpoint's names differ from the model's state_dict: {sorted(set(ours.state) ^ set(start))[:6]}")
    copy.deepcopy(case.model).load_state_dict({name: tensor for name, tensor in ours.state.items() if name in start}, strict=True)
    for step, (rate, expected) in enumerate(zip(ours.rates, reference.rates)):
        if abs(rate - expected) > 1e-12 * case.sections["optimizer"]["lr"]:
            raise Stopped("WRONG", f"rate of step {step + 1} is {rate}, not {expected}")
    for name, tensor in ((name, tensor) for name, tensor in reference.state.items() if name in start):
        exact = not tensor.is_floating_point() and not tensor.is_complex()
        if exact and case.batch_norm in ("local",):
            continue
        if exact and (ours.state[name].dtype != tensor.dtype or not torch.equal(ours.state[name], tensor)):
            raise Stopped("WRONG", f"buffer {name} is {ours.state[name].flatten()[:4].tolist()} of {ours.state[name].dtype}, not {tensor.flatten()[:4].tolist()} of {tensor.dtype}")
        if tensor.shape != ours.state[name].shape:
            raise Stopped("WRONG", f"{name} is of shape {list(ours.state[name].shape)}, not {list(tensor.shape)}")
        if tensor.is_complex() != ours.state[name].is_complex():
            raise Stopped("WRONG", f"{name} is {ours.state[name].dtype}, not {tensor.dtype}")
        before = start[name].to(tensor.dtype)
        if not exact and name not in reference.trained and torch.equal(tensor, before) and not torch.equal(ours.state[name].to(tensor.dtype), before):
            raise Stopped("WRONG", f"{name} should not have changed, and did, by {distance(widened(ours.state[name]), widened(before)):.2e}")


def rough(case):
    """A part of itself by which a quantity may be off where all variants round alike."""
    if case.precision == "float64":
        return FLOAT64_TARGET
    return 0.25 * torch.finfo(TYPES[case.precision]).eps if case.precision in ("bfloat16", "float16") else 0.0


def check_local_buffers(case, ours, truth, variants):
    """Running statistics of local BatchNorm are an average over ranks: between the least and the largest of theirs, but for what rounding moves
    those in one batch."""
    for name in truth.of_ranks[0] if truth.of_ranks else []:
        of_ranks = lambda outcome: torch.stack([widened(buffers[name]) for buffers in outcome.of_ranks])
        values = of_ranks(truth)
        own = max(distance(of_ranks(variant), values) for variant in variants)
        low, high, here = values.amin(0), values.amax(0), widened(ours.state[name])
        error = torch.maximum(low - here, here - high).clamp(min=0).norm().item()
        bound = 10 * own + (rough(case) + 4 * torch.finfo(case.parameters_type).eps) * values.abs().amax(0).norm().item()
        if not error <= bound:
            raise Stopped("WRONG", f"local statistics: {name} lies {error:.2e} outside of what the ranks have, where at most {bound:.2e} is the problem's own")


def compare(case, ours, reference, start):
    """reference: (the truth, variants that show the large batch's own error). Returns the total error and ratio, or stops."""
    truth, variants = reference
    low = case.precision != "float64"
    eps = torch.finfo(case.parameters_type).eps
    values, expected = quantities(ours, start), quantities(truth, start)
    own_values = [quantities(variant, start) for variant in variants]
    total = {"error": 0.0, "own": 0.0, "norm": 0.0}
    worst, judged = (0.0, "", 0.0, 0.0), 0
    kinds = collections.defaultdict(float)  # a gradient that is 0 but for rounding is measured by the others of its kind
    for name, (_, norm, _) in expected.items():
        kinds[name.split(" of ")[0].split("buffer ")[0]] += norm**2
    for name, (tensor, norm, size) in expected.items():
        if name not in values or values[name][0].shape != tensor.shape:
            raise Stopped("WRONG", f"{name}: missing, not finite or of another shape")
        error = distance(values[name][0], tensor)
        own = max(distance(variant[name][0], tensor) if name in variant else math.inf for variant in own_values)
        if own > TOO_ILL * norm and not low:
            continue
        judged += name.startswith("weights")
        of_kind = math.sqrt(kinds[name.split(" of ")[0].split("buffer ")[0]])
        floor = rough(case) * norm + (eps if low else FLOAT64_TARGET) * of_kind + 4 * eps * size
        bound = 10 * own + floor
        if not error <= bound and not (norm == 0 and error == 0):
            if worst[0] < error / max(bound, 1e-300) or math.isnan(error):
                worst = (error / max(bound, 1e-300), name, error / max(norm, 1e-300), bound / max(norm, 1e-300))
        if name.startswith("weights"):
            total["error"] += error**2
            total["own"] += own**2
            total["norm"] += norm**2
    relative = math.sqrt(total["error"] / max(total["norm"], 1e-300))
    ratio = math.sqrt(total["error"] / max(total["own"], 1e-300))
    if worst[1]:
        raise Stopped("WRONG", f"{worst[1]} is off by {worst[2]:.2e} of itself, where at most {worst[3]:.2e} is the problem's own; all weights by {relative:.2e}, "
                      f"{ratio:.1f} times one batch's own error")
    if not judged:
        raise Stopped("not judged", "what one batch adds to the weights is its own rounding")
    if ours.validation_accuracy is not None and truth.validation_accuracy and not low and case.family.judge_validation:
        if abs(ours.validation_accuracy - truth.validation_accuracy) > 1e-12:
            raise Stopped("WRONG", f"validation accuracy is {ours.validation_accuracy}, not {truth.validation_accuracy}")
    return relative, ratio


def references(case, groups, batches, lines, state=None, parts=None):
    """The truth in float64 and the variants in the run's own precision, each with its validation. `parts`: the plan's micro-batches, where PyTorch
    is asked what they round too."""
    dropout = not case.family.random
    outcomes = []
    wanted = [("float64", 0)] + [(case.precision, variant) for variant in (range(1, ROUNDED_OTHERWISE + 1) if case.precision == "float64" else range(VARIANTS))]
    wanted = [(compute, variant, groups) for compute, variant in wanted] + ([(case.precision, variant, parts) for variant in (0, 1)] if parts else [])
    for compute, variant, together in wanted:
        if case.family.random == "unkeyed" and variant > 1:
            continue
        reference, outcome = computed(case, compute, variant, batches, together, lines, dropout)
        if state is not None and outcome.of_ranks:
            with torch.no_grad():
                reference.load_buffers({name: state[name] for name, _ in reference.model.named_buffers(remove_duplicate=False)})
        if case.family.judge_validation:
            reference.validate(outcome)
        else:
            outcome.validation_loss = None
        outcomes.append(outcome)
    return outcomes[0], outcomes[1:]


def tail(outcome, first):
    """Of a run that began at a later step."""
    return dataclasses.replace(outcome, losses=outcome.losses[first:], norms=outcome.norms[first:], rates=outcome.rates[first:])


def without_local(outcome):
    """Buffers that are an average over ranks have been checked by themselves."""
    names = set(outcome.of_ranks[0]) if outcome.of_ranks else set()
    return dataclasses.replace(outcome, state={name: tensor for name, tensor in outcome.state.items() if name not in names})


def judge_folder(case, folder, document, start, reference, first=0):
    ours, lines, result = from_program(case, folder, document, reference[0])
    truth = (tail(reference[0], first), [tail(variant, first) for variant in reference[1]])
    if first:
        ours = dataclasses.replace(ours, losses=ours.losses[-len(truth[0].losses):], norms=ours.norms[-len(truth[0].losses):], rates=ours.rates[-len(truth[0].losses):])
    check_exact_things(case, ours, truth[0], start)
    if reference[0].of_ranks:
        check_local_buffers(case, ours, *reference)
    if not case.family.judge_validation:
        ours.validation_loss = None
    stripped = (without_local(truth[0]), [without_local(variant) for variant in truth[1]])
    kept = dataclasses.replace(ours, state={name: tensor for name, tensor in ours.state.items() if name in stripped[0].state})
    return compare(case, kept, stripped, start)


def changes_from(options):
    changes = {}
    for text in options.set:
        key, value = text.split("=", 1)
        section, name = key.rsplit(".", 1)
        changes.setdefault(section, {})[name] = {"true": True, "false": False}.get(value, int(value) if value.lstrip("-").isdigit() else value)
    return changes


def judge(case, program, options):
    changes = changes_from(options)
    start = {name: tensor.detach().clone() for name, tensor in case.model.state_dict().items()}
    try:
        program.write(case, scrambled(case))
    except RuntimeError as error:
        raise Stopped("not judged", f"PyTorch does not save it: {str(error).splitlines()[0][:200]}") from error
    # What may only be said, and not refused, is refused where it is to be.
    strict = ["--strict"] if case.family.random == "unkeyed" or not case.family.honest else []
    folder = program.run(case, "run", case.ranks, changes, strict)
    lines, batches = read_lines(folder / "metrics.jsonl"), [line["indices"] for line in read_lines(folder / "samples.jsonl")]
    if len(lines) != case.sections["run"]["max_steps"] or len(batches) != len(lines):
        raise Stopped("WRONG", f"{len(lines)} steps in metrics.jsonl and {len(batches)} in samples.jsonl, not {case.sections['run']['max_steps']}")
    check_samples(case, batches)
    if case.batch_norm in ("local", "sync") and any(line["plan"] for line in lines):
        raise Stopped("not judged", "the plan has changed, and local statistics with it")
    groups = groups_of_steps(folder, batches, case.batch_norm) if case.batch_norm in ("local", "sync") else None
    # Under autocast each micro-batch's gradient is rounded to 16 bits, also where those of the samples cancel each other.
    parts = groups_of_steps(folder, batches, "local") if case.precision in ("bfloat16", "float16") and case.batch_norm in ("", "frozen") else None
    reference = references(case, groups, batches, lines, checkpoint_of(folder)[0] if case.batch_norm == "local" else None, parts)
    if case.family.random:
        reference = judge_base(case, program, changes, strict, reference)
    error, ratio = judge_folder(case, folder, program.folder / "run.json", start, reference)
    if case.resume_ranks:
        path = folder / "checkpoints" / f"step-{case.resume_step}"
        again = program.run(case, "again", case.resume_ranks, {**changes, "checkpoint": {**changes.get("checkpoint", {}), "resume": str(path)}}, strict)
        if groups is not None and not case.family.random:  # other ranks have a plan of their own, and with it other groups
            groups = groups[: case.resume_step] + groups_of_steps(again, batches, case.batch_norm)[case.resume_step :]
            state = checkpoint_of(again)[0] if case.batch_norm == "local" else None
            judge_folder(case, again, program.folder / "again.json", start, references(case, groups, batches, lines, state, parts), case.resume_step)
        else:
            judge_folder(case, again, program.folder / "again.json", start, reference, case.resume_step)
    low = case.precision != "float64"
    return Verdict("equal", "", None if low else error, ratio if low else None, noticed=notices(case, folder, program.folder / "run.json", start, reference))


def notices(case, folder, document, start, reference):
    """Spoils what training added to the weights by a part of itself, SPOILT at first and ten times as much each time, and judges again: a test that
    cannot fail proves nothing. Returns the least part that is found to be wrong; inf where none is, which a judge that cannot fail would say."""
    ours, _, _ = from_program(case, folder, document, reference[0])
    if not case.family.judge_validation:
        ours.validation_loss = None
    truth, variants = without_local(reference[0]), [without_local(variant) for variant in reference[1]]
    for power in range(12):
        spoilt = SPOILT[case.precision] * 10**power
        state = {name: start[name] + (tensor - start[name]) * (1 + spoilt) if name in reference[0].trained else tensor for name, tensor in ours.state.items() if name in truth.state}
        try:
            compare(case, dataclasses.replace(ours, state=state), (truth, variants), start)
        except Stopped as stopped:
            if stopped.kind == "WRONG":
                return spoilt
    return math.inf


def judge_base(case, program, changes, strict, reference):
    """What is drawn by sample is the same in one micro-batch on one rank; its error is that of the model without what is drawn."""
    base = {"batch": {"micro_batch_size": case.sections["batch"]["global_batch_size"]}, "simulate": {"devices": None}, "comm": {"overlap": None},
            "memory": {"recompute": None}, "run": {"deterministic": None}}
    folder = program.run(case, "base", 1, {**changes, **base}, strict)
    truth, lines, _ = from_program(case, folder, program.folder / "base.json", reference[0])
    own = []
    for variant in reference[1]:
        moved = dataclasses.replace(truth, moments={}, state={}, losses=list(truth.losses), norms=list(truth.norms))
        for name, tensor in truth.state.items():
            moved.state[name] = tensor + (variant.state[name] - reference[0].state[name]).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, moments in truth.moments.items():
            moved.moments[name] = {kind: tensor + (variant.moments[name][kind] - reference[0].moments[name][kind]).to(tensor.dtype) for kind, tensor in moments.items()}
        for values, theirs, wholes in ((moved.losses, variant.losses, reference[0].losses), (moved.norms, variant.norms, reference[0].norms)):
            for i, value in enumerate(theirs):
                values[i] += value - wholes[i]
        if case.family.judge_validation:
            moved.validation_loss = truth.validation_loss + variant.validation_loss - reference[0].validation_loss
        own.append(moved)
    return truth, own


def scrambled(case):
    """The model as it is written: the case's own, or one of other weights where the run starts from a file of weights."""
    if not case.start:
        return case.model
    model = copy.deepcopy(case.model)
    generator = torch.Generator().manual_seed(case.number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(perturbed(parameter * 0.5, parameter.dtype, generator))
    return model
