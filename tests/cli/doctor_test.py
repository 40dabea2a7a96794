"""`onebatch doctor` on set-ups that are broken on purpose: each is found and named, and the command that it prints mends it."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

PROBLEMS = ("warning", "broken")
may_mount = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode == 0
may_have_own_network = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
needs_mounts = pytest.mark.skipif(not may_mount, reason="may not mount here")
needs_network = pytest.mark.skipif(not may_have_own_network, reason="may have no network of its own here")
needs_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")


class Machine:
    """doctor in a shell that has been set up in some way, in a folder of its own."""

    def __init__(self, onebatch, folder, namespaces):
        self.onebatch, self.folder, self.namespaces, self.count = onebatch, folder, namespaces, 0

    def look(self, *lines, options=(), code=None, seconds=90):
        """The findings by their check, after these lines of bash."""
        self.count += 1
        document = self.folder / f"doctor-{self.count}.json"
        script = "\n".join([*lines, 'cd "$0"', 'exec "$@"'])
        command = [*self.namespaces, "bash", "-c", script, str(self.folder), self.onebatch.path, "doctor", "--json", str(document), *options]
        done = self.onebatch.finish(command, seconds=seconds)
        assert document.exists(), done.stdout + done.stderr
        report = json.loads(document.read_text())
        assert done.returncode == (1 if report["state"] == "broken" else 0) if code is None else code, done.stdout + done.stderr
        self.words = done.stdout
        return {finding["check"]: finding for finding in report["findings"]}


@pytest.fixture
def machine(onebatch, tmp_path):
    return lambda *namespaces: Machine(onebatch, tmp_path, namespaces)


def is_mended(here, setup, check, state, *words, options=()):
    """What `setup` breaks is found; after the printed command it is not there any more."""
    found = here.look(*setup, options=options)[check]
    assert found["state"] == state, found
    assert all(word in found["found"] + found["why"] for word in words), found
    assert found["why"] and found["mend"], found
    assert f"mend      {found['mend']}" in here.words
    after = here.look(*setup, found["mend"], options=options)[check]
    assert after["state"] not in PROBLEMS, after


@pytest.fixture
def fake_root(tmp_path):
    """A machine that shows itself below another folder: files by their path."""
    def make(**files):
        for name, text in {"dev/shm/.there": "", **files}.items():
            path = tmp_path / "machine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return f"export ONEBATCH_MACHINE_ROOT={tmp_path}/machine"

    return make


def test_a_sound_machine_has_no_broken_thing(machine):
    found = machine().look()
    assert [name for name, one in found.items() if one["state"] == "broken"] == []
    assert found["all-reduce"]["state"] == "ok" and "2 ranks" in found["all-reduce"]["found"]
    assert found["driver"]["state"] == "skipped" or shutil.which("nvidia-smi")


@needs_mounts
def test_a_small_dev_shm(machine):
    here = machine("unshare", "--mount")
    is_mended(here, ["mount -t tmpfs -o size=16m tmpfs /dev/shm"], "shared memory", "warning", "16 MiB")


@needs_mounts
def test_a_dev_shm_that_cannot_be_written(machine):
    here = machine("unshare", "--mount")
    is_mended(here, ["mount -t tmpfs -o ro tmpfs /dev/shm"], "shared memory", "broken", "Read-only")


def test_few_open_files(machine):
    is_mended(machine(), ["ulimit -Sn 200"], "open files", "broken", "200")


def test_little_locked_memory_beside_infiniband(machine, fake_root):
    root = fake_root(**{"sys/class/infiniband/mlx5_0": ""})
    lines = [root, "ulimit -Sl 64"]
    found = machine().look(*lines)["locked memory"]
    assert found["state"] == "broken" and "64 KiB" in found["found"] and "mlx5_0" in found["why"]
    if subprocess.run(["bash", "-c", found["mend"]], capture_output=True).returncode == 0:
        assert machine().look(*lines, found["mend"])["locked memory"]["state"] == "ok"


def test_locked_memory_matters_to_infiniband_alone(machine, fake_root):
    assert machine().look(fake_root(), "ulimit -Sl 64")["locked memory"]["state"] == "skipped"


@needs_mounts
def test_an_output_folder_that_is_read_only(machine, tmp_path):
    (tmp_path / "out").mkdir()
    here = machine("unshare", "--mount")
    is_mended(here, [f"mount -t tmpfs -o ro,size=2g tmpfs {tmp_path}/out"], "disk", "broken", "Read-only", options=["--dir", str(tmp_path / "out")])


@needs_mounts
def test_a_full_disk(machine, tmp_path):
    (tmp_path / "out").mkdir()
    setup = [f"mount -t tmpfs -o size=64m tmpfs {tmp_path}/out", f"head -c 63M /dev/zero > {tmp_path}/out/old.ckpt"]
    here = machine("unshare", "--mount")
    options = ["--dir", str(tmp_path / "out")]
    found = here.look(*setup, options=options)["disk"]
    assert found["state"] == "broken" and "1 MiB free" in found["found"]
    listed = here.onebatch.finish([*here.namespaces, "bash", "-c", "\n".join([*setup, found["mend"].replace("du -xh", "du -axh")])]).stdout
    assert "old.ckpt" in listed
    larger = [setup[0].replace("64m", "4g"), setup[1]]  # as after rm, or on another disk
    assert here.look(*larger, options=options)["disk"]["state"] == "ok"


def test_no_mpirun_in_the_path(machine):
    here = machine()
    found = here.look("export PATH=/nowhere")
    assert found["MPI"]["state"] == "warning" and "no mpirun in PATH" in found["MPI"]["found"]
    assert found["ranks"]["state"] == "skipped"
    if "apt-get" not in found["MPI"]["mend"]:
        assert here.look("export PATH=/nowhere", found["MPI"]["mend"])["all-reduce"]["state"] == "ok"


def test_an_mpirun_of_another_mpi(machine, tmp_path):
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin/mpirun"
    other.write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    other.chmod(0o755)
    here = machine()
    setup = f"export PATH={tmp_path}/bin:$PATH"
    found = here.look(setup)["MPI"]
    assert found["state"] == "broken" and "MPICH" in found["found"], found
    assert found["mend"].startswith("export PATH=")
    assert here.look(setup, found["mend"])["all-reduce"]["state"] == "ok"


def test_ranks_are_more_than_mpirun_counts_cores(machine, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").write_text(f"""#!/bin/sh
case " $* " in *" --version "*|*" --oversubscribe "*) exec {shutil.which("mpirun")} "$@" ;; esac
echo "There are not enough slots available in the system" >&2
exit 1
""")
    (tmp_path / "bin/mpirun").chmod(0o755)
    found = machine().look(f"export PATH={tmp_path}/bin:$PATH")
    assert found["all-reduce"]["state"] == "ok", found


def test_ranks_that_never_come_to_an_end(machine, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\nsleep 600\n")
    (tmp_path / "bin/mpirun").chmod(0o755)
    begin = time.monotonic()
    found = machine().look(f"export PATH={tmp_path}/bin:$PATH", options=["--deadline", "2"])["ranks"]
    assert found["state"] == "broken" and "within 2 s" in found["found"]
    assert time.monotonic() - begin < 20


def test_ranks_that_fail_say_why(machine, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\necho 'no slots here' >&2\nexit 7\n")
    (tmp_path / "bin/mpirun").chmod(0o755)
    found = machine().look(f"export PATH={tmp_path}/bin:$PATH")["ranks"]
    assert found["state"] == "broken" and "code 7" in found["found"] and "no slots here" in found["found"]


@needs_cores
def test_a_process_that_is_bound_to_one_core(machine):
    is_mended(machine("taskset", "-c", "0"), [], "processors", "warning", "1 of")


@needs_cores
def test_mpirun_that_binds_each_rank_to_one_core(onebatch, tmp_path):
    def found(*binding):
        command = ["mpirun", "-np", "1", *binding, onebatch.path, "doctor", "--json", str(tmp_path / "a.json")]
        onebatch.finish(command)
        return next(one for one in json.loads((tmp_path / "a.json").read_text())["findings"] if one["check"] == "processors")

    bound = found("--bind-to", "core")
    assert bound["state"] == "warning" and "mpirun has bound it" in bound["found"] and "--bind-to none" in bound["mend"]
    assert found("--bind-to", "none")["state"] == "ok"


def between(onebatch, folder, *command):
    """The findings of ranks that another line starts."""
    document = folder / "ranks.json"
    done = onebatch.finish([word.replace("JSON", str(document)) for word in map(str, command)])
    assert document.exists(), done.stdout + done.stderr
    return done, {one["check"]: one for one in json.loads(document.read_text())["findings"]}


def two(program_of_0, program_of_1, *before_1):
    start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "1", program_of_0, "doctor", "--json", "JSON"]
    return [*start, ":", "-np", "1", *before_1, program_of_1, "doctor"]


def test_ranks_of_unlike_programs(onebatch, tmp_path):
    other = tmp_path / "onebatch"
    other.write_bytes(open(onebatch.path, "rb").read() + b"\0")
    other.chmod(0o755)
    done, found = between(onebatch, tmp_path, *two(onebatch.path, other))
    assert done.returncode == 1
    assert found["versions"]["state"] == "broken" and "program: rank 0" in found["versions"]["found"]
    subprocess.run(found["versions"]["mend"], shell=True, check=True)
    done, found = between(onebatch, tmp_path, *two(onebatch.path, other))
    assert found["versions"]["state"] == "ok"


def test_a_document_is_written_by_the_first_rank_alone(onebatch, tmp_path):
    """Another one's machine need not have its folder."""
    elsewhere = ["--json", str(tmp_path / "nowhere" / "ranks.json")]
    done, found = between(onebatch, tmp_path, *two(onebatch.path, onebatch.path), *elsewhere)
    assert done.returncode == 0 and found["all-reduce"]["state"] == "ok", done.stdout + done.stderr


