"""Runs on the stand-in: their configuration, and what is expected of one that trains."""
from program import read_json_lines

CONFIGURATION = """
[run]
max_steps = {steps}
output_dir = "{folder}"
name = "run"
device = "cuda"
deterministic = {deterministic}
[batch]
global_batch_size = 24
{batch}
[data]
kind = "synthetic"
shape = {shape}
size = 96
[model]
{model}
[probe]
steps_per_trial = 1
[comm]
timeout_seconds = {timeout}
bucket_cap_mb = {bucket}
overlap = {overlap}
[checkpoint]
every_steps = 0
{more}
"""
MODELS = {"mlp": ("[64]", 'kind = "mlp"\nhidden = [32]\ndropout = 0.1'), "resnet": ("[3, 16, 16]", 'kind = "resnet"\nstem = "cifar"\ndepth = 8')}
PRECISIONS = {"float32": "", "bfloat16": '[precision]\ncompute = "bfloat16"', "float16": '[precision]\ncompute = "float16"',
              "float64": '[precision]\ncompute = "float64"\nparameters = "float64"', "short_parameters": '[precision]\ncompute = "bfloat16"\nparameters = "bfloat16"'}


# `model`: one of them, or a shape and what stands below [model].
def configuration(folder, model="resnet", steps=5, batch="", deterministic="false", timeout=60, bucket=25, overlap='"auto"', more=""):
    shape, text = MODELS.get(model, model)
    path = folder / "run.toml"
    path.write_text(CONFIGURATION.format(folder=folder / "runs", steps=steps, shape=shape, model=text, batch=batch, deterministic=deterministic, timeout=timeout, bucket=bucket,
                                         overlap=overlap, more=more))
    return path


def expect_trained(done, steps, folder):
    __tracebackhide__ = True
    assert done.code == 0, done.words
    assert not done.defects, done.words
    assert [line["step"] for line in read_json_lines(folder / "runs/run/metrics.jsonl")] == list(range(1, steps + 1))
    assert done.total("kernels") > 0 and done.total("overwritten_sources") == 0


def mode(name):
    return f'[batch_norm]\nmode = "{name}"'
