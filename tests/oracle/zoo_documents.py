#!/usr/bin/env python3
"""The files and commands of docs/language_models.md as they stand, with small models in the place of those that have to be fetched.

zoo_documents.py PROGRAM
"""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
DOCUMENT = (ROOT / "docs/language_models.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", DOCUMENT, re.S))
COMMANDS = [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", DOCUMENT, re.S)]
# Found by every Python of this folder before anything else.
SMALL = """
import pathlib
import transformers
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "good", "bad", "film", "the", "was", "a", "very"]
pathlib.Path("vocab.txt").write_text("\\n".join(WORDS))
SIZES = dict(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
transformers.AutoTokenizer.from_pretrained = lambda name: transformers.BertTokenizer("vocab.txt")
transformers.AutoModelForSequenceClassification.from_pretrained = lambda name, **options: transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, **options))
"""


def sentence(draw):
    label = draw.randrange(2)
    return " ".join(["the"] + draw.choices(["film", "was", "a", "very"], k=draw.randrange(1, 40)) + [("bad", "good")[label]]), label


def prepare(folder):
    for name, text in FILES.items():
        text = text.replace("BLOCK = 256", "BLOCK = 32").replace("block_size = 256", "block_size = 32").replace("n_embd=384, n_layer=6, n_head=6", "n_embd=32, n_layer=2, n_head=2").replace("lr = 2e-5", "lr = 2e-3")
        (folder / name).write_text(text.replace("epochs = 5", "epochs = 3").replace("max_new_tokens=100", "max_new_tokens=20"))
    (folder / "sitecustomize.py").write_text(SMALL)
    draw = random.Random(5)
    for name, count in (("train", 800), ("held", 100)):
        (folder / f"{name}.csv").write_text("\n".join(f"{text},{label}" for text, label in (sentence(draw) for _ in range(count))) + "\n")
    (folder / "my_text.txt").write_text("".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))))


def run(folder, command):
    path = os.pathsep.join([str(folder), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    binaries = os.pathsep.join([str(folder / "bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = dict(os.environ, ONEBATCH=str(PROGRAM), PYTHONPATH=path, PATH=binaries, HF_HUB_OFFLINE="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=900)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"ok   {command}", flush=True)
    return done.stdout + done.stderr


def validation_loss(said):
    return float(re.findall(r"validation loss (\d+\.\d+)", said)[-1])


def main():
    with tempfile.TemporaryDirectory(prefix="onebatch-documents-") as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder)
        (folder / "bin").mkdir()
        (folder / "bin/onebatch").symlink_to(PROGRAM)
        losses = [validation_loss([run(folder, command) for command in block][-1]) for block in COMMANDS]
        run(folder, "python gpt2_write.py")
    print(f"validation losses: BERT {losses[0]:.3f} (a guess: 0.693), GPT-2 {losses[1]:.3f} (a guess: 5.545)")
    good = losses[0] < 0.2 and losses[1] < 4.0
    print(f"{int(good)} passed, {int(not good)} failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
