"""python -m onebatch export SOURCE --out model.pt2"""
import argparse
import sys
import warnings

from .checking import CheckFailed
from .exporting import export
from .refusals import ExportError
from .sources import TASKS, from_source


def numbers(text):
    return [int(part) for part in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(prog="python -m onebatch", description="What comes before training; to train, run the program: onebatch train my.toml")
    command = parser.add_subparsers(dest="command", required=True).add_parser("export", help="write a model as a program that onebatch trains")
    command.add_argument("source", help="torchvision:resnet50, timm:vit_small_patch16_224, transformers:FacebookAI/roberta-base, my_module.py:build")
    command.add_argument("--out", required=True, help="the file to write, model.pt2")
    command.add_argument("--classes", type=int, help="how many the model is to tell apart")
    command.add_argument("--pretrained", action="store_true", help="with the library's weights")
    command.add_argument("--shape", type=numbers, help="of a sample, as in 3,64,64")
    command.add_argument("--task", choices=TASKS, default="sequence-classification", help="of a transformers model")
    command.add_argument("--no-check", action="store_true", help="do not run the file against the model")
    return parser.parse_args()


def say(message, *_place):
    print(f"onebatch: {message}", file=sys.stderr)


def main():
    given = arguments()
    try:
        model, inputs, dynamic = from_source(given.source, given)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\..*")
            warnings.showwarning = say
            export(model, inputs, given.out, dynamic=dynamic, check=not given.no_check)
    except (ExportError, CheckFailed, ValueError, OSError) as error:
        say(error)
        return 2
    print(f"{given.out} is written: model.kind = \"exported\", model.path = \"{given.out}\"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
