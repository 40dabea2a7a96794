"""Exported programs as native code: forward and backward in one package of AOTInductor, evaluation in another, which the trainer runs without Python (model.compiled = FOLDER)."""
import copy
import errno
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
from torch._inductor.runtime.cache_dir_utils import cache_dir

from .accumulating import accumulate, overwritten
from .announcing import announced
from .compiler_setting import biases_apart, libtorchs_pooling, own_results, quick_trials, quietly, sizes_declared, tools_of, without_atomics
from .graphs import InRun, of_classes
from .recomputing import recompute
from .refusals import ExportError, first_line

logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # that there is no GPU here is no news

FORMAT = 9
PROGRAM = "program."  # what KeyedProgram puts before the program's own names
CROSS_ENTROPY = {"kind": "cross_entropy", "ignore_index": -100, "label_smoothing": 0.0, "class_dim": "last", "class_weights": [], "label_weights": "none"}
TYPES = {"float32": (torch.float32, None), "float64": (torch.float64, None), "bfloat16": (torch.float32, torch.bfloat16), "float16": (torch.float32, torch.float16)}  # of the parameters; of autocast
BEFORE_SUMS = 3  # of the inputs of the code
OPTIONS = {
    "aot_inductor.link_libtorch": False,  # the code finds the one that the trainer has loaded, wherever that lies
    "aot_inductor.package_constants_in_so": False,  # the run has its own: neither disk nor memory holds them twice
    "cpp.dynamic_threads": True,
    # Parameters and buffers change: none of up to eight numbers becomes a literal, and what is computed of a single number no constant.
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}
OPTIONS_ON_A_CPU = {"layout_optimization": False}  # images stay as they lie, which LibTorch's convolutions reorder as they like
INSTRUCTIONS = re.compile(r"avx|sse|fma|bmi|amx|f16c|popcnt|sha|adx|movbe|abm|gfni|aes|vaes|pclmul|vpclmul|xop|tbm|neon|asimd|sve|bf16|i8mm|fp")
NOT_AT_ALL = re.compile("[:;] train it with model.compiled.*")  # behind a reason not to compile the whole program
OF_THE_MOMENT = (
    *("out of memory", "devices are busy or unavailable"),  # of a GPU
    *("No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed", "unexpected pos"),  # of a disk
    *("Cannot allocate memory", "Killed signal", "[Killed]", "command: Killed"),  # of the host
)
LACKS = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
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


def buffers_of(graph):
    """Those that it writes to."""
    return [name.removeprefix(PROGRAM) for name in graph.graph_signature.buffers_to_mutate.values()]


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


def training(graph, sums, package, device):
    """Compiles what trains: the sums follow the number of the step and the loss's factor."""
    whole = accumulate(graph, sums)
    with announced(whole.graph_signature, BEFORE_SUMS, len(sums)):
        return {**packaged(whole, package, device), "overwritten": overwritten(whole, sums)}


def evaluating(program, package, device):
    """Compiles what validation runs. Where that cannot be: why not."""
    try:
        graph = program.evaluation()
        description = described(graph)
        refuse_own_constants(graph, program.constants)
        return {**packaged(graph, package, device), **description}
    except Exception as error:
        if is_of_the_moment(error):
            raise
        return {"why_not": NOT_AT_ALL.sub("", first_line(error))}


def is_of_the_moment(error):
    """Whether another time it may do: for what it says, or what it comes of."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or isinstance(error, OSError) and error.errno in LACKS or any(word in str(error) for word in OF_THE_MOMENT):
        return True
    source = getattr(error, "inner_exception", None) or error.__cause__
    return source is not None and is_of_the_moment(source)


def compile_program(file, out=None, precision="float32", loss=None, device="cpu", deterministic=False, recompute=False, shared_batch_norm=False, evaluation=True):
    """Compiles the exported program `file` for this machine's CPU or GPU: a folder, `out` or the file's name with .compiled, for model.compiled. Returns it.

    precision: float32, float64, or bfloat16 or float16 with parameters in float32, as autocast computes: the run's precision.compute.
    loss: None where the program returns its loss's sum and its weight (loss.kind = "model"); else as the run's [loss] has it {"kind": "cross_entropy",
        "ignore_index": ..., "label_smoothing": ..., "class_dim": "last" or "second", "class_weights": [...], "label_weights": ...}, or {"kind": "mse"}; what is
        left out is as in CROSS_ENTROPY. label_weights: "none"; "given", as by data.weights; "mixed", of mixed images, which have two labels.

    device: "cpu", "cuda" or "cuda:1": the code is for that GPU's compute capability.
    deterministic: the same bits each time, for run.deterministic = true.
    recompute: also code that computes activations again in its backward, for memory.recompute = "auto".
    shared_batch_norm: the statistics are of other micro-batches too, for batch_norm.mode = "sync" or "exact": the trainer exchanges them while the code runs.
    evaluation: also the forward in evaluation, for a run that validates. Where that cannot be compiled the run validates by the program.

    What is written is native code. Raises ExportError with what cannot be compiled, and other errors where another time it may do.
    """
    file, types, loss, device = pathlib.Path(file), TYPES[precision], whole_loss(loss), of_device(device)
    digest = sha1(file)
    out = pathlib.Path(out) if out else file.with_suffix(".compiled")
    if recompute and shared_batch_norm:
        raise ExportError("with BatchNorms whose statistics are shared no run has code that computes activations again: leave out --recompute")
    refuse_other_folder(out)
    find_vectors()
    with quietly(), tempfile.TemporaryDirectory(prefix=out.name + ".", dir=out.parent) as scratch, tools_of(device, scratch):
        folder = pathlib.Path(scratch) / "whole"
        folder.mkdir()
        try:
            program = InRun(file, types, loss, device)
            graph, sums = program.training(shared_batch_norm)
            description = described(graph)
            refuse_own_constants(graph, program.constants)
            refuse_other_outputs(graph, sums)
            lean = computing_again(graph) if recompute else None
            with without_atomics(deterministic), libtorchs_pooling(device), biases_apart(), sizes_declared(), own_results():
                whole = training(graph, sums, folder / "training.pt2", device)
                again = {} if lean is None else {"lean": training(lean, sums, folder / "lean.pt2", device)}
                whole["overwritten"] = sorted(set.intersection(*(set(one.pop("overwritten")) for one in (whole, *again.values()))))  # by both
                again |= {"evaluation": evaluating(program, folder / "evaluation.pt2", device)} if evaluation else {}
        except ExportError:
            raise
        except Exception as error:  # torch has many kinds
            if is_of_the_moment(error):
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
            "program": {"file": file.name, "sha1": digest},
            "training": {**whole, "gradients": [name.removeprefix(PROGRAM) for name in sums], "changes": buffers_of(graph), **description, "constants": program.constants},
            **again,
        }
        (folder / "compiled.json").write_text(json.dumps(document, indent=2) + "\n")
        if sha1(file) != digest:
            raise RuntimeError(f"{file} is another than before: compile it again")
        refuse_other_folder(out)
        if out.exists():
            out.rename(pathlib.Path(scratch) / "before")
        folder.rename(out)
    if "why_not" in again.get("evaluation", {}):
        warnings.warn(f"a run validates by the program uncompiled: {again['evaluation']['why_not']}", stacklevel=2)
    return out
