"""model.compiled = "auto": a run makes its native code, keeps it for the next one, takes it where it is true and faster, and goes on without it everywhere else."""
import json
import pathlib
import re
import shutil
import signal

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402

from compiled_cases import AS_SMOOTHED, MLP, PYTHON, SEGMENTS, SMOOTHED, USED, Exported, changed, error_of, kept_in, running, wait_until  # noqa: E402
from program import settings  # noqa: E402

NO_PYTHON = {"ONEBATCH_PYTHON": "/bin/false"}
STEADY = ['run.deterministic=true']  # no choice by times
PLAIN = "the run goes on uncompiled: "


class Made:
    """A program, and a cache with what its first run has made."""

    def __init__(self, folder, onebatch):
        self.onebatch, self.case = onebatch, Exported(folder, MLP)
        self.said, self.weights = self.auto(environment=PYTHON)
        self.place = kept_in(self.said)

    def auto(self, more=STEADY, **options):
        return self.case.train_and_say(self.onebatch, compiled="auto", more=more, **options)

    def copy(self, folder):
        """Of the cache: the environment that names it, and the package's folder there."""
        target = folder / "cache/onebatch/compiled"
        shutil.copytree(self.place.parent, target)
        target.chmod(0o700)
        return {"XDG_CACHE_HOME": str(folder / "cache")}, target / self.place.name


