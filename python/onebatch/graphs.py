"""Graphs of an exported program: forward and backward in one, in the run's types and on its device, for any sizes that the program takes."""
import collections

import torch
from torch._inductor.decomposition import select_decomp_table
from torch.export.experimental import _copy_graph_module_and_signature, _remove_detach_pass
from torch.export.exported_program import _decompose_exported_program
from torch.utils import _pytree as pytree

from . import keyed
from .activations import memory_of
from .evaluating import EvaluatedProgram
from .indices import checked_indices
from .layouts import channels_last_backward
from .refusals import ExportError
from .shared_norms import DECOMPOSITIONS, in_order, without_counters

BITS_ON_A_GPU = 40  # of the product of all sizes that vary
ROWS_ON_A_GPU = 64  # that the compiler chooses blocks of threads for, where the program takes as many


def owner_of(program, name):
    path, _, last = name.rpartition(".")
    return program.get_submodule(path), last


def place_of_output(exported):
    """Of the program's outputs the one that the loss is taken of: what is called logits, else the first tensor."""
    signature, nodes = exported.graph_signature, {node.name: node for node in exported.graph.nodes}
    places = [place for place, name in enumerate(signature.user_outputs) if isinstance(name, str) and name in nodes]
    made = pytree.tree_unflatten(list(range(len(signature.user_outputs))), exported.call_spec.out_spec)
    logits = made.get("logits") if isinstance(made, dict) else None
    return logits if logits in places else places[0]


def passes_gradients(node):
    if node.target is torch.ops.aten.detach.default:
        return False
    return not ("set_grad_enabled" in str(node.target) and node.args[0] is False)


def makers_of_output(program, chosen):
    """The nodes that get a gradient from an output; those that write into its makers' memory too."""
    nodes = list(program.graph.nodes)
    found = {pytree.tree_leaves(nodes[-1].args[0])[chosen]}
    written = {memory_of(node) for node in found}
    for node in reversed(nodes[:-1]):
        writes = getattr(getattr(node.target, "_schema", None), "is_mutable", False) and memory_of(node) in written
        if (node in found or writes) and passes_gradients(node):
            found.update((node, *node.all_input_nodes))
            written.update(memory_of(given) for given in node.all_input_nodes)
    return found


def hold_still(program, chosen):
    """Parameters that are not trained, or that do not reach the output that is chosen, become buffers: every other one gets a gradient."""
    read = {node.target for node in makers_of_output(program, chosen) if node.op == "get_attr"}
    for name, parameter in list(program.named_parameters(remove_duplicate=False)):
        if parameter.requires_grad and name in read:
            continue
        module, last = owner_of(program, name)
        delattr(module, last)
        module.register_buffer(last, parameter.detach())


