#!/usr/bin/env python3
"""Models of others, exported by onebatch.export and run from C++ by `onebatch check` on batches other than the exported one, in float64, against eager PyTorch: outputs, gradients,
buffers after a forward.

zoo.py PROGRAM [--family NAME]... [--only NAME]... [--jobs 2] [--table FILE] [--programs DIR]
       [--device cuda | --null-gpu BUILD | --modes [MODE ...] | --compiled]

With --device cuda the programs run on this machine's GPU; with --null-gpu on the device that computes nothing, of the tests in BUILD, where only refusals and defects count. With
--modes they are trained in the modes of zoo_modes.py, with --compiled as native code (zoo_compiled.py). With --programs exported programs are kept in DIR and taken from there the next time: most of a model's time is its export.

By hand: it needs torchvision, timm and transformers. Dropouts are switched off, for their masks are keyed by sample here and not in PyTorch.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
LIMIT = 1e-12
SECONDS = 3600  # of a model in every mode
EXPORTED, TRIED = 4, (3, 6)  # samples
OFF = ("drop_prob", "dropout", "attn_dropout", "attention_dropout", "activation_dropout", "layerdrop", "drop_path_rate", "drop_rate", "embed_dropout", "resid_dropout", "hidden_dropout_prob")


def without_dropout(model):
    from torch import nn
    for part in model.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        for name in OFF:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
        if isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0
    return model


class InFloat64:
    """What a model's code makes in float32 beside its weights is float64, as a program's is when the run is."""

    def __enter__(self):
        import torch
        self.kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        torch.float32, torch.float, torch.Tensor.float = torch.float64, torch.float64, torch.Tensor.double

    def __exit__(self, *_):
        import torch
        torch.float32, torch.float, torch.Tensor.float = self.kept[:3]
        torch.set_default_dtype(self.kept[3])


def logits_of(outputs):
    """The tensors that a program returns of what the model does, in order."""
    import torch
    if hasattr(outputs, "to_tuple"):
        return [outputs.logits if "logits" in outputs else outputs.to_tuple()[0]]
    return [output for output in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if isinstance(output, torch.Tensor)]


def eagerly(model, given):
    model.zero_grad(set_to_none=True)
    with InFloat64():
        outputs = logits_of(model(**given) if isinstance(given, dict) else model(*given))
        sum((output**2).sum() for output in outputs).backward()
    found = {f"output.{i}": output.detach() for i, output in enumerate(outputs)}
    found |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return found | {f"buffer.{name}": model.state_dict()[name].double().clone() for name, _ in model.named_buffers() if name in model.state_dict()}


def environment_of_null_gpu(folder):
    """Of a process on the device that computes nothing, built in $ONEBATCH_ZOO_NULL_GPU; without it, what there is."""
    if "ONEBATCH_ZOO_NULL_GPU" not in os.environ:
        return os.environ
    from null_gpu.environment import variables
    return dict(os.environ, **variables(os.environ["ONEBATCH_ZOO_NULL_GPU"], devices=[{}], session=f"/dev/shm/null-gpu-zoo-{os.getpid()}", ranks={}, counts=str(folder / "counts")))


def defects_of(words, counts):
    """What the null GPU has seen, or that nothing has run there."""
    kernels = sum(json.loads(line)["kernels"] for line in counts.read_text().splitlines()) if counts.exists() else 0
    counts.unlink(missing_ok=True)
    return [line for line in words.splitlines() if "null GPU: " in line] + ["no kernel has run"] * (kernels == 0)


def by_program(program, file, given, folder, phase):
    from safetensors.torch import load_file, save_file
    save_file({f"{i:03d}": tensor.contiguous() for i, tensor in enumerate(given)}, folder / "inputs.safetensors")
    command = [program, "check", file, "--inputs", folder / "inputs.safetensors", "--phase", phase, "--save", folder / "result.safetensors", "--device", os.environ.get("ONEBATCH_ZOO_DEVICE", "cpu")]
    done = subprocess.run(command, env=environment_of_null_gpu(folder), capture_output=True, text=True, errors="replace")
    words = (done.stderr + done.stdout).strip()
    pathlib.Path(f"/dev/shm/null-gpu-zoo-{os.getpid()}").unlink(missing_ok=True)
    if done.returncode != 0:
        raise NotTaken((done.stderr or done.stdout).strip())
    if "ONEBATCH_ZOO_NULL_GPU" in os.environ and (defects := defects_of(words, folder / "counts")):
        raise NotTaken(" ".join(defects))
    return load_file(folder / "result.safetensors")


class NotTaken(Exception):
    pass


def difference(found, wanted):
    """The largest relative L2, of all outputs, all gradients, all buffers."""
    errors = {}
    for kind in ("output", "gradient", "buffer"):
        names = [name for name in wanted if name.startswith(kind) and (name in found or wanted[name].any())]
        if missing := [name for name in names if name not in found]:
            return float("inf"), f"{missing[0]} is missing"
        error, norm = (sum(float(tensor.double().square().sum()) for tensor in tensors) for tensors in ([found[name] - wanted[name] for name in names], [wanted[name] for name in names]))
        errors[kind] = (error / norm) ** 0.5 if norm else error**0.5
    worst = max(errors, key=lambda kind: float("inf") if errors[kind] != errors[kind] else errors[kind])
    return errors[worst], worst


def difference_of(program, model, given, file, folder, phase):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train(phase == "training")
    doubled = [tensor.double() if tensor.is_floating_point() else tensor for tensor in (given.values() if isinstance(given, dict) else given)]
    found = by_program(program, file, doubled, folder, phase)
    if "ONEBATCH_ZOO_NULL_GPU" in os.environ:  # whose numbers mean nothing
        return 0.0, "its numbers"
    wanted = eagerly(model, dict(zip(given, doubled)) if isinstance(given, dict) else doubled)
    for name, tensor in model.state_dict().items():
        tensor.copy_(state[name])
    outputs, expected = ([name for name in results if name.startswith("output")] for results in (found, wanted))
    if len(outputs) > len(expected):  # heads that are there in training alone have a part in the program's gradients
        wanted = {name: wanted[name] for name in expected}
    return difference(found, wanted)


def exported(name, model, data, dynamic, folder):
    """The file of a model's program, made where `folder` has none; it is there whole or not at all."""
    import onebatch
    file = folder / f"{re.sub('[^A-Za-z0-9_-]', '_', name)}.pt2"
    example = data(EXPORTED)  # drawn in any case: what is drawn after it is the same
    if not file.exists():
        partial = file.with_suffix(f".{os.getpid()}.pt2")
        try:
            onebatch.export(model, example, partial, dynamic=dynamic, check=False)
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)
    return file


