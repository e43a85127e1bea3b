"""Servers for tests: one in a thread of the test's process, or the command as a process of its own."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import lamina
from lamina import nn
from lamina.jit.lamina_model import cpu_levels

ROOT = Path(__file__).parents[2]


def small_network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


def write(function, path, *example, **how):
    """A file of a function, with code for this machine alone."""
    levels = None if str(path).endswith(".onnx") else cpu_levels()[:1]
    lamina.jit.export(function, path, *example, levels=levels, **how)


def write_small(path, seed=0):
    """A small network with a batch of any size, as a file; returns the network."""
    lamina.manual_seed(seed)
    model = small_network()
    write(model, path, lamina.randn(4, 8), dynamic={0: {0: "batch"}})
    return model


class Client:
    """Requests of one connection."""

    def __init__(self, port, headers=None):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = headers or {}

    def __call__(self, method, path, body=None, **headers):
        """(status, headers, body) of one answer.  body: bytes, or what is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        given = {name.replace("_", "-"): value for name, value in (self.headers | headers).items()}
        try:
            self.http.request(method, path, body, given)
            answer = self.http.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException):
            self.http.close()
            raise

    def __del__(self):
        self.http.close()

    def json(self, method, path, body=None, **headers):
        """(status, what the JSON says) of one answer."""
        status, _, text = self(method, path, body, **headers)
        return status, json.loads(text)


@contextlib.contextmanager
def in_thread(models, bounds=None, tokens=(), http="auto", local=True, tls=None):
    """The port of a server in a thread of this process."""
    from lamina.serving.application import application
    from lamina.serving.bounds import Bounds
    from lamina.serving.fleet import Fleet
    from lamina.serving.http_bounds import listening
    from lamina.serving.serve_worker import Server, configured

    bounds = bounds or Bounds()
    ready, made = threading.Event(), []
    listener = listening("127.0.0.1", 0)

    async def serve():
        fleet = Fleet(models, bounds)
        gate = application(fleet, bounds, tokens, local)
        server = Server(configured(gate, bounds, http), ready.set, tls and (tls, bounds.header_time))
        made.extend((server, gate))
        await server.serve([listener])
        fleet.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    port = listener.getsockname()[1]
    thread.start()
    ready.wait(30)
    server, gate = made
    try:
        yield port
        eventually(lambda: gate.budget.held == 0)  # what was held is given back
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        assert not thread.is_alive()


def eventually(what, seconds=20.0):
    """What a function returns once that is true.  Fails where it does not become so."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
    return found


class Process:
    """`python -m lamina serve …` on a free port; ended with the block."""

    def __init__(self, *args, env=None, ready=True):
        command = [sys.executable, "-m", "lamina", "serve", "--port", "0", *map(str, args)]
        own = {"PYTHONUNBUFFERED": "1", "LAMINA_TRACE_BUDGET": "none"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | own | (env or {}),
        )
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        self.port = int(line.rpartition(":")[2]) if line else 0
        if ready:
            eventually(lambda: self.said("ready") or self.process.poll() is not None, 60)
            assert self.process.poll() is None, self.log

    def said(self, text):
        return any(text in line for line in [*self.log])

    def client(self, **headers):
        return Client(self.port, headers)

    def health(self):
        """What /health says on a connection of its own."""
        return self.client().json("GET", "/health")[1]

    def workers(self):
        """The process ids of all workers, and of the generations above them."""
        generations = children(self.process.pid)
        return [pid for each in generations for pid in children(each)], generations

    def stop(self, number=signal.SIGTERM):
        """The exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


def children(pid):
    """The process ids of a process's children."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def memory(pid, kind="Pss"):
    """The bytes of a process's memory: "Rss", or "Pss", of which shared pages count in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{kind}:"))


def raw(port, data, seconds=30.0):
    """All that comes back on a connection over which these bytes were sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as wire:
        with contextlib.suppress(OSError):
            wire.sendall(data)
        got = b""
        with contextlib.suppress(ConnectionError):
            while piece := wire.recv(1 << 16):
                got += piece
        return got