def refuse_without_loss(program, file):
    """What a program returns that has its loss in it: two numbers."""
    nodes = {node.name: node for node in program.graph.nodes}
    values = [nodes[name].meta["val"] for name in program.graph_signature.user_outputs if isinstance(name, str) and name in nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if len(tensors) != 2 or any(not isinstance(size, int) or size != 1 for tensor in tensors for size in tensor.shape):
        raise ExportError(f"{file} does not return its loss's sum and weight: write --loss cross_entropy or --loss mse, as the run's loss.kind is")


def check_classes(shape, loss):
    if len(shape) < 2 or len(shape) > 2 and loss["label_weights"] == "mixed":
        wanted = "[samples, classes] of mixed samples" if loss["label_weights"] == "mixed" else "a row of classes for each label"
        raise ExportError(f"the program returns {len(shape)} dimensions, and cross entropy takes {wanted}: export it with its loss, and write loss.kind = \"model\"")
    weights, classes = len(loss["class_weights"]), shape[1 if loss["class_dim"] == "second" else -1]
    if weights and classes != weights:
        raise ExportError(f"there are {weights} class weights, and the program returns {classes} classes: write one for each")


def sizes_of(shape, chosen):
    """As the program was exported; `chosen`: {symbol: size}."""
    return [int(chosen.get(size.node.expr, size.node.hint)) if isinstance(size, torch.SymInt) else int(size) for size in shape]


def example_of(node, after, device, chosen):
    """A tensor as the program was exported with."""
    value = node.meta["val"]
    return torch.zeros(sizes_of(value.shape, chosen), dtype=after if value.dtype.is_floating_point else value.dtype, device=device)


def type_of(program):
    """The floating type of most of the parameters' elements."""
    counts = collections.Counter()
    for parameter in program.parameters():
        if parameter.is_floating_point():
            counts[parameter.dtype] += parameter.numel()
    return counts.most_common(1)[0][0]


def constants_of(program):
    """{name: place} of the tensors that the code of the program holds, in the order of its inputs, as the trainer counts them."""
    names = [spec.target for spec in program.graph_signature.input_specs if spec.kind.name == "CONSTANT_TENSOR"]
    return {name: place for place, name in enumerate(names)}


def yields(own, other):
    return own.itemsize > 1 and other.itemsize > 1 and torch.promote_types(own, other) == other


def type_in_run(own, before, after):
    """Of a buffer or constant, as the trainer has it: the run's, but what is wider than the program's and the run's stays."""
    if not own.is_floating_point:
        return own
    return after if own == before or yields(own, before) or yields(own, after) else own


def in_run(module, constants, before, after, device):
    """On the device, parameters and BatchNorm's statistics in `after`; what else the program holds in type_in_run()."""
    calls = (node for node in module.graph.nodes if node.target is torch.ops.aten.batch_norm.default)
    statistics = {given.target for call in calls for given in call.args[3:5] if isinstance(given, torch.fx.Node)}
    for parameter in module.parameters():
        parameter.data = parameter.data.to(device, after if parameter.is_floating_point() else parameter.dtype)
    held = dict(module.named_buffers(remove_duplicate=False))
    for name in (*held, *(name for name in constants if name not in held)):
        part, last = owner_of(module, name)
        tensor = getattr(part, last)
        tensor = tensor.to(device, after if name in statistics and tensor.is_floating_point() else type_in_run(tensor.dtype, before, after))
        if name not in held:  # the compiler takes a constant for its own, and leaves its name out
            delattr(part, last)
            part.register_buffer(last, tensor)
        else:
            setattr(part, last, tensor)


class Sizes:
    """The program's own symbols as dimensions to export with: a name of its own for each.

    A GPU's code counts elements by 64 bits where the sizes' bounds say that 32 may not do, and by 32 where they say nothing, which products of wide ones come to."""

    def __init__(self, program, device):
        self.ranges, self.dims = program.range_constraints, {}
        symbols = {size.node.expr for node in inputs_of(program) for size in node.meta["val"].shape if isinstance(size, torch.SymInt) and size.node.expr.is_symbol}
        self.cap = 1 << (BITS_ON_A_GPU // max(2, len(symbols))) if device.type == "cuda" else None

    def of(self, symbol):
        if symbol not in self.dims:
            bounds = self.ranges.get(symbol)
            least, most = (int(bounds.lower), bounds.upper) if bounds is not None else (1, None)
            most = int(most) if most is not None and str(most).lstrip("-").isdigit() and int(most) < 2**31 else None
            if self.cap is not None:
                most = self.cap if most is None else min(most, self.cap)
            # Where nothing was asked the exporter writes 2, and 1 does as well.
            self.dims[symbol] = torch.export.Dim(f"d{len(self.dims)}", min=1 if least <= 2 else least, max=most)
        return self.dims[symbol]

    def shapes(self, node):
        found = {}
        for place, size in enumerate(node.meta["val"].shape):
            if not isinstance(size, torch.SymInt) or size.node.expr.is_number:
                continue
            if not size.node.expr.is_symbol:
                raise ExportError(f"the program takes a size that is computed of others ({size.node.expr}), which is not compiled yet")
            found[place] = self.of(size.node.expr)
        return found


def inputs_of(program):
    wanted = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]


def decomposed(exported, joint_loss_index=None):
    """Of the operators that the compiler wants: LibTorch's attention stays whole. With the index of a loss: its forward and its backward as one graph."""
    return _decompose_exported_program(exported, cia_to_decomp={}, python_decomp_table=dict(select_decomp_table()) | DECOMPOSITIONS, joint_loss_index=joint_loss_index, decompose_custom_triton_ops=False)


def forward_and_backward(exported):
    program = decomposed(exported, joint_loss_index=0)
    graph, signature = _copy_graph_module_and_signature(program)
    _remove_detach_pass(graph, signature)
    return program._update(graph, signature)


class InRun:
    """The program of a file as a run has it.

    types: of the parameters; of autocast, or None. `constants`: {name: place} of what is none of its parameters and buffers."""

    def __init__(self, file, types, loss, device):
        program = torch.export.load(str(file))
        self.after, self.autocast = types
        self.loss, self.device = loss, device
        nodes, sizes = inputs_of(program), Sizes(program, device)
        self.shapes = [sizes.shapes(node) for node in nodes]
        if 0 not in self.shapes[0]:
            raise ExportError(f"{file} takes one batch size alone: export it with dynamic_shapes, as onebatch.export does")
        self.module = program.module(check_guards=False)
        self.before = type_of(self.module)
        chosen_sizes = {}
        if device.type == "cuda":
            symbol, batch = nodes[0].meta["val"].shape[0].node.expr, self.shapes[0][0]
            chosen_sizes[symbol] = max(batch.min, min(ROWS_ON_A_GPU, batch.max))
        self.examples = [example_of(node, self.after, device, chosen_sizes) for node in nodes]
        self.own_inputs = len(self.examples)
        if loss is not None:
            target_shape, target_sizes = target_of(program, sizes, loss, chosen_sizes)
            for dtype in types_of_targets(loss, self.after):
                self.examples.append(torch.zeros(target_shape, dtype=dtype, device=device))
                self.shapes.append(target_sizes)
        self.constants = constants_of(program)
        in_run(self.module, self.constants, self.before, self.after, device)
        self.chosen = place_of_output(program)
        if loss is None:
            refuse_without_loss(program, file)
        hold_still(self.module, self.chosen)
        self.varying = [{place: dim.__name__ for place, dim in one.items()} for one in self.shapes]

    def training(self, shares_statistics=False):
        """Forward and backward as one graph of (samples, the step's key, a factor of the loss, a sum for the gradient of each parameter, the inputs and, with a loss, the targets);
        {parameter: the input that is its sum}."""
        loss = self.loss and function_of(self.loss, self.chosen, self.after)
        weights = class_weights_of(self.loss, self.after, self.device)
        whole = keyed.KeyedProgram(self.module, self.before, self.after, self.varying, self.autocast, loss, self.own_inputs, weights, shares_statistics)
        rows = self.examples[0].shape[0]
        factor, sums = torch.ones((), dtype=keyed.wide(self.after), device=self.device), [torch.empty_like(one) for one in whole.parameters()]
        given = (torch.arange(rows, device=self.device), torch.tensor(1, device=self.device), factor, sums, *self.examples)
        varying = {"samples": {0: self.shapes[0][0]}, "of_step": None, "factor": None, "sums": [None] * len(sums), "inputs": tuple(self.shapes)}
        graph = forward_and_backward(torch.export.export(whole, given, strict=False, dynamic_shapes=varying))
        if shares_statistics:
            graph = without_counters(in_order(graph, whole.norms.number))
        if self.device.type == "cpu":
            graph = checked_indices(channels_last_backward(graph))
        return graph, sums_of(graph)

    def evaluation(self):
        """What it returns of its own inputs in evaluation: with a loss of the trainer's the output that this is of, else the loss's sum and weight. Raises ExportError where there is no such graph."""
        whole = EvaluatedProgram(self.module, self.before, self.after, self.varying, self.autocast, None if self.loss is None else self.chosen)
        given, shapes = tuple(self.examples[: self.own_inputs]), tuple(self.shapes[: self.own_inputs])
        with torch.no_grad():
            graph = decomposed(torch.export.export(whole, given, strict=False, dynamic_shapes={"inputs": shapes}))
        for name in graph.graph_signature.buffers_to_mutate.values():
            raise ExportError(f"in evaluation, too, the program changes its buffer {name.partition('.')[2]}")
        return checked_indices(graph) if self.device.type == "cpu" else graph


def joint(file, types, loss, device, shares_statistics=False):
    """As InRun.training() gives it, and InRun.constants."""
    program = InRun(file, types, loss, device)
    return *program.training(shares_statistics), program.constants


def sums_of(graph):
    """As the inputs of KeyedProgram are called."""
    specs = graph.graph_signature.input_specs
    parameters = [spec.target for spec in specs if spec.kind.name == "PARAMETER"]
    return dict(zip(parameters, (spec.arg.name for spec in specs if spec.arg.name.startswith("sums_")), strict=True))


def of_classes(loss):
    return loss["kind"] == "cross_entropy"


def class_weights_of(loss, after, device):
    """[classes], or None."""
    return torch.tensor(loss["class_weights"], dtype=after, device=device) if loss and loss.get("class_weights") else None


def types_of_targets(loss, after):
    """Of the targets, and of the labels' weights, where they have some."""
    if not of_classes(loss):
        return [after]
    return [torch.int64] if loss["label_weights"] == "none" else [torch.int64, after]


def function_of(loss, chosen, after):
    """The loss's sum of what the program returns, the targets and the labels' weights."""

    def summed(returned, class_weights, *given):
        outputs = pytree.tree_leaves(returned)[chosen].to(after)
        return keyed.cross_entropy(loss, class_weights, outputs, *given) if of_classes(loss) else keyed.squared_error(outputs, *given)

    return summed


def target_of(program, sizes, loss, chosen_sizes):
    """Of class indices, a label for every row of outputs [N, ..., classes] or [N, classes, ...], and two for one of mixed samples; of numbers, one for every output."""
    chosen = program.graph_signature.user_outputs[place_of_output(program)]
    node = next(node for node in program.graph.nodes if node.name == chosen)
    shape = list(node.meta["val"].shape)
    if of_classes(loss):
        check_classes(shape, loss)
        del shape[1 if loss["class_dim"] == "second" else -1]
        shape += [2] if loss["label_weights"] == "mixed" else []
    varying = {place: sizes.of(size.node.expr) for place, size in enumerate(shape) if isinstance(size, torch.SymInt) and size.node.expr.is_symbol}
    return sizes_of(shape, chosen_sizes), varying