def made(make):
    """The same each time."""
    import torch
    torch.manual_seed(11)
    model = make().float()
    for parameter in model.parameters():
        if not parameter.any():  # an initialisation of zeros hides what lies before it
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def one(program, family, name):
    """In a process of its own. A row: what differs most and by how much, or why it is not taken."""
    import torch

    import onebatch
    from zoo_models import IN_MODES, MODELS
    torch.set_num_threads(1)
    of = f"{family}-{name}"
    make, data, dynamic = MODELS[family][name]
    if "ONEBATCH_ZOO_MODES" in os.environ and name in IN_MODES:
        of, (make, data, dynamic) = f"{of}-in-modes", IN_MODES[name]
    model = without_dropout(made(make))
    with tempfile.TemporaryDirectory(prefix="onebatch-zoo-") as folder:
        try:
            if "ONEBATCH_ZOO_COMPILED" in os.environ:
                from zoo_compiled import compiled
                return compiled(program, model, data, dynamic, folder)
            programs = pathlib.Path(os.environ.get("ONEBATCH_ZOO_PROGRAMS", folder))
            file = exported(of, model, data, dynamic, programs)
            if "ONEBATCH_ZOO_MODES" in os.environ:
                from zoo_modes import SAMPLES, modes_of, with_dropout
                dropping = with_dropout(made(make))
                drops = dropping and exported(f"{of}-dropout", dropping, data, dynamic, programs)
                return {"modes": modes_of(os.environ["ONEBATCH_ZOO_MODES"].split(), program, model, data(SAMPLES), file, drops, folder)}
        except onebatch.ExportError as error:
            return {"why": str(error)}
        model = model.double()
        worst, where = 0.0, ""
        for samples in TRIED[:1] if "ONEBATCH_ZOO_NULL_GPU" in os.environ else TRIED:
            for phase in ("training", "evaluation"):
                try:
                    found = difference_of(program, model, data(samples), file, pathlib.Path(folder), phase)
                except NotTaken as error:
                    return {"why": f"{samples} samples, {phase}: {error}"}
                if not found[0] <= worst:
                    worst, where = found[0], f"{phase}, {found[1]}"
        return {"parameters": sum(parameter.numel() for parameter in model.parameters()), "worst": worst, "where": where}


