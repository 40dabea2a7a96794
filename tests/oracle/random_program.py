"""Writes a case's files, runs the program on them as a user would, and reads back what it left."""
import copy
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import warnings

import torch
from safetensors.torch import load_file, save_file

from random_cases import configuration_text

DEADLINE_SECONDS = 120


class Stopped(Exception):
    """There is nothing to compare: refused, failed, or not judged."""

    def __init__(self, kind, words):
        super().__init__(words)
        self.kind, self.words = kind, words


def convert(case, model, folder):
    """The model's file, scripted or traced; how it was made, since what a trace cannot hold is scripted instead."""
    path = str(folder / "model.pt")
    if case.way == "trace":
        twin = copy.deepcopy(model).train()
        example = tuple(case.train[name][:3].to(case.parameters_type) if case.train[name].is_floating_point() else case.train[name][:3].long()
                        for name in case.sections["data"]["inputs"])
        if len(example[0]) >= case.family.least:
            with warnings.catch_warnings():  # what a trace holds as a constant is found out by comparing it
                warnings.simplefilter("ignore")
                traced = torch.jit.trace(twin, example, check_trace=False)
            traced.load_state_dict(model.state_dict(), strict=False)
            if agrees(case, traced, model):
                traced.save(path)
                return "trace"
    torch.jit.script(model.train()).save(path)
    return "script"


def agrees(case, traced, model):
    """Whether the trace is the model for a batch of another size too, where that can be told."""
    if case.family.random:
        return True
    inputs = [case.train[name][:2].to(case.parameters_type) if case.train[name].is_floating_point() else case.train[name][:2].long()
              for name in case.sections["data"]["inputs"]]
    expected, twin = copy.deepcopy(model).train()(*inputs), copy.deepcopy(traced)
    return torch.allclose(expected, twin(*inputs))


def export(case, model, folder):
    """The model as a program of torch.export, in which native code is made of it."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
    import onebatch

    names = [*case.sections["data"]["inputs"], *(["y"] if case.family.out.startswith("own") else []), *(["w"] if case.family.weighted else [])]
    examples = [case.train[name][:3].to(case.parameters_type) if case.train[name].is_floating_point() else case.train[name][:3].long() for name in names]
    lengths = {1: "length"} if case.family.data in ("tokens", "tokens+numbers") and case.family.padding else {}
    forward = inspect.signature(model.forward).parameters
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            onebatch.export(model, tuple(examples), folder / "model.pt2", dynamic={name: lengths for name in list(forward)[: len(examples)]} if lengths else None, check=False)
    except Exception as error:  # what cannot be exported is another test's
        raise Stopped("not judged", f"not exported: {str(error).splitlines()[0][:160]}") from error


USED, UNUSED = "is a compiled program: it is code", "the run goes on uncompiled: "


class Program:
    """`compiled`: models are exported, and runs make native code of them where they can."""

    def __init__(self, path, folder, verbose, compiled=False):
        self.path, self.folder, self.verbose, self.compiled = path, folder, verbose, compiled
        self.output = ""
        self.natively = []  # of each run by native code "", and of the others why not

    def write(self, case, model):
        save_file({name: tensor.contiguous() for name, tensor in case.train.items()}, self.folder / "train.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in case.validation.items()}, self.folder / "validation.safetensors")
        if self.compiled:
            export(case, model, self.folder)
            case.way = "exported"
        elif not case.family.builtin:
            case.way = convert(case, model, self.folder)
        if case.start or case.family.builtin:
            save_file({name: tensor.detach().clone().contiguous() for name, tensor in case.model.state_dict().items()}, self.folder / "start.safetensors")

    def run(self, case, name, ranks, changes, arguments=()):
        """Trains a run of that name; returns its folder."""
        sections = {section: dict(values) for section, values in case.sections.items()}
        sections["run"].update(name=name, output_dir=str(self.folder / "out"))
        sections["data"]["path"] = str(self.folder / "train.safetensors")
        sections["data.validation"]["path"] = str(self.folder / "validation.safetensors")
        if "path" in sections["model"]:
            sections["model"]["path"] = str(self.folder / "model.pt")
        if self.compiled:
            sections["model"] = {"kind": "exported", "path": str(self.folder / "model.pt2"), "compiled": "auto"}
            sections["run"].setdefault("deterministic", True)  # times decide nothing
        if case.start or case.family.builtin and not self.compiled:
            sections["model"]["weights"] = str(self.folder / "start.safetensors")
        for section, values in changes.items():
            sections[section] = {key: value for key, value in {**sections.get(section, {}), **values}.items() if value is not None}
        config = self.folder / f"{name}.toml"
        config.write_text(configuration_text(sections))
        folder = self.folder / "out" / name
        try:
            self.call(ranks, ["train", str(config), "--json", str(self.folder / f"{name}.json"), *arguments])
        except Stopped as stopped:
            trained = folder / "metrics.jsonl"
            if stopped.kind == "refused" and trained.exists() and trained.stat().st_size > 0:
                raise Stopped("failed", f"refused only after it had trained: {stopped.words}") from None
            raise
        if self.compiled:
            why = next((line.partition(UNUSED)[2] for line in self.output.splitlines() if UNUSED in line), "")
            self.natively.append(why or ("" if USED in self.output else "nothing was said"))
        return folder

    def verify(self, case):
        """What the program's own verify says of the configuration of "run"."""
        config = self.folder / "run.toml"
        if not config.exists():
            return ""
        document = self.folder / "verify.json"
        try:
            self.call(case.ranks, ["verify", str(config), "--json", str(document)], refusals=())
        except Stopped as stopped:
            code = re.match(r"exit code (\d+)", stopped.words)
            if code and code.group(1) == "5" and document.exists():
                said = read_json(document)
                return f"{said['verdict']} ({said['cause']})"
            return "no" if code and code.group(1) in ("2", "3") else "nothing, it failed"
        return "pass"

    def call(self, ranks, arguments, refusals=(2, 3, 5)):
        command = [self.path, *arguments]
        if ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1",
                           XDG_CACHE_HOME=str(self.folder / "cache"))
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        try:
            self.output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.output, _ = process.communicate()
            raise Stopped("failed", f"did not end within {DEADLINE_SECONDS} s: {last_words(self.output)}") from None
        if self.verbose:
            print("$", " ".join(command), f"\n{self.output}returned {process.returncode}", flush=True)
        if process.returncode in refusals:
            raise Stopped("refused", last_words(self.output))
        if process.returncode != 0:
            raise Stopped("failed", f"exit code {process.returncode}: {last_words(self.output)}")


def last_words(output):
    """What the program said it was about: its own error lines, without what the launcher adds."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [line for i, line in enumerate(lines) if re.match(r"onebatch: (?!warning)|.*error:|terminate called|\S+\.toml:\d", line)
           or i and re.match(r"onebatch: .*:$", lines[i - 1])]
    return " | ".join(own[:4] or lines[-3:])[:700] or "without a word"


def read_lines(path):
    return [json.loads(line) for line in open(path)]


def checkpoint_of(run_folder):
    latest = run_folder / "checkpoints" / "latest"
    return load_file(latest / "model.safetensors"), load_file(latest / "optimizer.safetensors")


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())
