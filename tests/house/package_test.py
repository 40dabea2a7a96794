"""Installs and packs the build, then uses both as a stranger would: programs of its own against the library, plugins of its own in the installed program, the
archive's program from where it was unpacked."""
import os
import pathlib
import subprocess

import pytest

from null_gpu.stand_in import NullGpu
from program import ROOT, Program, settings

DEADLINE_SECONDS = 400


def run(*command, **options):
    __tracebackhide__ = True
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_SECONDS, **options)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))} returned {done.returncode}\n{done.stdout}")
    return done.stdout


@pytest.fixture(scope="module")
def cmake(request):
    return request.config.getoption("--cmake")


@pytest.fixture(scope="module")
def build(request):
    build = pathlib.Path(request.config.getoption("--build")).resolve()
    if "/stand_ins/lib/" in run("ldd", build / "onebatch"):
        pytest.skip("a build with stand-ins for CUDA's libraries is not installed")
    return build


@pytest.fixture(scope="module")
def prefix(cmake, build, tmp_path_factory):
    """Where the package is installed."""
    where = tmp_path_factory.mktemp("prefix")
    run(cmake, "--install", build, "--prefix", where)
    return where


@pytest.fixture(scope="module")
def build_against(cmake, prefix, tmp_path_factory):
    """Builds a folder that says find_package(onebatch); where its programs and shared objects lie then."""

    def build_folder(folder):
        built = tmp_path_factory.mktemp("built")
        run(cmake, "-G", "Ninja", "-S", ROOT / folder, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run(cmake, "--build", built, "--parallel", "2")
        return built

    return build_folder


@pytest.fixture(scope="module")
def example(build_against):
    """#include <onebatch/trainer.hpp>."""
    return build_against("examples/library")


def test_the_manual_page_and_completions_are_where_they_are_looked_for(prefix):
    assert "onebatch doctor" in (prefix / "share/man/man1/onebatch.1").read_text()
    for place, words in (("bash-completion/completions/onebatch", "complete -F"), ("zsh/site-functions/_onebatch", "#compdef onebatch"),
                         ("fish/vendor_completions.d/onebatch.fish", "complete -c onebatch")):
        assert words in (prefix / "share" / place).read_text(), place


def test_a_program_with_the_library_trains_and_writes_nothing_without_a_run_folder(example, tmp_path):
    said = run(example / "train_digits", ROOT / "data/digits", cwd=tmp_path)
    assert "epoch 2: validation loss" in said
    assert "30 steps" in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def said_of_own_kinds(example, tmp_path_factory):
    """What a program says that trains with a model, data, an optimizer, a schedule and a loss of its own, and listens by a sink of its own."""
    return run(example / "train_own_kinds", cwd=tmp_path_factory.mktemp("own_kinds"))


def test_a_program_trains_with_kinds_of_its_own(said_of_own_kinds):
    assert "100 steps" in said_of_own_kinds
    assert float(said_of_own_kinds.split("accuracy ")[1].split()[0]) > 0.8


def test_the_keys_of_a_programs_own_kinds_are_described_and_checked(said_of_own_kinds):
    assert "model.waist: write a whole number from 1 to 4096" in said_of_own_kinds
    assert "schedule.period: triangle: steps" in said_of_own_kinds
    assert "loss.gamma: focal: power of" in said_of_own_kinds


def test_a_programs_own_sink_hears_of_the_run(said_of_own_kinds):
    assert "best epoch" in said_of_own_kinds


def test_a_kind_or_a_sink_of_ones_own_is_one_file_and_a_line_in_a_list():
    """No other file of the program names one."""
    own = ROOT / "examples/library"
    build_list = (own / "CMakeLists.txt").read_text().splitlines()
    for file in (*own.glob("kinds/*.cpp"), *own.glob("sinks/*.cpp")):
        assert sum(f"{file.parent.name}/{file.name}" in line for line in build_list) == 1


def test_all_parts_of_ones_own_are_trained_in_40_lines_on_any_number_of_ranks(example, tmp_path):
    assert len((ROOT / "examples/library/any_module.cpp").read_text().splitlines()) <= 40
    losses = []
    for ranks in (1, 2):
        said = run("mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks, example / "any_module", cwd=tmp_path, env=dict(os.environ, OMP_NUM_THREADS="1"))
        losses.append([float(line.split()[1]) for line in said.splitlines() if line.startswith("loss ")])
    for of_run in losses:
        assert len(of_run) == 20  # 5 epochs of 200 samples
        assert of_run[-1] < 0.5 * of_run[0]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.1)  # BatchNorm is local


PLUGIN_RUN = """
[run]
epochs = 2
output_dir = "{runs}"
[batch]
global_batch_size = 101
micro_batch_size = 17
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "plugin"
path = "{path}"
[optimizer]
lr = 0.01
[batch_norm]
mode = "exact"
"""


@pytest.fixture(scope="module")
def installed(prefix, tmp_path_factory):
    return Program(prefix / "bin/onebatch", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def gated(build_against):
    """The plugin of the examples."""
    return build_against("examples/plugin") / "libgated.so"


@pytest.fixture(scope="module")
def faulty(build_against):
    return build_against("tests/house/faulty_plugin")


@pytest.fixture
def of_plugin(tmp_path):
    """A configuration with the model of that file."""

    def write(path):
        config = tmp_path / "run.toml"
        config.write_text(PLUGIN_RUN.format(runs=tmp_path / "runs", path=path))
        return config

    return write


def test_a_plugin_is_trained(installed, gated, of_plugin):
    said = installed.run(2, "train", of_plugin(gated), *settings('model.options="24"'))
    assert said.count("libgated.so is a plugin: it is code, and runs with your rights") == 1
    assert float(said.split("validation accuracy ")[1].split()[0]) > 80.0


def test_a_plugins_gradient_is_the_large_batchs_in_every_mode(installed, gated, of_plugin):
    """Exact BatchNorm takes the module apart, recomputation too; its dropout is drawn by sample."""
    frozen = ("batch_norm.frozen=true", "batch_norm.mode=local")
    for mode in ((), frozen, (*frozen, "memory.recompute=2")):
        assert "PASS" in installed.run(2, "verify", of_plugin(gated), *settings(*mode))


@pytest.mark.parametrize("more", [(), ("batch_norm.mode=local", "precision.compute=bfloat16"), ("batch_norm.mode=local", "memory.recompute=2")])
def test_a_plugin_runs_on_a_gpu(prefix, build, gated, of_plugin, tmp_path, more):
    """On the one that computes nothing, where the build has it."""
    if not (build / "tests/libnull_gpu.so").exists():
        pytest.skip("a build without CUDA has no null GPU")
    done = NullGpu(build, tmp_path).run(2, "train", of_plugin(gated), *settings("run.device=cuda", "run.epochs=1", *more), program=prefix / "bin/onebatch")
    assert done.code == 0 and not done.defects and done.total("kernels") > 0, done.words


def test_a_plugin_may_compute_the_loss_itself(installed, faulty, of_plugin):
    choices = settings("loss.kind=model", "model.options=loss", "run.max_steps=2")
    assert "PASS" in installed.run(2, "verify", of_plugin(faulty / "libfaulty.so"), *choices)


def refusal(installed, config, *choices):
    said = installed.run(1, "train", config, *settings(*choices), code=2)
    return next(line for line in said.splitlines() if "model." in line), "the file was loaded" in said


def stamped_otherwise(plugin, to, there, here):
    """A copy that says that it was built for something else."""
    raw = plugin.read_bytes()
    stamp = raw.index(b"onebatch plugin stamp:")
    to.write_bytes(raw[:stamp] + raw[stamp:].replace(here.encode() + b"\0", there.encode().ljust(len(here) + 1, b"\0"), 1))
    return to


def test_a_file_that_is_no_plugin_for_this_program_is_refused_and_not_loaded(installed, faulty, of_plugin, tmp_path):
    plugin = faulty / "libfaulty.so"
    (tmp_path / "text.so").write_text("no shared object at all, in more than the 64 bytes that an ELF header has\n")
    (tmp_path / "cut.so").write_bytes(plugin.read_bytes()[: plugin.read_bytes().index(b"onebatch plugin stamp:") + 300])
    version = run(installed.path, "--version").split()[-1]
    libtorch = run(installed.path, "info").split("libtorch: ")[1].split()[0]
    for path, words in (
        (tmp_path / "missing.so", "is no file"),
        (tmp_path / "text.so", "invalid ELF header"),
        (tmp_path / "cut.so", "ends before its headers say"),
        (faulty / "libno_plugin.so", "is no plugin, and was not loaded"),
        (stamped_otherwise(plugin, tmp_path / "old.so", "0.0.1", version), f"was built for onebatch 0.0.1 (plugin interface 1), and this is onebatch {version}"),
        (stamped_otherwise(plugin, tmp_path / "torch.so", "1.9.1", libtorch), f"was built with LibTorch 1.9.1, and this onebatch with {libtorch}"),
        (stamped_otherwise(plugin, tmp_path / "abi.so", "libc++", "libstdc++"), "was built with libc++, and this onebatch with libstdc++"),
        (faulty / "libno_factory.so", "has no factory"),
        (faulty / "libunresolved.so", "undefined symbol: nowhere"),
    ):
        line, loaded = refusal(installed, of_plugin(path))
        assert words in line
        assert not loaded


def test_what_a_plugin_gives_that_is_no_model_is_refused(installed, faulty, of_plugin):
    config = of_plugin(faulty / "libfaulty.so")
    for options, words in (
        ("throws", "its factory throws: no width of 0"),
        ("throws a number", "its factory throws: what is no std::exception"),
        ("null", "returns no module, but a null pointer"),
        ("nothing to train", "no parameter of the module requires a gradient"),
        ("loss", "is given 1 tensor(s), and takes another number"),
    ):
        line, loaded = refusal(installed, config, f"model.options={options}")
        assert words in line
        assert loaded
    assert "model.path: is needed" in refusal(installed, config, 'model.path=""')[0]
    assert 'belongs to model.kind = "plugin"' in refusal(installed, config, "model.kind=torchscript", "model.options=x")[0]


@pytest.fixture(scope="module")
def unpacked(cmake, build, tmp_path_factory):
    """The archive is whole: nothing but its own place and the system's libraries is needed."""
    scratch = tmp_path_factory.mktemp("archive")
    run(pathlib.Path(cmake).with_name("cpack"), "--config", build / "CPackConfig.cmake", "-G", "TZST", "-B", scratch / "pack")
    (archive,) = (scratch / "pack").glob("*.tar.zst")
    run(cmake, "-E", "tar", "xf", archive, cwd=scratch)
    return scratch / archive.name.removesuffix(".tar.zst")


@pytest.fixture
def bare(tmp_path):
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}


def test_the_archives_program_runs_from_where_it_was_unpacked(unpacked, bare):
    assert "libtorch:" in run(unpacked / "bin/onebatch", "info", env=bare)


def test_the_archives_program_trains(unpacked, bare, tmp_path):
    said = run(unpacked / "bin/onebatch", "train", "configs/demo.toml", "--set", "run.epochs=1", "--set", f"run.output_dir={tmp_path}/runs",
               cwd=unpacked / "share/onebatch", env=bare)
    assert "validation accuracy" in said
