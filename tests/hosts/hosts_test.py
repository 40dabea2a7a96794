#!/usr/bin/env python3
"""Several hosts on one machine: network namespaces with addresses of their own, a launch agent that enters them, links that are slow, lossy or cut.

hosts_test.py PROGRAM COMMUNICATOR_TEST. Exits with 77 where namespaces are not allowed. All of it, the launcher too, runs in namespaces of its own:
whatever ends this test, no bridge, process or mount of it is left on the machine, and none that is there already is in its way.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from poor_link import PoorLink

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM, COMMUNICATOR_TEST = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:3])
SET = "ob"
SUBNET = "10.77.0"
TIMEOUT = 3.0
ALLOWED = 5.0
LAUNCHES = 5
INSIDE = "ONEBATCH_TEST_HOSTS_INSIDE"
OWN_NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{folder}/{name}"
name = "run"
[batch]
global_batch_size = 60
micro_batch_size = {micro_batch}
gradient_accumulation_steps = 2
[data]
kind = "idx"
path = "{root}/data/digits"
[data.validation]
[model]
kind = "mlp"
hidden = [64, 48]
[optimizer]
kind = "sgd"
lr = 0.2
[comm]
timeout_seconds = {timeout}
"""


def sh(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True)


class Hosts:
    """`count` hosts on one bridge; host N has the address 10.77.0.N there, and networks that lead nowhere: one like every other host's, one of its own."""

    def __init__(self, count, folder, shared_memory="512m"):
        self.count = count
        self.shared_memory = shared_memory
        self.folder = str(folder)  # the launcher's session files, which it leaves behind when it is killed
        self.poor = None

    def __enter__(self):
        sh("ip", "link", "add", SET, "type", "bridge")
        sh("ip", "addr", "add", f"{SUBNET}.254/24", "dev", SET)
        sh("ip", "link", "set", SET, "up")
        for number in range(1, self.count + 1):
            name, link = f"{SET}-{number}", f"{SET}v{number}"
            sh("ip", "netns", "add", name)
            sh("ip", "link", "add", link, "type", "veth", "peer", "name", f"{link}p")
            sh("ip", "link", "set", link, "master", SET, "up")
            self.plug_in(number, f"{link}p")
        return self

    def plug_in(self, number, device):
        name = f"{SET}-{number}"
        sh("ip", "link", "set", device, "netns", name)
        for words in (("link", "set", device, "name", "eth0"), ("addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            sh("ip", "netns", "exec", name, "ip", *words)
        for private, address in (("docker0", "172.17.0.1/16"), ("home0", f"192.168.{number}.1/24")):
            for words in (("link", "add", private, "type", "bridge"), ("addr", "add", address, "dev", private), ("link", "set", private, "up")):
                sh("ip", "netns", "exec", name, "ip", *words, check=False)  # they are there when a cable is changed

    def __exit__(self, *_error):
        self.kill_all()
        for number in range(1, self.count + 1):
            sh("ip", "link", "del", f"{SET}v{number}", check=False)
            sh("ip", "netns", "del", f"{SET}-{number}", check=False)
        sh("ip", "link", "del", SET, check=False)
        if self.poor:
            self.poor.close()

    def make_poor(self, number):
        """Puts a cable with 2 ms of delay and 1 % of loss in the place of a host's good one."""
        sh("ip", "link", "del", f"{SET}v{number}")
        self.poor = PoorLink(f"{SET}a", f"{SET}b", 0.002, 0.01)
        sh("ip", "link", "set", f"{SET}a", "master", SET, "up")
        self.plug_in(number, f"{SET}b")

    def cut(self, number):
        sh("ip", "link", "set", f"{SET}v{number}", "down")

    def pids(self, number, text):
        """Processes of a host whose command line begins with `text`."""
        found = []
        for pid in sh("ip", "netns", "pids", f"{SET}-{number}").stdout.split():
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words and words[0].decode() == text:
                found.append(int(pid))
        return found

    def udp_addresses(self, number):
        """Where the host's processes listen for datagrams."""
        lines = sh("ip", "netns", "exec", f"{SET}-{number}", "cat", "/proc/net/udp").stdout.splitlines()[1:]
        words = [line.split()[1].split(":")[0] for line in lines]
        return {".".join(str(byte) for byte in reversed(bytes.fromhex(word))) for word in words}

    def start(self, ranks_per_host, *program):
        hosts = ",".join(f"{SUBNET}.{number + 1}:{ranks}" for number, ranks in enumerate(ranks_per_host))
        command = ["mpirun", "--mca", "plm_rsh_agent", str(HERE / "agent.sh"), "--mca", "oob_tcp_if_include", f"{SUBNET}.0/24", "--mca", "btl_tcp_if_include", f"{SUBNET}.0/24",
                   # The launcher ends by itself when a host is gone, but well after the ranks' own deadline: what they say is what is tried here.
                   "--mca", "oob_tcp_keepalive_time", "5", "--mca", "oob_tcp_keepalive_intvl", "2", "--mca", "oob_tcp_keepalive_probes", "2", "--bind-to", "none",
                   "-x", "OMP_NUM_THREADS", "-x", "OMPI_MCA_mpi_yield_when_idle", "--host", hosts, *map(str, program)]
        environment = dict(os.environ, HOSTS=SET, SHARED_MEMORY=self.shared_memory, TMPDIR=self.folder, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
        for _ in range(LAUNCHES):
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
            if self.has_started(process, str(program[0])):
                return process
            # The launcher's daemons sometimes do not find each other on links that have just come up; the program is not there yet.
            print("the launcher has started no rank in 10 s: once more", flush=True)
            os.killpg(process.pid, signal.SIGKILL)
            self.kill_all()
        sys.exit(f"the launcher started no rank in {LAUNCHES} tries")

    def has_started(self, process, program):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if process.poll() is not None or self.pids(1, program):
                return True
            time.sleep(0.02)
        return False

    def kill_all(self):
        for number in range(1, self.count + 1):
            for pid in sh("ip", "netns", "pids", f"{SET}-{number}", check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def configuration(folder, name, ranks, steps):
    path = folder / f"{name}.toml"
    path.write_text(CONFIG.format(folder=folder, name=name, micro_batch=30 // ranks, steps=steps, timeout=TIMEOUT, root=ROOT))
    return path


def finish(process, seconds, code=0):
    output, _ = process.communicate(timeout=seconds)
    if code is not None and process.returncode != code:
        sys.exit(f"returned {process.returncode}, not {code}\n{output}")
    return output


def losses(folder, name):
    return [json.loads(line)["loss"] for line in (folder / name / "run" / "metrics.jsonl").read_text().splitlines()]


def train(hosts, folder, name, ranks_per_host):
    config = configuration(folder, name, sum(ranks_per_host), 12)
    finish(hosts.start(ranks_per_host, PROGRAM, "train", config, "--quiet"), 120)
    return losses(folder, name)


def same_as_one_host(folder):
    """The same ranks on one host and on several: the same run."""
    for ranks_per_host in ((1, 1), (2, 1), (1, 1, 1), (2, 2, 1)):
        ranks = sum(ranks_per_host)
        with Hosts(3, folder) as hosts:
            alone = train(hosts, folder, f"alone{ranks_per_host}", (ranks,))
            apart = train(hosts, folder, f"apart{ranks_per_host}", ranks_per_host)
        worst = max(abs(a - b) / abs(a) for a, b in zip(alone, apart))
        if len(alone) != 12 or len(apart) != 12 or worst > 1e-5:
            sys.exit(f"{ranks_per_host}: losses differ by {worst:.1e}")
        print(f"ranks per host {ranks_per_host}: losses of 12 steps within {worst:.1e} of one host's", flush=True)


def collectives(folder):
    with Hosts(2, folder) as hosts:
        output = finish(hosts.start((2, 1), COMMUNICATOR_TEST, "--gtest_filter=-*reductions_equal*:*ranks_know_their_node:*float_sums*"), 150)
    if "PASSED" not in output:
        sys.exit(output)
    print("collectives over 2 + 1 ranks on 2 hosts", flush=True)


def without_shared_memory(folder):
    """A rank that is alone on its host shares memory with nobody: nothing falls back."""
    with Hosts(2, folder, shared_memory="900k") as hosts:
        finish(hosts.start((1, 1), PROGRAM, "train", configuration(folder, "alone", 2, 4), "--quiet", "--strict", "--set", "probe.cache=false"), 120)
    print("one rank per host needs no shared memory", flush=True)


def slow_and_lossy(folder):
    if not pathlib.Path("/dev/net/tun").exists():
        print("there is no /dev/net/tun here: a slow, lossy link was not tried", flush=True)
        return
    with Hosts(2, folder) as hosts:
        clean = train(hosts, folder, "clean", (1, 1))
    with Hosts(2, folder) as hosts:  # new ones: the old know the good cable's address
        hosts.make_poor(2)
        slow = train(hosts, folder, "slow", (1, 1))
        dropped, passed = hosts.poor.dropped, hosts.poor.passed
    if dropped == 0 or passed < 100:
        sys.exit(f"the poor link has dropped {dropped} frames and passed {passed}")
    if clean != slow:
        sys.exit("a slow, lossy link changed the losses")
    print(f"2 ms of delay, {dropped} of {dropped + passed} frames lost: the same losses, bit for bit", flush=True)


def wait_for_steps(folder, name, count):
    deadline = time.monotonic() + 60
    path = folder / name / "run" / "metrics.jsonl"
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.05)
    sys.exit(f"{name}: no {count} steps in a minute")


def faulty(folder, name, ranks_per_host, fault, expected):
    """A fault in mid-run: the ranks that can be reached end in time, and say what is wrong with the other host."""
    with Hosts(2, folder) as hosts:
        process = hosts.start(ranks_per_host, PROGRAM, "train", configuration(folder, name, sum(ranks_per_host), 1000000), "--quiet")
        lines = []
        first = threading.Event()

        def read():
            for line in process.stdout:
                lines.append(line)
                if expected in line:
                    first.set()

        threading.Thread(target=read, daemon=True).start()
        wait_for_steps(folder, name, 5)
        for number in (1, 2):
            if (heard := hosts.udp_addresses(number)) != {f"{SUBNET}.{number}"}:
                sys.exit(f"{name}: host {number} listens for datagrams at {sorted(heard)}, not on the hosts' own network alone")
        fault(hosts)
        begin = time.monotonic()
        if not first.wait(TIMEOUT + ALLOWED):
            sys.exit(f"{name}: nobody said {expected!r}\n{''.join(lines)}")
        while hosts.pids(1, PROGRAM) and time.monotonic() < begin + TIMEOUT + ALLOWED:
            time.sleep(0.05)
        seconds = time.monotonic() - begin
        if hosts.pids(1, PROGRAM):
            sys.exit(f"{name}: rank 0 still runs {seconds:.1f} s after\n{''.join(lines)}")
        try:
            code = process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            code = "nothing: it waits for the daemon of the lost host"
            os.killpg(process.pid, signal.SIGKILL)
        if code == 0:
            sys.exit(f"{name}: the launcher returned 0")
        print(f"{name}: reported and ended after {seconds:.1f} s; the launcher returns {code}", flush=True)


def stop_rank_2(hosts):
    for pid in hosts.pids(2, PROGRAM):
        if b"OMPI_COMM_WORLD_RANK=2\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
            os.kill(pid, signal.SIGSTOP)


def enter_own_namespaces():
    """Starts this test again as the first process of its own network, mounts and processes; returns only there."""
    if INSIDE not in os.environ:
        if os.geteuid() != 0 or sh(*OWN_NAMESPACES, "true", check=False).returncode != 0:
            print("namespaces are not allowed here: nothing was tried")
            sys.exit(77)
        os.environ[INSIDE] = "1"
        os.execvp(OWN_NAMESPACES[0], [*OWN_NAMESPACES, sys.executable, *sys.argv])
    os.makedirs("/run/netns", exist_ok=True)
    sh("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    sh("ip", "link", "set", "lo", "up")


def main():
    enter_own_namespaces()
    with tempfile.TemporaryDirectory(prefix="onebatch-hosts-") as name:
        folder = pathlib.Path(name)
        collectives(folder)
        same_as_one_host(folder)
        without_shared_memory(folder)
        slow_and_lossy(folder)
        faulty(folder, "link cut", (1, 1), lambda hosts: hosts.cut(2), "rank 1 (host-2): no answer from its host")
        faulty(folder, "rank on another host stopped", (1, 2), stop_rank_2, "rank 2 (host-2): its process is stopped")


if __name__ == "__main__":
    main()
