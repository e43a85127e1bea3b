"""A wire between two hosts that delays, loses or is cut: `python slow_wire.py TAP TAP DELAY LOSS`.

Carries Ethernet frames between two TAP devices that it makes, each after DELAY seconds, but for a share LOSS
of them. SIGUSR1 cuts it for two seconds. Once its standard input ends it prints what became of the frames, as
JSON; the devices go with the process, however it ends. The kernel's netem does as much where it was built.
A TAP device promises no offloads, so that frames come to it no longer than its MTU and with their checksums.
"""

import collections
import errno
import fcntl
import json
import os
import random
import select
import signal
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
STDIN = 0
CUT = 2  # seconds


def tap(name: str) -> int:
    """Make a TAP device; what is read from it is what its host sends."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def carry(one: int, other: int, delay: float, loss: float) -> dict[str, int]:
    """Carry frames until the standard input ends; how many were carried, lost by chance and lost to a cut."""
    counts = {"carried": 0, "lost": 0, "cut": 0}
    mended = time.monotonic()

    def cut(*_: object) -> None:
        nonlocal mended
        mended = time.monotonic() + CUT

    signal.signal(signal.SIGUSR1, cut)
    print("ready", flush=True)
    generator = random.Random(0)
    across = {one: other, other: one}
    under_way: collections.deque[tuple[float, int, bytes]] = collections.deque()  # by when they are due
    while True:
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            try:
                os.write(end, frame)
                counts["carried"] += 1
            except OSError as error:
                if error.errno != errno.EIO:  # the device over there is not up
                    raise
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        ready, _, _ = select.select([STDIN, one, other], [], [], wait)
        if STDIN in ready:
            return counts
        for end in ready:
            frame = os.read(end, 1 << 16)
            now = time.monotonic()
            if now < mended:
                counts["cut"] += 1
            elif generator.random() < loss:
                counts["lost"] += 1
            else:
                under_way.append((now + delay, across[end], frame))


if __name__ == "__main__":
    print(json.dumps(carry(tap(sys.argv[1]), tap(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))))
