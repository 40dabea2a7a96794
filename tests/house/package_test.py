#!/usr/bin/env python3
"""Installs and packs the build, then uses both as a stranger would: a program of its own against the library, the archive's program from where it was unpacked."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 240


def run(*command, **options):
    print("+", *command, flush=True)
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=DEADLINE_SECONDS, **options)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"failed with {done.returncode}")
    return done.stdout


def check_library(cmake, prefix, scratch):
    """find_package(onebatch), #include <onebatch/trainer.hpp>, and the program trains; with a model, data, an optimizer and a schedule of its
    own too, each of one file."""
    built = scratch / "example"
    run(cmake, "-G", "Ninja", "-S", ROOT / "examples/library", "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", built)
    said = run(built / "train_digits", ROOT / "data/digits", cwd=scratch)
    assert "epoch 2: validation loss" in said and "30 steps" in said, said
    said = run(built / "train_own_kinds", cwd=scratch)
    assert "model.waist: write a whole number from 1 to 4096" in said and "schedule.period: triangle: steps" in said, said
    assert "100 steps" in said and float(said.split("accuracy ")[1]) > 0.8, said
    left_behind = {path.name for path in scratch.iterdir()} - {"example", "prefix"}
    assert not left_behind, f"a session without a run folder wrote {left_behind}"


def check_archive(cmake, build, scratch):
    """The archive is whole: nothing but its own place and the system's libraries is needed."""
    cpack = pathlib.Path(cmake).with_name("cpack")
    run(cpack, "--config", build / "CPackConfig.cmake", "-G", "TZST", "-B", scratch / "pack")
    (archive,) = (scratch / "pack").glob("*.tar.zst")
    run(cmake, "-E", "tar", "xf", archive, cwd=scratch)
    unpacked = scratch / archive.name.removesuffix(".tar.zst")
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(scratch)}
    assert "libtorch:" in run(unpacked / "bin/onebatch", "info", env=bare)
    said = run(unpacked / "bin/onebatch", "train", "configs/demo.toml", "--set", "run.epochs=1", "--set", f"run.output_dir={scratch}/runs",
               cwd=unpacked / "share/onebatch", env=bare)
    assert "validation accuracy" in said, said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onebatch-package-") as folder:
        scratch = pathlib.Path(folder)
        run(arguments.cmake, "--install", arguments.build, "--prefix", scratch / "prefix")
        check_library(arguments.cmake, scratch / "prefix", scratch)
        check_archive(arguments.cmake, arguments.build, scratch)
    print("the library and the archive work")


if __name__ == "__main__":
    main()
