"""Each mistake that a user makes: a clear message, the right exit code, nothing lost."""
import resource
import shutil

import pytest

from program import DIGITS_RESNET, ROOT, Scratch, settings, write_safetensors


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(onebatch, scratch):
    assert "did you mean train" in onebatch.run(1, "trian", scratch.config, code=2)


@pytest.mark.parametrize("arguments, words", [
    ((), "a command is needed: onebatch --help lists them"),
    (("train",), "onebatch train: CONFIG is required; onebatch train --help says more"),
    (("eval", "x.toml"), "onebatch eval: --checkpoint is required"),
])
def test_too_few_arguments_are_a_mistake(onebatch, arguments, words):
    assert words in onebatch.run(1, *arguments, code=2)


def test_a_file_that_is_no_toml_lacks_nothing_else(onebatch, scratch):
    scratch.config.write_text("[run\nepochs = 1\n")
    out = onebatch.run(1, "train", scratch.config, code=2)
    assert f"{scratch.config}:1:5: " in out and "1 mistake in" in out


def test_a_folder_is_no_configuration(onebatch, scratch):
    assert "is a folder: write the name of a file" in onebatch.run(1, "train", scratch.path, code=2)


def test_a_checkpoint_that_is_not_there_is_said_before_anything_else(onebatch, scratch):
    out = onebatch.run(2, "eval", scratch.config, "--checkpoint", scratch.path / "none", code=2)
    assert out.count("no checkpoint at") == 1 and "model " not in out


def test_a_missing_configuration_is_named(onebatch):
    assert "nowhere.toml" in onebatch.run(1, "train", "nowhere.toml", code=2)


def test_ranks_say_a_mistake_once(onebatch):
    assert onebatch.run(2, "train", "nowhere.toml", code=2).count("cannot read nowhere.toml") == 1


def test_all_mistakes_of_a_configuration_are_said_at_once_before_anything_is_made(onebatch, scratch):
    out = onebatch.run(3, "train", scratch.config, *settings("optimizer.lrr=1", "batch.global_batch_size=0"), code=2)
    assert out.count("did you mean optimizer.lr") == 1
    assert "batch.global_batch_size: write" in out
    assert "2 mistakes" in out
    assert not scratch.runs.exists()


def test_workers_of_an_older_file_are_accepted_as_none_and_said_once(onebatch, scratch):
    scratch.config.write_text(scratch.config.read_text().replace("[data.validation]\n", "[data.validation]\nworkers = 0\n"))
    out = onebatch.run(2, "plan", scratch.config)
    assert out.count("data.validation.workers: there are no workers: the thread that trains reads these samples; leave the key out") == 1


def test_workers_that_there_are_not_are_refused(onebatch, scratch):
    out = onebatch.run(1, "plan", scratch.config, *settings("data.validation.workers=2"), code=2)
    assert "the thread that trains reads these samples; leave the key out" in out


def test_missing_data_are_named(onebatch, scratch):
    out = onebatch.run(2, "train", scratch.config, *settings("data.path=/nonexistent"), code=2)
    assert "train-images-idx3-ubyte" in out
    assert "/nonexistent" in out


def test_a_bad_path_of_validation_is_not_the_training_datas(onebatch, scratch):
    out = onebatch.run(1, "train", scratch.config, *settings("data.validation.path=/nonexistent"), code=2)
    assert "no t10k-images-idx3-ubyte and no t10k-images-idx3-ubyte.gz in /nonexistent: data.validation.path" in out


def test_validation_files_may_lie_alone(onebatch, scratch):
    held = scratch.path / "held"
    held.mkdir()
    for file in (ROOT / "data/digits").glob("t10k-*"):
        shutil.copy(file, held)
    out = onebatch.run(1, "data", scratch.config, *settings(f"data.validation.path={held}"))
    assert "validation: 297 samples" in out