def row(program, family, name):
    path = os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = dict(os.environ, PYTHONPATH=path, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    try:
        done = subprocess.run([sys.executable, __file__, str(program), "--one", family, name], env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"why": f"not done after {SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"why": f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}"}


def told(family, name, result, measured=True):
    if "why" in result:
        return f"| {family} | {name} | | not taken: {' '.join(result['why'].split())[:400]} |"
    if "modes" in result:
        return f"| {family} | {name} | {' | '.join(('' if good else 'NOT AS WANTED: ') + found for good, found in result['modes'].values())} |"
    found = f"{result['worst']:.1e}" if measured else "runs"
    seconds = f" | {result['seconds']:.0f}" if "seconds" in result else ""
    return f"| {family} | {name} | {result['parameters'] / 1e6:.1f} M | {found}{'' if result['worst'] <= LIMIT else ' in ' + result['where']}{seconds} |"


def good(result):
    return all(good for good, _ in result["modes"].values()) if "modes" in result else result.get("worst", float("inf")) <= LIMIT


def heading(given):
    columns = ["from", "model", "parameters", "on the null GPU" if given.null_gpu else "relative L2, float64"]
    if given.compiled:
        columns += ["seconds to compile"]
    if given.modes:
        from zoo_modes import TITLES
        columns[2:] = (TITLES[name] for name in given.modes)
    return [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]


def main():
    from zoo_models import MODELS
    from zoo_modes import MODES
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--family", choices=MODELS, action="append")
    options.add_argument("--only", action="append")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--table", type=pathlib.Path)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--null-gpu", type=pathlib.Path, metavar="BUILD")
    options.add_argument("--modes", nargs="*", choices=MODES, metavar="MODE")
    options.add_argument("--compiled", action="store_true")
    options.add_argument("--programs", type=pathlib.Path, metavar="DIR")
    options.add_argument("--one", nargs=2)
    given = options.parse_args()
    if not given.one:
        os.environ["ONEBATCH_ZOO_DEVICE"] = "cuda" if given.null_gpu else given.device
    if given.modes is not None:
        given.modes = given.modes or list(MODES)
        os.environ["ONEBATCH_ZOO_MODES"] = " ".join(given.modes)
    if given.compiled:
        os.environ["ONEBATCH_ZOO_COMPILED"] = "1"
    if given.programs:
        given.programs.mkdir(parents=True, exist_ok=True)
        os.environ["ONEBATCH_ZOO_PROGRAMS"] = str(given.programs.resolve())
    if given.null_gpu:
        os.environ["ONEBATCH_ZOO_NULL_GPU"] = str(given.null_gpu.resolve())
    if given.one:
        print(json.dumps(one(given.program, *given.one)))
        return 0
    program = given.program.resolve()
    wanted = [(family, name) for family in given.family or MODELS for name in MODELS[family] if not given.only or name in given.only]
    rows, failed = heading(given), 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for (family, name), result in zip(wanted, pool.map(lambda one: row(program, *one), wanted)):
            rows.append(told(family, name, result, not given.null_gpu))
            failed += not good(result)
            print(rows[-1], flush=True)
    if given.table:
        given.table.write_text("\n".join(rows) + "\n")
    as_wanted = "are trained in every mode as wanted" if given.modes else "run forward and backward on the null GPU without a refusal or a defect" if given.null_gpu else f"are trained as eager PyTorch trains them (relative L2 of outputs, gradients and buffers at most {LIMIT:.0e})"
    print(f"{len(wanted) - failed} of {len(wanted)} models {as_wanted}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
