"""The same training in plain PyTorch: whole batches in one forward, or, for BatchNorm whose statistics are a micro-batch's, the plan's groups."""
import contextlib
import copy
import dataclasses
import fnmatch
import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from random_cases import TYPES, cast


ROUNDED_OTHERWISE = 5  # the variant, in float64 alone


@dataclasses.dataclass
class Outcome:
    losses: list = dataclasses.field(default_factory=list)
    norms: list = dataclasses.field(default_factory=list)
    rates: list = dataclasses.field(default_factory=list)
    finite: bool = True
    state: dict = dataclasses.field(default_factory=dict)  # parameters and buffers at the end
    moments: dict = dataclasses.field(default_factory=dict)  # name -> optimizer state
    trained: set = dataclasses.field(default_factory=set)  # names that had a gradient
    of_ranks: list = dataclasses.field(default_factory=list)  # local BatchNorm: the buffers of every rank
    validation_loss: float = 0.0
    validation_accuracy: float = 0.0


def rate_factor(schedule, step, total):
    """Of optimizer step 0, 1, ...: a line up to 1 in the warm-up, then the schedule's shape, whose last step has the final fraction."""
    warmup = schedule.get("warmup_steps", 0)
    if step < warmup:
        return (step + 1) / warmup
    kind = schedule["kind"]
    if kind == "constant":
        return 1.0
    if kind == "step":
        return schedule["gamma"] ** ((step - warmup) // schedule["step_size"])
    progress = (step - warmup) / max(1, total - 1 - warmup)
    final = schedule["final_lr_fraction"]
    return final + (1 - final) * (1 - progress if kind == "linear" else (1 + math.cos(math.pi * progress)) / 2)


def perturbed(tensor, dtype, generator):
    """Each element moved by up to half a unit of the type's last place: what rounding alone may do to it."""
    noise = (torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5) * torch.finfo(dtype).eps
    return tensor * (1 + noise.to(tensor.real.dtype if tensor.is_complex() else tensor.dtype))


class RoundedOtherwise(TorchDispatchMode):
    """What every operator makes, forward and backward, is moved by up to half a unit of the last place."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        if any(result.alias_info for result in op._schema.returns):  # a view, or written in place
            return made
        return pytree.tree_map_only(torch.Tensor, self.moved, made)

    def moved(self, tensor):
        return perturbed(tensor, torch.float64, self.generator) if tensor.dtype in (torch.float64, torch.complex128) else tensor


class Reference:
    """compute: the type of the forward; variant 0 is the batch as it stands, others differ by what rounding and order may change."""

    def __init__(self, case, compute, variant=0, dropout=True):
        self.case, self.compute, self.variant = case, compute, variant
        self.kept = torch.float64 if compute == "float64" else torch.float32
        self.autocast = compute in ("bfloat16", "float16")
        self.generator = torch.Generator().manual_seed(case.number * 16 + variant)
        self.model = cast(copy.deepcopy(case.model), self.kept)
        if not dropout:
            self.without_dropout()
        self.parameters = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        if variant % 2 == 1:
            with torch.no_grad():
                for parameter in self.parameters.values():
                    parameter.copy_(perturbed(parameter, self.kept, self.generator))
        self.optimizer, self.base_rates = self.make_optimizer()
        self.train_data, self.validation_data = self.typed(case.train), self.typed(case.validation)
        self.of_ranks = None

    def without_dropout(self):
        for part in self.model.modules():
            for name in ("p", "dropout"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)

    def typed(self, data):
        """Numbers go through the type in which the program's parameters are, whatever this reference computes in."""
        result = {}
        for name, tensor in data.items():
            result[name] = tensor.to(self.case.parameters_type).to(self.kept) if tensor.is_floating_point() else tensor.long()
        if self.variant % 2 == 1:
            for name in ("x", "counts"):
                if name in result and result[name].is_floating_point():
                    result[name] = perturbed(result[name], self.kept, self.generator)
        return result

    def make_optimizer(self):
        section = self.case.sections["optimizer"]
        groups, taken = [], set()
        for group in section.get("groups", []):
            names = [name for name in self.parameters if name not in taken and fnmatch.fnmatchcase(name, group["match"])]
            taken.update(names)
            groups.append({"params": [self.parameters[name] for name in names], **{key: value for key, value in group.items() if key != "match"}})
        groups.append({"params": [parameter for name, parameter in self.parameters.items() if name not in taken]})
        groups = [group for group in groups if group["params"]]
        shared = {"lr": section["lr"], "weight_decay": section.get("weight_decay", 0.0)}
        if section["kind"] == "sgd":
            optimizer = torch.optim.SGD(groups, momentum=section.get("momentum", 0.0), nesterov=section.get("nesterov", False), **shared)
        else:
            make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[section["kind"]]
            optimizer = make(groups, betas=tuple(section.get("betas", (0.9, 0.999))), eps=section.get("eps", 1e-8), **shared)
        return optimizer, [group["lr"] for group in optimizer.param_groups]

    def training_mode(self):
        self.model.train()
        if self.case.batch_norm == "frozen":
            for part in self.model.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm) or getattr(part, "is_batch_norm", False):
                    part.eval()

    def sums(self, data, rows, padded_to=0):
        """The summed loss of these samples, padded to their longest or to that of the batch that they are of, and what it is to be divided by."""
        part = {name: tensor[rows] for name, tensor in data.items()}
        if "lengths" in part:
            longest, full = max(padded_to, int(part["lengths"].max())), part["x"].size(1)
            part = {name: tensor[:, :longest] if tensor.dim() > 1 and tensor.size(1) == full else tensor for name, tensor in part.items()}
        arguments = [part[name] for name in self.case.sections["data"]["inputs"]]
        own = self.case.sections["loss"].get("kind") == "model"
        if own:
            arguments += [part["y"]] + ([part["w"]] if "w" in part else [])
        with torch.autocast("cpu", TYPES[self.compute] if self.autocast else torch.bfloat16, enabled=self.autocast):
            outputs = self.model(*arguments)
        if own:
            return outputs[0], outputs[1].to(self.kept), None, part
        return *self.loss(outputs.to(self.kept), part["y"], part.get("w")), outputs, part

    def loss(self, outputs, target, weights):
        section = self.case.sections["loss"]
        if section.get("kind") == "mse":
            squares = (outputs.reshape(target.shape) - target) ** 2
            counts = torch.ones_like(squares) if weights is None else weights
            return (squares * counts).sum(), counts.sum()
        if self.case.family.out in ("tokens", "words"):
            outputs = outputs.transpose(1, 2)
        classes = torch.tensor(section["class_weights"], dtype=self.kept) if "class_weights" in section else None
        ignored = section.get("ignore_index", -100)
        each = functional.cross_entropy(outputs, target, weight=classes, ignore_index=ignored, reduction="none", label_smoothing=section.get("label_smoothing", 0.0))
        counts = (target != ignored).to(self.kept) * (1.0 if weights is None else weights)
        total = (each * counts).sum()
        if classes is not None:
            counts = counts * classes[target.clamp(0, len(classes) - 1)]
        if section.get("normalize_by") == "samples":
            return total, (target != ignored).flatten(1).any(1).sum().to(self.kept) if target.dim() > 1 else (target != ignored).sum().to(self.kept)
        return total, counts.sum()

    def gradient(self, groups, scale):
        """Leaves the mean loss's gradient in the parameters; returns the mean loss, or None where nothing counts."""
        self.optimizer.zero_grad(set_to_none=True)
        total, weight = 0.0, 0.0
        batch = torch.cat([rows for _, rows in groups])
        longest = int(self.train_data["lengths"][batch].max()) if "lengths" in self.train_data else 0
        for owner, rows in groups:
            if self.of_ranks is not None:
                self.load_buffers(self.of_ranks[owner])
            with RoundedOtherwise(self.generator) if self.variant == ROUNDED_OTHERWISE else contextlib.nullcontext():
                loss, count, _, _ = self.sums(self.train_data, rows, longest)
                (loss * (scale / self.divisor)).backward()
            total, weight = total + loss.detach().double(), weight + count.detach().double()
            if self.of_ranks is not None:
                self.of_ranks[owner] = self.buffers()
        if float(weight) == 0:
            return None
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                if parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
                parameter.grad.div_(weight.to(self.kept) * (scale / self.divisor))
        return float(total / weight)

    def buffers(self):
        return {name: buffer.clone() for name, buffer in self.model.named_buffers(remove_duplicate=False)}

    def load_buffers(self, values):
        for name, buffer in self.model.named_buffers(remove_duplicate=False):
            buffer.copy_(values[name])

    def train(self, batches, plans, scales, skipped):
        """batches: indices of every step; plans: for every step a list of (rank, rows of the batch) in order, or None for the whole."""
        outcome = Outcome()
        section, total = self.case.sections["optimizer"], self.case.sections["run"]["max_steps"]
        if plans is not None and self.case.batch_norm == "local":
            self.of_ranks = [self.buffers() for _ in range(self.case.ranks)]
        self.training_mode()
        for step, indices in enumerate(batches):
            rows = torch.tensor(indices)
            groups = [(0, self.ordered(rows))] if plans is None else [(owner, rows[part]) for owner, part in plans[step]]
            self.divisor = float(2 ** round(math.log2(max(1, len(indices)))))
            factor = rate_factor(self.case.sections["schedule"], step, total)
            for group, rate in zip(self.optimizer.param_groups, self.base_rates):
                group["lr"] = rate * factor
            loss = self.gradient(groups, scales[step])
            outcome.rates.append(section["lr"] * factor)
            with_gradient = [parameter for parameter in self.parameters.values() if parameter.grad is not None]
            norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in with_gradient]) if with_gradient else torch.zeros(())
            touched = {id(parameter) for parameter in with_gradient}
            outcome.trained |= {name for name, parameter in self.model.named_parameters(remove_duplicate=False) if id(parameter) in touched}
            outcome.losses.append(0.0 if loss is None else loss)
            outcome.norms.append(float(norm))
            if skipped[step] or loss is None:
                continue
            if not math.isfinite(outcome.losses[-1]) or not math.isfinite(outcome.norms[-1]):
                outcome.finite = False
                return outcome
            if "max_grad_norm" in section:
                torch.nn.utils.clip_grad_norm_(with_gradient, section["max_grad_norm"])
            if "max_grad_value" in section:
                torch.nn.utils.clip_grad_value_(with_gradient, section["max_grad_value"])
            self.optimizer.step()
        outcome.of_ranks = self.of_ranks or []
        outcome.state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        outcome.moments = {name: dict(self.optimizer.state.get(parameter, {})) for name, parameter in self.parameters.items()}
        return outcome

    def ordered(self, rows):
        if self.variant < 2 or self.case.family.ordered:
            return rows
        return rows[torch.randperm(len(rows), generator=self.generator)] if self.variant > 2 else rows.flip(0)

    def validate(self, outcome):
        self.model.eval()
        with torch.no_grad():
            rows = torch.arange(len(self.validation_data["y"]))
            loss, weight, outputs, part = self.sums(self.validation_data, rows)
        outcome.validation_loss = float(loss.double() / weight.double())
        if outputs is not None and not part["y"].is_floating_point():
            axis = -1 if self.case.family.out in ("classes", "tokens", "words") else 1
            counted = part["y"] != self.case.sections["loss"].get("ignore_index", -100)
            outcome.validation_accuracy = float((outputs.argmax(axis) == part["y"])[counted].double().mean())
        return outcome
