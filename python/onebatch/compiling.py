"""Exported programs as native code: forward and backward in one package of AOTInductor, which the trainer runs without Python (model.compiled = FOLDER)."""
import collections
import copy
import hashlib
import importlib.util
import json
import logging
import pathlib
import platform
import re
import tempfile
import warnings

import torch
import torch._inductor.lowering  # some of the compiler's passes take it for granted
from torch._inductor import cpu_vec_isa
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.export.experimental import _copy_graph_module_and_signature, _remove_detach_pass
from torch.export.exported_program import _decompose_exported_program
from torch.utils import _pytree as pytree

from . import keyed
from .accumulating import accumulate
from .activations import memory_of
from .compiler_setting import own_results, quick_trials, quietly, sizes_declared, tools_of, without_atomics
from .recomputing import recompute
from .refusals import ExportError, first_line
from .shared_norms import DECOMPOSITIONS, in_order, without_counters

logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # that there is no GPU here is no news

FORMAT = 6
PROGRAM = "program."  # what KeyedProgram puts before the program's own names
CROSS_ENTROPY = {"kind": "cross_entropy", "ignore_index": -100, "label_smoothing": 0.0, "class_dim": "last", "class_weights": [], "label_weights": "none"}
TYPES = {"float32": (torch.float32, None), "float64": (torch.float64, None), "bfloat16": (torch.float32, torch.bfloat16), "float16": (torch.float32, torch.float16)}  # of the parameters; of autocast
OPTIONS = {
    "aot_inductor.link_libtorch": False,  # the code finds the one that the trainer has loaded, wherever that lies
    "aot_inductor.package_constants_in_so": False,  # the run has its own: neither disk nor memory holds them twice
    "cpp.dynamic_threads": True,
    # Parameters and buffers change: none of up to eight numbers becomes a literal, and what is computed of a single number no constant.
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}
OPTIONS_ON_A_CPU = {"layout_optimization": False}  # images stay as they lie, which LibTorch's convolutions reorder as they like
BITS_ON_A_GPU = 40  # of the product of all sizes that vary
ROWS_ON_A_GPU = 64  # that the compiler chooses blocks of threads for, where the program takes as many
INSTRUCTIONS = re.compile(r"avx|sse|fma|bmi|amx|f16c|popcnt|sha|adx|movbe|abm|gfni|aes|vaes|pclmul|vpclmul|xop|tbm|neon|asimd|sve|bf16|i8mm|fp")
OF_THE_MOMENT = ("out of memory", "devices are busy or unavailable")  # of a GPU
VECTORS = {"avx2", "asimd"}  # the least that the compiler makes use of


def sha1(file):
    digest = hashlib.sha1()
    with open(file, "rb") as opened:
        while piece := opened.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def instructions():
    """Those that the compiler may use here, as Linux names them."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return sorted({flag for flag in flags if INSTRUCTIONS.match(flag)})


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


def forward_and_backward(exported):
    """One graph of both, of the operators that the compiler wants: LibTorch's attention stays whole."""
    program = _decompose_exported_program(exported, cia_to_decomp={}, python_decomp_table=dict(select_decomp_table()) | DECOMPOSITIONS, joint_loss_index=0, decompose_custom_triton_ops=False)
    graph, signature = _copy_graph_module_and_signature(program)
    _remove_detach_pass(graph, signature)
    return program._update(graph, signature)


def joint(file, types, loss, device, shares_statistics=False):
    """Forward and backward as one graph of (samples, the step's key, a factor of the loss, a sum for the gradient of each parameter, the inputs and, with a loss, the targets);
    {parameter: the input that is its sum}; {constant: place}.

    types: of the parameters; of autocast, or None."""
    after, autocast = types
    program = torch.export.load(str(file))
    nodes, sizes = inputs_of(program), Sizes(program, device)
    shapes = [sizes.shapes(node) for node in nodes]
    if 0 not in shapes[0]:
        raise ExportError(f"{file} takes one batch size alone: export it with dynamic_shapes, as onebatch.export does")
    module = program.module(check_guards=False)
    before = type_of(module)
    chosen_sizes = {}
    if device.type == "cuda":
        symbol, batch = nodes[0].meta["val"].shape[0].node.expr, shapes[0][0]
        chosen_sizes[symbol] = max(batch.min, min(ROWS_ON_A_GPU, batch.max))
    examples = [example_of(node, after, device, chosen_sizes) for node in nodes]
    own = len(examples)
    if loss is not None:
        target_shape, target_sizes = target_of(program, sizes, loss, chosen_sizes)
        for dtype in types_of_targets(loss, after):
            examples.append(torch.zeros(target_shape, dtype=dtype, device=device))
            shapes.append(target_sizes)
    constants = constants_of(program)
    in_run(module, constants, before, after, device)
    chosen = place_of_output(program)
    hold_still(module, chosen)
    varying = [{place: dim.__name__ for place, dim in one.items()} for one in shapes]
    whole = keyed.KeyedProgram(module, before, after, varying, autocast, loss and function_of(loss, chosen, after), own, class_weights_of(loss, after, device), shares_statistics)
    rows = examples[0].shape[0]
    batch = shapes[0][0]
    factor, sums = torch.ones((), dtype=keyed.wide(after), device=device), [torch.empty_like(one) for one in whole.parameters()]
    given = (torch.arange(rows, device=device), torch.tensor(1, device=device), factor, sums, *examples)
    varying = {"samples": {0: batch}, "of_step": None, "factor": None, "sums": [None] * len(sums), "inputs": tuple(shapes)}
    exported = torch.export.export(whole, given, strict=False, dynamic_shapes=varying)
    graph = forward_and_backward(exported)
    if shares_statistics:
        graph = without_counters(in_order(graph, whole.norms.number))
    return graph, sums_of(graph), constants


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


