"""A network cable that delays and loses frames: two TAP devices and a relay between them, for kernels without netem."""
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def open_tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


class PoorLink:
    """Frames from either end leave the other after `delay` seconds, but for a share of `loss` that is dropped. The names are the devices'."""

    def __init__(self, one, other, delay, loss):
        self.ends = [open_tap(one), open_tap(other)]
        self.delay, self.loss = delay, loss
        self.dropped = self.passed = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.relay, daemon=True)
        self.thread.start()

    def relay(self):
        random.seed(1)
        waiting, number = [], 0
        while not self.stop.is_set():
            pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            for end in select.select(self.ends, [], [], min(pause, 0.05))[0]:
                try:
                    frame = os.read(end, 65536)
                except OSError:
                    continue
                if random.random() < self.loss:
                    self.dropped += 1
                    continue
                number += 1
                heapq.heappush(waiting, (time.monotonic() + self.delay, number, self.ends[1] if end == self.ends[0] else self.ends[0], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _due, _number, end, frame = heapq.heappop(waiting)
                self.passed += 1
                try:
                    os.write(end, frame)
                except OSError:
                    self.dropped += 1

    def close(self):
        self.stop.set()
        self.thread.join()
        for end in self.ends:
            os.close(end)
