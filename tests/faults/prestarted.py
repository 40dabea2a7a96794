"""Starts the program many times, loading it once: see prestarted.cpp."""
import os
import pathlib
import queue
import signal
import subprocess
import threading


class Prestarted:
    """One loaded program, which is one start at a time."""

    def __init__(self, program, library, environment):
        self.program = str(program)
        everything = dict(environment, PRESTARTED="1", LD_BIND_NOW="1", LD_PRELOAD=str(library))
        self.process = subprocess.Popen([self.program], env=everything, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def begin(self, arguments, environment, output):
        """The process; its output goes to the file."""
        texts = [str(output), self.program, *map(str, arguments), "", *(f"{key}={value}" for key, value in environment.items())]
        content = b"".join(text.encode() + b"\0" for text in texts)
        self.process.stdin.write(f"{len(content)}\n".encode() + content)
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        """Its code, as subprocess has it."""
        return os.waitstatus_to_exitcode(int(self.process.stdout.readline()))

    def run(self, arguments, environment, output, timeout):
        """The code and what was said. TimeoutExpired after it was killed."""
        process = self.begin(arguments, environment, output)
        over = threading.Event()

        def kill():
            over.set()
            os.kill(process, signal.SIGKILL)

        timer = threading.Timer(timeout, kill)
        timer.start()
        code = self.end()
        timer.cancel()
        said = pathlib.Path(output).read_text(errors="replace")
        if over.is_set():
            raise subprocess.TimeoutExpired(arguments, timeout, said, "")
        return code, said

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Pool:
    """A few of them, for as many threads."""

    def __init__(self, number, program, library, environment):
        self.free = queue.SimpleQueue()
        self.all = [Prestarted(program, library, environment) for _ in range(number)]
        for one in self.all:
            self.free.put(one)

    def run(self, arguments, environment, output, timeout=90):
        one = self.free.get()
        try:
            return one.run(arguments, environment, output, timeout)
        finally:
            self.free.put(one)

    def close(self):
        for one in self.all:
            one.close()