@pytest.fixture
def tabular(scratch):
    def configured(*pairs, **tensors):
        write_safetensors(scratch.path / "x.safetensors", **tensors)
        return (scratch.config, *settings("data.kind=safetensors", f"data.path={scratch.path / 'x.safetensors'}", "data.validation.fraction=0.2", *pairs))

    return configured


def test_squared_errors_leave_no_label_out(onebatch, tabular):
    assert '"mse" takes no label_smoothing, no class_weights and no ignore_index' in onebatch.run(1, "train", *tabular("loss.kind=mse", "loss.ignore_index=3", **NUMBERS), code=2)


def test_a_shape_of_validation_that_no_model_takes_beside_the_other_is_named(onebatch, tabular, scratch):
    write_safetensors(scratch.path / "v.safetensors", x=("F32", [2, 4], [0.0] * 8), y=("F32", [2, 1], [0.0, 1.0]))
    out = onebatch.run(1, "train", *tabular("loss.kind=mse", "model.num_classes=1", "data.validation.fraction=0", f"data.validation.path={scratch.path / 'v.safetensors'}", **NUMBERS), code=2)
    assert "a sample of data.validation has the shape [4], and one of the training data [3]" in out


NUMBERS = {"x": ("F32", [20, 3], [i / 60 for i in range(60)]), "y": ("F32", [20, 1], [float(i) for i in range(20)])}


@pytest.mark.parametrize("pairs, words", [
    ((), "model.num_classes = 0 is as many as the data has classes, and it has none: write how many numbers"),
    (("model.num_classes=2",), "returns [2, 2] for targets [2, 1]: mean squared error needs the same shape; let the model return 1 for each sample (model.num_classes = 1 "),
])
def test_how_many_numbers_a_model_returns_is_asked_for(onebatch, tabular, pairs, words):
    assert words in onebatch.run(1, "train", *tabular("loss.kind=mse", *pairs, **NUMBERS), code=2)


def test_whole_numbers_in_the_place_of_floats_are_named(onebatch, tabular):
    out = onebatch.run(1, "train", *tabular(x=("I64", [20, 3], list(range(60))), y=("I64", [20], [i % 3 for i in range(20)])), code=2)
    assert 'save data.inputs "x" so, as x.float(), or images in 8 bits with data.mean and data.std' in out
    assert "warning" not in out and "Shapes that fit" not in out


def test_torn_data_are_refused(onebatch, scratch):
    bad = scratch.path / "bad"
    bad.mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (bad / name).write_bytes(b"\0\0\x08\x03\0\0\0\x05")
    assert "whole IDX file" in onebatch.run(1, "train", scratch.config, *settings(f"data.path={bad}"), code=2)


def test_too_many_ranks_for_the_devices_that_are_played_are_refused_with_a_command(onebatch, scratch):
    assert "mpirun -np 4" in onebatch.run(5, "train", scratch.config, code=2)


def test_a_gpu_that_is_not_there_is_said(onebatch, scratch):
    out = onebatch.run(1, "train", scratch.config, *settings("run.device=cuda", "simulate.devices=[]"), code=(0, 2))
    assert "CUDA" in out or "done" in out


def test_a_model_that_does_not_fit_is_said_to(onebatch, scratch):
    out = onebatch.run(1, "train", scratch.config, *settings('simulate.devices=[{memory = "20KiB"}]'), code=3)
    assert "parameters, gradients and optimizer state" in out


def test_a_micro_batch_that_does_not_fit_is_answered_with_the_largest_that_does(onebatch, scratch):
    out = onebatch.run(1, "train", scratch.config, *settings('simulate.devices=[{memory = "200KiB"}]', "batch.micro_batch_size=200"), code=3)
    assert "the largest that does is" in out


