"""Programs that are loaded once and forked for each start, since to load LibTorch is most of what a small run takes: see tests/forked/. What a start is asked with,
what it says and how it ends are the same; its parent, its group, and what /proc tells of its command line and environment, are not, and the time that it says to have
taken counts from when it was loaded."""
import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
servers = {}  # program and how it is loaded -> the socket of its server, or None where there is none


def begin_server(program, parts, loading):
    folder = tempfile.mkdtemp(prefix="onebatch-forked-")
    socket = os.path.join(folder, "socket")
    environment = {**os.environ, **loading, "FORK_SERVER": socket, "LD_BIND_NOW": "1", "LD_PRELOAD": " ".join(filter(None, [str(parts / "libfork_server.so"), loading.get("LD_PRELOAD", os.environ.get("LD_PRELOAD"))]))}
    process = subprocess.Popen([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def end():
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    if process.stdout.readline():
        return socket
    warnings.warn(f"{program} could not be loaded beforehand: every start loads it")
    return None


def forked(program, **loading):
    """The words that start the program, and what they need in the environment. `loading` is of the environment that it is loaded in, and of a start's.
    By hand, with a program alone, it is the program itself."""
    program = (ROOT / program).resolve()
    parts = next((folder for folder in (program.parent, program.parent / "tests") if (folder / "libfork_server.so").exists()), None)
    if parts is None:
        return [str(program)], loading
    key = (program, *sorted(loading.items()))
    if key not in servers:
        servers[key] = begin_server(str(program), parts, loading)
    if servers[key] is None:
        return [str(program)], loading
    # What the program is loaded with is not for what starts it.
    return [str(parts / "forked_start"), str(program)], {"FORK_SERVER_SOCKET": servers[key], **{f"FORKED_{name}": value for name, value in loading.items()}}
