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
# Of a program and data in the folder.
EXPORTED = """
[run]
max_steps = {steps}
output_dir = "{runs}"
name = "run"
device = "cuda"
[batch]
global_batch_size = 12
micro_batch_size = {micro}
replan = "never"
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
inputs = {inputs}
[model]
kind = "exported"
path = "{folder}/model.pt2"
{model}
[precision]
compute = "{compute}"
[batch_norm]
mode = "{mode}"
[memory]
recompute = {recompute}
[probe]
steps_per_trial = 1
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


def counts_of_a_step(null_gpu, folder, model, ranks=1, *, changes=(), name="of", more="", **options):
    """counts_between() of a model of configuration(), whose options the other ones are."""
    options = {"batch": 'micro_batch_size = 6\nreplan = "never"', "more": "[verify]\nat_start = false\n" + more, **options}
    return counts_between(null_gpu, folder, lambda steps: configuration(folder, model, steps=steps, **options), ranks, changes, name)


def counts_between(null_gpu, folder, config_of, ranks=1, changes=(), name="of"):
    """What was counted a step, for each rank, and the last run's words: of runs of 3 and of 7 steps under one plan, apart in nothing else. After 8 steps times are compared
    with the plan's. `config_of`: of a number of steps, the file. `changes`: words for the command line."""
    planned = null_gpu.run(ranks, "train", config_of(1), *changes, "--set", f'run.name="{name}-plan"')
    assert planned.code == 0, planned.words
    counts = []
    for steps in (3, 7):
        done = null_gpu.run(ranks, "train", config_of(steps), *changes, "--plan", folder / f"runs/{name}-plan/plan.json", "--set", f'run.name="{name}-{steps}"')
        assert done.code == 0 and not done.defects, done.words
        counts.append({process["rank"]: process for process in done.counts})
    few, many = counts
    return [{key: (many[rank][key] - few[rank][key]) / 4 for key in few[rank] if key not in ("rank", "process")} for rank in range(ranks)], done.words
