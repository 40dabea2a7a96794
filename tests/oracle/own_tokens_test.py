"""Token files against slices of NumPy's: samples, order, memory and time; a language model on 1 and 3 ranks against PyTorch."""
import json
import pathlib
import subprocess

import numpy as np
import pytest

from program import read_json_lines, settings

torch = pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file
from oracle.common import configuration  # noqa: E402

CONFIG = configuration("""
[run]
max_steps = 6
[batch]
global_batch_size = 12
[data]
kind = "tokens"
path = "{path}"
block_size = 16
{data}
[optimizer]
lr = 0.5
""")
VOCABULARY, BLOCK, WIDTH = 40, 16, 12
GIGABYTE = 1 << 30


@pytest.fixture
def show(request, tmp_path):
    """What the program reads: tensors by name, and what the data say of themselves."""

    def run(path, *samples, data="", epoch=-1, code=0):
        config = tmp_path / "show.toml"
        config.write_text(CONFIG.format(folder=tmp_path, path=path, data=data))
        program = request.config.getoption("--show-samples")
        done = subprocess.run([program, config, tmp_path / "out", str(epoch), *map(str, samples)], capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stdout + done.stderr
        return (load_file(tmp_path / "out"), json.loads(done.stdout)) if code == 0 else done.stdout

    return run


def tokens(count, seed=0, largest=VOCABULARY, dtype=np.uint16):
    return np.random.default_rng(seed).integers(0, largest, count).astype(dtype)


def llm_c(path, values, magic, version):
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, version, len(values)
    path.write_bytes(header.tobytes() + values.tobytes())


def blocks_of(arrays):
    """Inputs and targets as the documents say it: for each file its blocks, one after another."""
    pairs = [(a[i : i + BLOCK], a[i + 1 : i + BLOCK + 1]) for a in arrays for i in range(0, (len(a) - 1) // BLOCK * BLOCK, BLOCK)]
    return tuple(np.stack(part).astype(np.int64) for part in zip(*pairs, strict=True))


def test_samples_are_slices_of_all_files(show, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    arrays = [tokens(1000, 1), tokens(5, 2), tokens(16 * 7 + 1, 3), tokens(333, 4, 70000, np.uint32)]
    arrays[0].tofile(folder / "a.bin")
    arrays[1].tofile(folder / "b.bin")
    llm_c(folder / "c.bin", arrays[2], 20240520, 1)
    llm_c(folder / "d.bin", arrays[3], 20240801, 7)
    inputs, targets = blocks_of(arrays)
    got, said = show(folder, *range(len(inputs)))
    assert said["size"] == len(inputs) and said["shape"] == [BLOCK]
    used = np.concatenate([inputs.ravel(), targets.ravel()])
    assert said["classes"] == used.max() + 1 and said["labels"][2] == used.max() and said["labels"][0] == used.min()
    assert said["labels"][2] in targets[said["labels"][3]]
    assert np.array_equal(got["input0"].numpy(), inputs) and np.array_equal(got["target"].numpy(), targets)
    some = [70, 0, 62, 3]
    got, _ = show(f"{folder}/[a-c].bin", *some[2:], data="vocabulary = 50000")
    assert np.array_equal(got["input0"].numpy(), blocks_of(arrays[:3])[0][some[2:]])
    got, _ = show(folder, 0, 1, data='files = ["c.bin", "a.bin"]')
    assert np.array_equal(got["target"].numpy(), blocks_of([arrays[2], arrays[0]])[1][:2])


def test_bytes_are_tokens(show, tmp_path):
    text = "To be, or not to be: that is the question.".encode()
    (tmp_path / "text.txt").write_bytes(text)
    got, said = show(tmp_path / "text.txt", 1, data='token_type = "uint8"\nvocabulary = 256')
    assert bytes(got["input0"][0].tolist()) == text[16:32] and bytes(got["target"][0].tolist()) == text[17:33]
    assert said["classes"] == 256 and said["labels"] is None


def test_what_follows_a_separator_is_no_label(show, tmp_path):
    values = tokens(500, 5, 6)
    values.tofile(tmp_path / "a.bin")
    inputs, targets = blocks_of([values])
    assert (inputs == 3).any()
    got, said = show(tmp_path / "a.bin", *range(len(inputs)), data="separator = 3")
    assert np.array_equal(got["target"].numpy(), np.where(inputs == 3, -100, targets)) and np.array_equal(got["input0"].numpy(), inputs)
    assert "separator = 9 is no token: the largest is 5" in show(tmp_path / "a.bin", 0, data="separator = 9", code=2)


def test_a_token_beyond_the_vocabulary_is_named_when_it_is_met(show, tmp_path):
    values = tokens(500, 5, 6)
    values[205] = 77
    values.tofile(tmp_path / "a.bin")
    show(tmp_path / "a.bin", 0, 1, data="vocabulary = 6")
    said = show(tmp_path / "a.bin", 0, 12, data="vocabulary = 6", code=2)
    assert "a.bin, token 205 is 77, but there are only 6, 0 … 5: write data.vocabulary = 78" in said, said


def test_a_large_vocabulary_is_not_taken_for_16_bits(show, tmp_path):
    tokens(1000, 6, 60000).tofile(tmp_path / "a.bin")  # nothing to be seen in the file
    assert 'a.bin has no header that says how large its tokens are, and 16 bits hold no vocabulary of 70000: write data.token_type = "uint32"' in show(
        tmp_path / "a.bin", 0, data="vocabulary = 70000", code=2)
    values = tokens(500, 6, 70000, np.uint32)
    values.tofile(tmp_path / "a.bin")
    assert 'every second is below 2, as in a file of larger ones: write data.token_type = "uint32"' in show(tmp_path / "a.bin", 0, code=2)
    read, _ = show(tmp_path / "a.bin", 0, data='vocabulary = 70000\ntoken_type = "uint32"')
    assert any((tensor.flatten() == torch.from_numpy(values[:BLOCK].astype(np.int64))).all() for tensor in read.values())
    llm_c(tmp_path / "a.bin", values, 20240801, 7)
    show(tmp_path / "a.bin", 0, data="vocabulary = 70000")


def test_twenty_gigabytes_take_neither_memory_nor_time(show, tmp_path):
    path = tmp_path / "sparse.bin"
    with open(path, "wb") as file:
        file.truncate(20 * GIGABYTE)
    memory = np.memmap(path, np.uint16, "r+")
    memory[-40:] = tokens(40, 6)
    memory.flush()
    samples = (len(memory) - 1) // BLOCK
    got, said = show(path, samples - 1, data="vocabulary = 50257")
    assert said["size"] == samples and np.array_equal(got["input0"][0].numpy(), memory[(samples - 1) * BLOCK :][:BLOCK])
    assert got["input0"].any()
    _, ordered = show(path, "order:1000", data="vocabulary = 50257")
    print(f"20 GiB, {samples} samples: opened in {said['seconds']} s, {said['opened_kib']} KiB; with an order and 1,000 samples {ordered['read_kib']} KiB")
    assert len(set(ordered["samples"])) == 1000 and max(ordered["samples"]) > samples // 2
    for figures in (said, ordered):
        assert figures["seconds"] <= 1.0 and figures["read_kib"] <= 50 * 1024


class Small(torch.nn.Module):
    """A transformer of one block, as GPT: learned places, causal attention, and one weight for embedding and head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(BLOCK, WIDTH)
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.three, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, tokens):
        y = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        q, k, v = self.three(self.before(y)).chunk(3, -1)
        y = y + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        y = y + self.down(torch.nn.functional.gelu(self.up(self.after(y))))
        return torch.nn.functional.linear(y, self.words.weight)


def trained_by_pytorch(model, inputs, targets, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in batches:
        optimizer.zero_grad()
        logits = model(torch.from_numpy(inputs[batch]))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets[batch]).flatten()).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("ranks", (1, 3))
def test_a_language_model_is_trained_as_pytorch_trains_it(onebatch, tmp_path, ranks):
    arrays = [tokens(1500, 7), tokens(700, 8)]
    folder = tmp_path / "text"
    folder.mkdir()
    for i, values in enumerate(arrays):
        values.tofile(folder / f"{i}.bin")
    torch.manual_seed(1)
    model = Small().double()
    torch.jit.trace(model, torch.zeros(2, BLOCK, dtype=torch.long)).save(tmp_path / "model.pt")
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, path=folder, data=f"vocabulary = {VOCABULARY}\nseparator = 0"))
    onebatch.run(ranks, "train", config, *settings("run.device=cpu"))
    run = tmp_path / "run"
    batches = [line["indices"] for line in read_json_lines(run / "samples.jsonl")]
    assert len(batches) == 6 and len(batches[0]) == 12
    inputs, targets = blocks_of(arrays)
    expected = trained_by_pytorch(model, inputs, np.where(inputs == 0, -100, targets), batches)
    ours = load_file(run / "checkpoints" / "latest" / "model.safetensors")
    worst = max((ours[name].double() - value).abs().max().item() for name, value in expected.items())
    print(f"{ranks} ranks: {worst:.1e} from PyTorch's weights")
    assert worst < 1e-12


def test_keys_that_are_needed_are_asked_for(onebatch, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, path="", data="").replace("block_size = 16\n", ""))
    out = onebatch.run(1, "train", config, code=2)
    assert "data.path" in out and "data.block_size" in out and "is needed" in out
    config.write_text(CONFIG.format(folder=tmp_path, path="x.bin", data="vocabulary = 9\nseparator = 9"))
    assert "write 0 … 8" in onebatch.run(1, "train", config, code=2)


def test_a_file_that_shrinks_during_a_run_ends_it_with_its_name(onebatch, tmp_path):
    """And not with SIGBUS, on any rank."""
    path = pathlib.Path(tmp_path / "a.bin")
    tokens(200_000, 9).tofile(path)
    torch.jit.trace(Small().double(), torch.zeros(2, BLOCK, dtype=torch.long)).save(tmp_path / "model.pt")
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, path=path, data=f"vocabulary = {VOCABULARY}").replace("max_steps = 6", "epochs = 1000"))
    process = onebatch.start(2, "train", config, *settings("run.device=cpu", "log.every_steps=1"))
    for line in process.stdout:
        if line.startswith("step "):
            break
    with open(path, "r+b") as file:
        file.truncate(1000)
    out, _ = process.communicate(timeout=100)
    assert process.returncode not in (0, None) and "a.bin was changed while it is trained on (it had 400000 bytes, it has 1000)" in out, out
    assert "SIGBUS" not in out and "Bus error" not in out