def described(graph):
    """What the code takes without looking at it again: types and sizes, and what those that vary may be."""
    wanted, inputs = set(graph.graph_signature.user_inputs), []
    for node in graph.graph.nodes:
        if node.op == "placeholder" and node.name in wanted:
            value = node.meta["val"]
            sizes = [str(size.node.expr) if isinstance(size, torch.SymInt) and not size.node.expr.is_number else int(size) for size in value.shape]
            inputs.append({"type": str(value.dtype).removeprefix("torch."), "sizes": sizes})
    if isinstance(inputs[0]["sizes"][0], int):
        raise ExportError(f"the compiler takes the number of samples for {inputs[0]['sizes'][0]}, that of the export, and would make code for no other: train it with model.compiled = \"never\"")
    ranges = {str(symbol): [int(bounds.lower), int(bounds.upper) if str(bounds.upper).isdigit() else 2**31] for symbol, bounds in graph.range_constraints.items()}
    return {"inputs": inputs, "ranges": ranges}


def refuse_own_constants(graph, places):
    """What the code reads beside the program's tensors and the classes' weights, the run would not have; and what it writes into constants, nobody would see."""
    for spec in graph.graph_signature.input_specs:
        if spec.kind.name == "CONSTANT_TENSOR":
            raise ExportError(f"the program makes a constant, {spec.target}, which is not compiled yet: train it with model.compiled = \"never\"")
    for name in graph.graph_signature.buffers_to_mutate.values():
        if name.removeprefix(PROGRAM) in places:
            raise ExportError(f"the program changes its constant {name.removeprefix(PROGRAM)}, which is not compiled yet: train it with model.compiled = \"never\"")


def refuse_other_outputs(graph, sums):
    """Every parameter gets a gradient; buffers that the forward changes are written in place."""
    specs = graph.graph_signature.output_specs
    for kind in (spec.kind.name for spec in specs):
        if kind not in ("LOSS_OUTPUT", "USER_OUTPUT", "GRADIENT_TO_PARAMETER", "BUFFER_MUTATION"):
            raise ExportError(f"the program's {kind.lower()} is not compiled yet: train it with model.compiled = \"never\"")
    for name in (name for name in sums if name not in {spec.target for spec in specs}):
        raise ExportError(f"the program's parameter {name.removeprefix(PROGRAM)} gets no gradient, which is not compiled yet: train it with model.compiled = \"never\"")


def find_vectors():
    """The compiler links a trial with libtorch to find out which vectors this processor has, and keeps the answer in its cache. It is asked before OPTIONS
    leave libtorch out, with which the trial fails and all code is scalar."""
    with quick_trials():
        found = cpu_vec_isa.pick_vec_isa()
    if not found and set(instructions()) & VECTORS:
        warnings.warn(f"the compiler takes this processor's vectors for unusable, so that the code is slow: remove its cache, {cache_dir()}, and compile again", stacklevel=3)


def of_device(name):
    """What is compiled for: "cpu", or a GPU that is here. Raises ExportError."""
    known = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if not known:
        raise ExportError(f"--device is {name!r}: write cpu, cuda, or cuda:1")
    if name == "cpu":
        return torch.device("cpu")
    index, here = int(known[1] or 0), torch.cuda.device_count()
    if index >= here:
        raise ExportError(f"--device is {name!r}, and PyTorch sees {here} GPUs here: code for one is made where it is")
    if importlib.util.find_spec("triton") is None:
        raise ExportError(f"--device is {name!r}, and this Python has no triton, which makes a GPU's code: pip install triton")
    return torch.device("cuda", index)


def machine(device):
    of_gpu = {"capability": "{}.{}".format(*torch.cuda.get_device_capability(device))} if device.type == "cuda" else {}
    return {"device": device.type, "architecture": platform.machine(), "instructions": instructions(), **of_gpu}