def test_ranks_of_unlike_environments(onebatch, tmp_path):
    _, found = between(onebatch, tmp_path, *two(onebatch.path, onebatch.path, "env", "OMP_NUM_THREADS=1"))
    assert found["environment"]["state"] == "warning" and "OMP_NUM_THREADS: rank 0" in found["environment"]["found"]
    assert found["environment"]["mend"] == "mpirun -x OMP_NUM_THREADS …"


@pytest.fixture(scope="module")
def skewed(request, tmp_path_factory):
    """A library that puts the clock of the system 90 seconds ahead."""
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int code = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += 90;
  return code;
}
""")
    compiler = request.config.getoption("--compiler")
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", folder / "clock.c", "-o", folder / "clock.so", "-ldl"], check=True)
    return folder / "clock.so"


def test_clocks_that_differ(onebatch, tmp_path, skewed):
    done, found = between(onebatch, tmp_path, *two(onebatch.path, onebatch.path, "env", f"LD_PRELOAD={skewed}"))
    assert done.returncode == 1
    assert found["clocks"]["state"] == "broken"
    assert re.search(r"rank 1 on .* is (89\.9|90\.0|90\.1) s ahead", found["clocks"]["found"]), found["clocks"]
    _, found = between(onebatch, tmp_path, *two(onebatch.path, onebatch.path))
    assert found["clocks"]["state"] == "ok"


@pytest.mark.parametrize(("variables", "mend"), [(("PMI_RANK=0", "PMI_SIZE=2"), "mpirun -np 2"), (("SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_ID=0"), "srun --mpi=pmix -n 2")])
def test_ranks_that_started_without_their_mpi(onebatch, tmp_path, variables, mend):
    done, found = between(onebatch, tmp_path, "env", *variables, onebatch.path, "doctor", "--json", "JSON")
    assert done.returncode == 1 and found["ranks"]["state"] == "broken" and "2 separate models" in found["ranks"]["found"]
    assert found["ranks"]["mend"].startswith(mend)
    if mend.startswith("mpirun"):  # as it stands, but for binding and for how many cores there are
        words = found["ranks"]["mend"].replace("mpirun", "mpirun --oversubscribe").replace("onebatch", onebatch.path).split()
        assert onebatch.finish(words).returncode == 0


@pytest.mark.parametrize("number", ["4096", "many"])
def test_threads_that_cannot_be_meant(machine, number):
    is_mended(machine(), [f"export OMP_NUM_THREADS={number}"], "OMP_NUM_THREADS", "warning", number)


def test_an_interface_that_is_not_there(machine):
    is_mended(machine(), ["export NCCL_SOCKET_IFNAME=ib7"], "network", "broken", "ib7")


@needs_network
def test_a_machine_without_a_network(machine):
    here = machine("unshare", "--net")
    found = here.look("true", options=["--deadline", "10"])["network"]
    assert found["state"] == "broken" and "loopback" in found["found"]
    after = here.look(found["mend"])
    assert after["network"]["state"] == "warning" and "the loopback alone" in after["network"]["found"]
    assert after["all-reduce"]["state"] == "ok"


def test_a_folder_for_temporary_files_that_is_gone(machine, tmp_path):
    is_mended(machine(), [f"export TMPDIR={tmp_path}/gone"], "temporary files", "broken", f"{tmp_path}/gone: there is no such folder")


def test_no_dev_shm_at_all(machine, tmp_path):
    (tmp_path / "machine").mkdir()
    found = machine().look(f"export ONEBATCH_MACHINE_ROOT={tmp_path}/machine")["shared memory"]
    assert found["state"] == "broken" and f"{tmp_path}/machine/dev/shm: there is no such folder" in found["found"]
    assert "mkdir -p" in found["mend"], found


def test_an_output_folder_that_is_a_file(machine, tmp_path):
    (tmp_path / "out").write_text("")
    here = machine()
    for name in ("out", "out/runs"):
        found = here.look(options=["--dir", str(tmp_path / name)])["disk"]
        assert found["state"] == "broken" and f"{tmp_path}/out: " in found["found"], found
        assert "chmod" not in found["mend"] and "--dir FOLDER" in found["otherwise"], found


def test_temporary_files_that_cannot_be_written(machine, tmp_path):
    (tmp_path / "file").write_text("")
    is_mended(machine(), [f"export TMPDIR={tmp_path}/file HOME={tmp_path}"], "temporary files", "broken", "no folder")


def test_gpus_that_nobody_sees(machine, fake_root):
    root = fake_root(**{"proc/driver/nvidia/gpus/0000:3b:00.0/information": "", "proc/driver/nvidia/gpus/0000:5e:00.0/information": "",
                        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"})
    here = machine()
    found = here.look(root, "export CUDA_VISIBLE_DEVICES=7")
    assert "550.54.15" in found["driver"]["found"]
    if "without CUDA" not in found["GPUs"]["found"]:
        assert found["GPUs"]["state"] == "broken" and "CUDA_VISIBLE_DEVICES=7 shows none" in found["GPUs"]["found"]
        assert found["GPUs"]["mend"] == "unset CUDA_VISIBLE_DEVICES"
        assert "CUDA_VISIBLE_DEVICES" not in here.look(root, "export CUDA_VISIBLE_DEVICES=7", found["GPUs"]["mend"])["GPUs"]["found"]


def test_a_container_with_little_time(machine, fake_root):
    root = fake_root(**{"sys/fs/cgroup/cpu.max": "50000 100000\n"})
    if len(os.sched_getaffinity(0)) >= 2:
        is_mended(machine(), [root], "processors", "warning", "0.5")


def test_another_nccl_that_is_found_first(machine, request, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "nccl.c").write_text("int ncclGetVersion(int* version) { *version = 21003; return 0; }\n")
    subprocess.run([request.config.getoption("--compiler"), "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", tmp_path / "nccl.c", "-o", tmp_path / "lib/libnccl.so.2"], check=True)
    here = machine()
    setup = f"export LD_LIBRARY_PATH={tmp_path}/lib"
    found = here.look(setup)["NCCL"]
    if "without CUDA" in found["found"]:
        pytest.skip("a build without NCCL")
    assert found["state"] == "warning" and "2.10.3 (built with" in found["found"]
    assert here.look(setup, found["mend"])["NCCL"]["state"] == "skipped" or shutil.which("nvidia-smi")


def test_strict_makes_a_warning_fail(machine):
    machine().look("export OMP_NUM_THREADS=4096", options=["--strict"], code=1)


def test_quiet_says_problems_alone(machine):
    here = machine()
    here.look("export OMP_NUM_THREADS=4096", options=["--quiet"])
    assert here.words.startswith("warning  OMP_NUM_THREADS") and "ok  " not in here.words


def test_ctrl_c_ends_it_and_its_ranks(onebatch, tmp_path):
    (tmp_path / "mpirun").write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\necho $$ > " + str(tmp_path / "pid") + "\nexec sleep 600\n")
    (tmp_path / "mpirun").chmod(0o755)
    process = onebatch.start_command([onebatch.path, "doctor"], environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == -signal.SIGINT
    rank = int((tmp_path / "pid").read_text())
    while os.path.exists(f"/proc/{rank}") and open(f"/proc/{rank}/stat").read().split()[2] != "Z":
        assert time.monotonic() < until
        time.sleep(0.05)
