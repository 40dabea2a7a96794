"""python -m onebatch export SOURCE --out model.pt2, and python -m onebatch convert SOURCE FOLDER --to tensors"""
import argparse
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures.process import BrokenProcessPool

from .checking import CheckFailed
from .exporting import export
from .refusals import ConversionError, ExportError, first_line
from .sources import TASK, TASKS, OwnCodeError, from_source

SECONDS_TO_CLEAR_UP = 4

def numbers(text):
    return [int(part) for part in text.split(",")]


def weights(text):
    return [float(part) for part in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(prog="python -m onebatch", description="What comes before training; to train, run the program: onebatch train my.toml")
    commands = parser.add_subparsers(dest="command", required=True)
    add_export(commands)
    add_compile(commands)
    add_convert(commands)
    return parser.parse_args()


def add_export(commands):
    command = commands.add_parser("export", help="write a model as a program that onebatch trains")
    command.add_argument("source", help="torchvision:resnet50, timm:vit_small_patch16_224, transformers:FacebookAI/roberta-base, my_module.py:build")
    command.add_argument("--out", required=True, help="the file to write, model.pt2")
    command.add_argument("--classes", type=int, help="how many the model is to tell apart")
    command.add_argument("--pretrained", action="store_true", help="with the library's weights")
    command.add_argument("--shape", type=numbers, help="of a sample, as in 3,64,64")
    command.add_argument("--task", choices=TASKS, default=TASK, help="of a transformers model")
    command.add_argument("--no-check", action="store_true", help="do not run the file against the model")


def add_compile(commands):
    command = commands.add_parser("compile", help="write an exported program as native code of this machine, which onebatch trains by model.compiled")
    command.add_argument("program", help="model.pt2, as onebatch.export writes it")
    command.add_argument("--out", help="the folder to write; else model.compiled")
    command.add_argument("--precision", choices=("float32", "float64", "bfloat16", "float16"), default="float32", help="as precision.compute of the run")
    command.add_argument("--device", default="cpu", help="cpu, or cuda, or cuda:1, for the compute capability of that GPU")
    command.add_argument("--deterministic", action="store_true", help="the same bits each time, for run.deterministic = true")
    command.add_argument("--recompute", action="store_true", help="also code that computes activations again, for memory.recompute = \"auto\"")
    command.add_argument("--shared-batch-norm", action="store_true", help="statistics of other micro-batches too, for batch_norm.mode = \"sync\" or \"exact\"")
    command.add_argument("--no-evaluation", action="store_true", help="only what trains: the run validates by the program uncompiled")
    command.add_argument("--loss", choices=("model", "cross_entropy", "mse"), default="model", help="as loss.kind of the run; model: the program returns its loss")
    command.add_argument("--ignore-index", type=int, default=-100, help="as loss.ignore_index")
    command.add_argument("--label-smoothing", type=float, default=0.0, help="as loss.label_smoothing")
    command.add_argument("--class-dim", choices=("last", "second"), default="last", help="as loss.class_dim")
    command.add_argument("--class-weights", type=weights, default=[], help="as loss.class_weights: 1,2,0.5")
    command.add_argument("--label-weights", choices=("none", "given", "mixed"), default="none", help="given: the run has data.weights, or skips files; mixed: it mixes images, data.augment.mixup_alpha or cutmix_alpha")
    command.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)  # of the program, which has started this