def whole_loss(loss):
    if loss is None or not of_classes(loss):
        return loss
    whole = CROSS_ENTROPY | loss
    for key, known in {"class_dim": ("last", "second"), "label_weights": ("none", "given", "mixed")}.items():
        if whole[key] not in known:
            raise ExportError(f"{key} is {whole[key]!r}: write one of {', '.join(known)}")
    return whole | {"class_weights": [float(weight) for weight in whole["class_weights"]]}


def refuse_other_folder(out):
    """What is replaced is a compiled program, and nothing else."""
    if out.exists() and not (out / "compiled.json").is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise ExportError(f"{out} is there, and is no compiled program that could be replaced: write another --out")


def computing_again(graph):
    """A copy of the graph, of the same inputs and outputs, whose backward computes activations again."""
    lean = copy.deepcopy(graph, {id(tensor): tensor for tensor in (*graph.state_dict.values(), *graph.constants.values())})  # which both have
    recompute(lean)
    assert (lean.graph_signature.output_specs, described(lean)) == (graph.graph_signature.output_specs, described(graph))
    return lean


def packaged(graph, package, device):
    """Compiles the graph. Returns what tells whether the file is whole."""
    torch._inductor.aoti_compile_and_package(graph, package_path=str(package), inductor_configs=OPTIONS if device.type == "cuda" else OPTIONS | OPTIONS_ON_A_CPU)
    return {"bytes": package.stat().st_size, "sha1": sha1(package)}


def compile_program(file, out=None, precision="float32", loss=None, device="cpu", deterministic=False, recompute=False, shared_batch_norm=False):
    """Compiles the exported program `file` for this machine's CPU or GPU: a folder, `out` or the file's name with .compiled, for model.compiled. Returns it.

    precision: float32, float64, or bfloat16 or float16 with parameters in float32, as autocast computes: the run's precision.compute.
    loss: None where the program returns its loss's sum and its weight (loss.kind = "model"); else as the run's [loss] has it {"kind": "cross_entropy",
        "ignore_index": ..., "label_smoothing": ..., "class_dim": "last" or "second", "class_weights": [...], "label_weights": ...}, or {"kind": "mse"}; what is
        left out is as in CROSS_ENTROPY. label_weights: "none"; "given", as by data.weights; "mixed", of mixed images, which have two labels.

    device: "cpu", "cuda" or "cuda:1": the code is for that GPU's compute capability.
    deterministic: the same bits each time, for run.deterministic = true.
    recompute: also code that computes activations again in its backward, for memory.recompute = "auto".
    shared_batch_norm: the statistics are of other micro-batches too, for batch_norm.mode = "sync" or "exact": the trainer exchanges them while the code runs.

    What is written is native code. Raises ExportError with what cannot be compiled.
    """
    file, types, loss, device = pathlib.Path(file), TYPES[precision], whole_loss(loss), of_device(device)
    out = pathlib.Path(out) if out else file.with_suffix(".compiled")
    if recompute and shared_batch_norm:
        raise ExportError("with BatchNorms whose statistics are shared no run has code that computes activations again: leave out --recompute")
    refuse_other_folder(out)
    find_vectors()
    with quietly(), tempfile.TemporaryDirectory(prefix=out.name + ".", dir=out.parent) as scratch, tools_of(device, scratch):
        folder = pathlib.Path(scratch) / "whole"
        folder.mkdir()
        try:
            graph, sums, places = joint(file, types, loss, device, shared_batch_norm)
            description = described(graph)
            refuse_own_constants(graph, places)
            refuse_other_outputs(graph, sums)
            buffers = [name.removeprefix(PROGRAM) for name in graph.graph_signature.buffers_to_mutate.values()]
            lean = computing_again(graph) if recompute else None
            with without_atomics(deterministic), sizes_declared(), own_results():
                training = packaged(accumulate(graph, sums), folder / "training.pt2", device)
                again = {} if lean is None else {"lean": packaged(accumulate(lean, sums), folder / "lean.pt2", device)}
        except ExportError:
            raise
        except Exception as error:  # torch has many kinds
            if isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in OF_THE_MOMENT):
                raise
            raise ExportError(f"{file} cannot be compiled: {first_line(error)}; train it with model.compiled = \"never\"") from error
        document = {
            "format": FORMAT,
            "torch": torch.__version__.partition("+")[0],
            "machine": machine(device),
            "deterministic": deterministic,
            "shared_batch_norm": shared_batch_norm,
            "precision": precision,
            "loss": loss or {"kind": "model"},
            "program": {"file": file.name, "sha1": sha1(file)},
            "training": {**training, "gradients": [name.removeprefix(PROGRAM) for name in sums], "changes": buffers, **description, "constants": places},
            **again,
        }
        (folder / "compiled.json").write_text(json.dumps(document, indent=2) + "\n")
        refuse_other_folder(out)
        if out.exists():
            out.rename(pathlib.Path(scratch) / "before")
        folder.rename(out)
    return out