def test_validation_that_does_not_fit_is_said_to(onebatch, tmp_path):
    """One sample takes 4 MiB in the first layer, and all of the model 1 MiB."""
    scratch = Scratch(tmp_path, DIGITS_RESNET)
    pairs = settings("data.kind=synthetic", "data.shape=[3, 256, 256]", "data.size=2", "batch.global_batch_size=2", "run.max_steps=1")
    onebatch.run(1, "train", scratch.config, "--quiet", *pairs, *settings("simulate.devices=[{}]"))
    out = onebatch.run(1, "eval", scratch.config, *pairs, *settings('simulate.devices=[{memory = "2MiB"}]'), "--checkpoint", scratch.runs / "run", code=3)
    assert "out of memory: tried to allocate" in out and "cannot even hold" not in out


def test_somebody_elses_folder_is_left_alone(onebatch, scratch):
    mine = scratch.path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    out = onebatch.run(1, "train", scratch.config, *settings(f"run.output_dir={scratch.path}", "run.name=mine"), code=2)
    assert "not a run's folder" in out
    assert (mine / "thesis.tex").exists()


def test_a_place_that_cannot_be_written_is_named(onebatch, scratch):
    assert "/proc/nowhere" in onebatch.run(1, "train", scratch.config, *settings("run.output_dir=/proc/nowhere"), code=2)


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    made = Scratch(tmp_path_factory.mktemp("trained"))
    onebatch.run(2, "train", made.config, "--quiet", *settings("checkpoint.every_steps=5", "checkpoint.keep=0"))
    return made


@pytest.fixture
def copied(trained, scratch):
    """A run with checkpoints that a test may damage."""
    shutil.copytree(trained.runs, scratch.runs, symlinks=True)
    return scratch


def newest_weights(scratch):
    return scratch.runs / "run" / "checkpoints" / "step-18" / "model.safetensors"


def tear(file):
    file.write_bytes(file.read_bytes()[:-5])


def test_a_checkpoint_of_another_model_is_refused(onebatch, copied):
    out = onebatch.run(2, "train", copied.config, "--resume", *settings("model.hidden=[32]"), code=2)
    assert "the checkpoint has model.hidden = [64, 48], not [32]" in out


def test_a_folder_without_a_checkpoint_is_none(onebatch, scratch):
    assert "no checkpoint" in onebatch.run(1, "eval", scratch.config, "--checkpoint", scratch.path, code=2)


def test_a_torn_checkpoint_gives_way_to_the_one_before(onebatch, copied):
    tear(newest_weights(copied))
    out = onebatch.run(1, "train", copied.config, "--resume")
    assert "is torn" in out
    assert "step 15" in out


def test_strict_makes_a_torn_checkpoint_an_error(onebatch, copied):
    tear(newest_weights(copied))
    assert "is torn" in onebatch.run(1, "train", copied.config, "--resume", "--strict", code=2)


def test_torn_weights_are_refused(onebatch, trained, scratch):
    weights = scratch.path / "w.safetensors"
    weights.write_bytes(newest_weights(trained).read_bytes()[:100])
    assert "safetensors" in onebatch.run(1, "train", scratch.config, *settings(f"model.weights={weights}"), code=2)


def test_a_full_disk_ends_the_run_names_the_file_and_leaves_no_half_checkpoint(onebatch, scratch):
    quota = (20000, 20000)  # in a full disk's place
    done = onebatch.finish(onebatch.command_line(1, "train", scratch.config), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, quota))
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr
    checkpoints = scratch.runs / "run" / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == [] if checkpoints.exists() else True


def test_a_profile_that_is_none_is_refused(onebatch, scratch):
    profile = scratch.path / "p.json"
    profile.write_text('{"ranks": [{"max_micro_batch": 4}]}')
    assert "step_seconds" in onebatch.run(1, "plan", scratch.config, "--profile", profile, code=2)


def test_processes_under_slurm_without_its_mpi_are_not_silent_copies(onebatch, scratch):
    of_mpi = {key: None for key in onebatch.environment if key.startswith(("OMPI_COMM", "PMIX", "PMI_"))}
    done = onebatch.finish(onebatch.command_line(1, "train", scratch.config), {**of_mpi, "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"})
    assert done.returncode == 2
    assert "srun --mpi=pmix" in done.stderr