def add_convert(commands):
    command = commands.add_parser("convert", help="write tables (Parquet, Arrow, CSV, JSON lines) or text as data that onebatch reads; once more goes on where it was stopped")
    command.add_argument("source", help="a file, a folder of them, a pattern in quotes, or what a Hugging Face data set's save_to_disk wrote")
    command.add_argument("target", help="the folder to write")
    command.add_argument("--to", choices=("tensors", "tokens", "images"), required=True, help="safetensors pieces, token files (.bin), or a folder for each class")
    command.add_argument("--split", help="of a folder that holds several data sets, as train")
    command.add_argument("--columns", type=lambda text: tuple(text.split(",")), default=(), help="of tensors: these, as in x,label; else all")
    command.add_argument("--classes", default="", help="the column whose values are classes")
    command.add_argument("--classes-of", metavar="FOLDER", help="number them as in this folder, which convert has written of another split")
    command.add_argument("--pad", type=int, default=0, help="of tensors: fill lists up to so many values, and write their lengths")
    command.add_argument("--pad-value", metavar="COLUMN=NUMBER", type=filler, action="append", default=[], help="what --pad fills this column's lists up with, as tags=-100; else 0")
    command.add_argument("--packed", action="store_true", help="of tensors: lists of any length lie one after another, and offsets says where each begins")
    command.add_argument("--text", default="text", help="of tokens: the column with the text")
    command.add_argument("--tokenizer", default="bytes", help="of tokens: tokenizer.json, its folder, a name on the Hugging Face hub, or bytes")
    command.add_argument("--separator", default="", help="of tokens: what follows each row's text, a number or a token as in '<|endoftext|>'")
    command.add_argument("--image", default="image", help="of images: the column with the image, its bytes or a path")
    command.add_argument("--rows", type=positive, default=8192, help="at least so many in a piece (a file of CSV, JSON lines or text is one)")
    command.add_argument("--workers", type=positive, help="processes; else as many as there are processors")


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("write a whole number from 1")
    return int(text)


def filler(text):
    column, _, number = text.rpartition("=")
    for kind in (int, float):
        try:
            if column:
                return column, kind(number)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError("write COLUMN=NUMBER, as tags=-100")


def say(message, *_place):
    print(f"onebatch: {message}", file=sys.stderr)


def converted(given):
    from .classes import counted
    from .converting import Wishes, convert

    if given.pad and given.packed:
        say("--pad fills lists up, and --packed does without: write one of them")
        return 2
    wishes = Wishes(given.to, given.columns, given.classes, given.pad, given.packed, given.text, given.tokenizer, given.separator, given.image, tuple(given.pad_value))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = say
            report = convert(given.source, given.target, wishes, split=given.split, workers=given.workers, rows=given.rows, like=given.classes_of)
    except (ConversionError, OSError) as error:
        say(error)
        return 2
    except ImportError as error:
        say(f"{error.name or error} is not here: pip install numpy pyarrow pillow tokenizers")
        return 2
    except BrokenProcessPool:
        say("one of the processes was killed, as happens where memory ends: write fewer --workers, and the same command goes on")
        return 2
    kept = f", {report['kept']} of them there before" if report["kept"] else ""
    print(f"{given.target} holds {report['rows']} rows in {report['pieces']} pieces{kept}; convert.json there says more")
    if report["classes"]:
        hint = "" if given.classes_of else f"; another split has the same ones by --classes-of {given.target}"
        print(counted(report["classes"]) + hint)
    return 0


def end_with_input():
    """Whoever holds the other end of standard input may end at any moment: then this is to clear up, and to leave nothing running."""

    def watch():
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(SECONDS_TO_CLEAR_UP)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def compiled(given):
    if given.until_input_ends:
        end_with_input()
    from .compiling import compile_program, is_of_the_moment

    of_classes = {key: getattr(given, key) for key in ("ignore_index", "label_smoothing", "class_dim", "class_weights", "label_weights")} | {"kind": given.loss}
    loss = {"model": None, "cross_entropy": of_classes, "mse": {"kind": "mse"}}[given.loss]
    try:
        folder = compile_program(given.program, given.out, given.precision, loss, given.device, given.deterministic, given.recompute, given.shared_batch_norm, not given.no_evaluation)
    except Exception as error:
        if isinstance(error, ExportError | OSError) and not is_of_the_moment(error):
            say(error)
            return 2
        say(f"{given.program} was not compiled this time: {first_line(error)}")
        return 1
    print(f"{folder} is written: model.compiled = \"{folder}\"")
    return 0


def main():
    given = arguments()
    if given.command == "compile":
        try:
            return compiled(given)
        except KeyboardInterrupt:
            return 130
    if given.command == "convert":
        return converted(given)
    try:
        model, inputs, dynamic = from_source(given.source, given)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\..*")
            warnings.showwarning = say
            export(model, inputs, given.out, dynamic=dynamic, check=not given.no_check)
    except OwnCodeError as error:
        traceback.print_exception(error.__cause__)
        say(error)
        return 2
    except (ExportError, CheckFailed, ValueError, OSError) as error:
        say(error)
        return 2
    print(f"{given.out} is written: model.kind = \"exported\", model.path = \"{given.out}\"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