@pytest.fixture(scope="module")
def made(onebatch, tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made"), onebatch)


def entries(folder):
    """Of a cache: packages, and what is on its way to one."""
    return sorted(path.name for path in (folder / "onebatch/compiled").iterdir() if path.suffix != ".lock")


def test_the_first_run_makes_it(made):
    assert f"compiling {made.case.scratch.path}/model.pt2 for this machine: half a minute or more; kept in {made.place}" in made.said
    assert f"{made.place} {USED}; run.deterministic leaves no choice to times" in made.said and PLAIN not in made.said
    assert not (made.place / "evaluation.pt2").exists()  # it does not validate
    assert made.place.stat().st_mode & 0o077 == 0 and made.place.parent.stat().st_mode & 0o077 == 0


def test_it_trains_as_the_program_and_as_a_folder_that_is_named(made, onebatch):
    assert error_of(made.weights, made.case.train(onebatch, more=STEADY)) <= 1e-12
    assert error_of(made.weights, made.case.train(onebatch, compiled=made.place, more=STEADY)) == 0.0


def test_classes_that_are_second_by_the_shapes(onebatch, tmp_path):
    """What the run has settled by itself, and class weights."""
    case = Exported(tmp_path, SEGMENTS)
    said, weights = case.train_and_say(onebatch, compiled="auto", more=STEADY, environment=PYTHON)
    assert USED in said and error_of(weights, case.train(onebatch, more=STEADY)) <= 1e-12


def test_the_next_run_needs_no_python(made):
    said, weights = made.auto(environment=NO_PYTHON)
    assert f"{made.place} {USED}" in said and "compiling" not in said
    assert error_of(weights, made.weights) == 0.0


def test_the_probe_tells_compiled_from_uncompiled(made, onebatch):
    probes = pathlib.Path(onebatch.environment["XDG_CACHE_HOME"]) / "onebatch/probe"
    identities = [json.loads(file.read_text())["identity"] for file in probes.glob("*.json")]
    assert any(str(made.place) in identity for identity in identities)


def test_times_decide_and_are_said(made):
    """Of code of its own, which may add by atomics."""
    said, weights = made.auto(more=[], environment=PYTHON)
    ratio = float(re.search(r"compiled micro-batches take ([\d.]+) of the time", said)[1])
    assert ratio <= 1.0 if USED in said else ratio >= 1.0
    assert (USED in said) != (PLAIN in said)
    assert error_of(weights, made.weights) <= 1e-12


def test_two_ranks_make_it_once(made, tmp_path):
    """And the one that waits does so longer than a collective may take."""
    said, weights = made.auto(ranks=2, more=[*STEADY, "comm.timeout_seconds=4"], environment={**PYTHON, "XDG_CACHE_HOME": str(tmp_path)})
    assert said.count("compiling ") >= 1 and said.count(USED) == 1
    assert entries(tmp_path) == [made.place.name]
    assert error_of(weights, made.weights) <= 1e-12


def of_two_caches(made, onebatch, folder, pairs, environment):
    """A rank with the package, and one with a cache of its own."""
    words = []
    for cache in (onebatch.environment["XDG_CACHE_HOME"], folder):
        words += [":"] * bool(words) + ["-np", "1", "env", f"XDG_CACHE_HOME={cache}", onebatch.path, "train", str(made.case.scratch.config), *pairs]
    return onebatch.finish(["mpirun", "--oversubscribe", "--bind-to", "none", *words], environment)


def test_a_rank_waits_for_one_on_another_machine(made, onebatch, tmp_path):
    """Which has a cache of its own, and nothing in it."""
    pairs = settings('model.compiled="auto"', 'run.name="unlike"', "comm.timeout_seconds=4", *STEADY)
    done = of_two_caches(made, onebatch, tmp_path, pairs, PYTHON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept_in(done.stdout).parents[2] == tmp_path and USED in done.stdout
    assert entries(tmp_path) == [made.place.name]


def test_a_rank_that_cannot_keeps_all_from_it(made, onebatch, tmp_path):
    pairs = settings('model.compiled="auto"', 'run.name="one"', *STEADY)
    done = of_two_caches(made, onebatch, tmp_path, pairs, NO_PYTHON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{PLAIN}rank 1: no Python here can compile") == 1 and USED not in done.stdout


def test_verify_holds(made, onebatch):
    said = onebatch.run(2, "verify", made.case.scratch.config, *settings('model.compiled="auto"', *STEADY), environment=NO_PYTHON)
    assert USED in said


def test_a_run_goes_on_without_it(made, onebatch):
    pairs = settings('run.name="on"', *STEADY)
    onebatch.run(1, "train", made.case.scratch.config, *pairs, "--set", 'model.compiled="auto"', environment=NO_PYTHON)
    said = onebatch.run(1, "train", made.case.scratch.config, *pairs, "--set", 'model.compiled="never"', "--set", "run.max_steps=4", "--resume")
    assert "step 4/4" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_of_what_is_stopped(number, made, onebatch, tmp_path):
    pairs = settings('model.compiled="auto"', f'run.name="stopped-{number}"', *STEADY)
    process = onebatch.start(1, "train", made.case.scratch.config, *pairs, environment={**PYTHON, "XDG_CACHE_HOME": str(tmp_path)})
    making = tmp_path / f"onebatch/compiled/{made.place.name}.making"
    wait_until(lambda: list(making.glob("package.*")))
    process.send_signal(number)
    said, _ = process.communicate(timeout=90)
    wait_until(lambda: not running(tmp_path))
    if number == signal.SIGINT:
        assert process.returncode == 75 and said.count(PLAIN + "it was to stop while the program was compiled") == 1
        assert entries(tmp_path) == []
    else:
        assert made.place.name not in entries(tmp_path)  # the next one clears up


REFUSED = {
    "recomputed": (["memory.recompute=2"], 'does not go with a number of segments: write memory.recompute = "auto"'),
    "bitwise": (['run.deterministic="bitwise"'], "does not go with run.deterministic"),
    "another output": (['model.output="0"'], "does not go with model.output"),
}


@pytest.mark.parametrize("pairs, words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compiled_goes_on_without_and_says_so_once(pairs, words, made, tmp_path):
    said, _ = made.auto(more=pairs, environment={**PYTHON, "XDG_CACHE_HOME": str(tmp_path)})
    assert said.count(f'{PLAIN}model.compiled = "auto" {words}') == 1 and said.count(PLAIN) == 1
    assert not (tmp_path / "onebatch/compiled").exists()


def test_without_python_it_goes_on(made, tmp_path):
    said, weights = made.auto(environment={**NO_PYTHON, "XDG_CACHE_HOME": str(tmp_path)})
    assert said.count(f'{PLAIN}no Python here can compile: ONEBATCH_PYTHON = "/bin/false" ended with code 1') == 1
    assert error_of(weights, made.weights) <= 1e-12


class Drawing(nn.Module):
    """Draws by itself, which is not compiled yet."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(x + 0.1 * torch.rand_like(x))


def test_a_failure_is_kept_until_it_is_removed(onebatch, tmp_path):
    case = Exported(tmp_path, (Drawing, MLP[1], {}, MLP[3], SMOOTHED, AS_SMOOTHED))
    said, _ = case.train_and_say(onebatch, compiled="auto", environment=PYTHON)
    file = re.search(r"which is kept: remove (\S+) for another try", said)[1]
    assert said.count(PLAIN) == 1 and "draws random numbers of its own" in said, said
    said, _ = case.train_and_say(onebatch, compiled="auto", environment=NO_PYTHON)
    assert f"remove {file} for another try" in said and "compiling" not in said and said.count(PLAIN) == 1
    pathlib.Path(file).unlink()
    said, _ = case.train_and_say(onebatch, compiled="auto", environment=NO_PYTHON)
    assert "no Python here can compile" in said


def test_a_damaged_one_is_made_anew(made, tmp_path):
    environment, place = made.copy(tmp_path)
    raw = bytearray((place / "training.pt2").read_bytes())
    raw[len(raw) // 2] ^= 1
    (place / "training.pt2").write_bytes(raw)
    said, _ = made.auto(environment={**environment, **NO_PYTHON})
    assert f"{PLAIN}no Python here can compile" in said
    said, weights = made.auto(environment={**environment, **PYTHON})
    assert kept_in(said) == place and f"{place} {USED}" in said
    assert error_of(weights, made.weights) == 0.0


OTHERS = {"the folder": lambda place: place.parent, "the package": lambda place: place, "a file": lambda place: place / "training.pt2"}


@pytest.mark.parametrize("which", OTHERS.values(), ids=OTHERS)
def test_a_cache_that_others_may_write_to_is_refused(which, made, tmp_path):
    environment, place = made.copy(tmp_path)
    path = which(place)
    path.chmod(path.stat().st_mode | 0o020)
    said, _ = made.auto(code=2, environment={**environment, **NO_PYTHON})
    assert f"{path} is not this user's alone to write" in said


def test_one_that_is_not_true_is_not_used(made, tmp_path):
    def swap(document):
        names = document["training"]["gradients"]
        one, other = names.index("b.bias"), names.index("c.bias")
        names[one], names[other] = names[other], names[one]

    environment, place = made.copy(tmp_path)
    changed(place, swap)
    said, weights = made.auto(environment={**environment, **NO_PYTHON})
    assert said.count(PLAIN) == 1 and "it is not used" in said
    assert error_of(weights, made.weights) <= 1e-12


def test_an_evaluation_makes_none(made, onebatch, tmp_path):
    pairs = settings('model.compiled="auto"', "data.validation.fraction=0.3")
    run = sorted(made.case.scratch.runs.iterdir())[0]
    said = onebatch.run(1, "eval", made.case.scratch.config, "--checkpoint", run, *pairs, environment={**PYTHON, "XDG_CACHE_HOME": str(tmp_path)})
    assert "compil" not in said
