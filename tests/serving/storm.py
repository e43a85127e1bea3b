"""Storms upon a server: many requests while workers are killed, or strangers' garbage; says what came of it.

    python tests/serving/storm.py --requests 100000            a tenth malformed, workers killed meanwhile
    python tests/serving/storm.py --hostile 100000             nothing that is a request to answer

Ends with status 1 where an answer was wrong, a request had neither answer nor error, a worker ended that was
not killed, or memory grew.  Loopback alone.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from server_process import Process, children, memory, write_small
from wire import Lost, Wire, post

import lamina
from lamina.serving.wire_arrays import of_safetensors, to_safetensors

PATIENCE = 30.0  # seconds for an answer; longer is a hang
SETTLED = 0.1  # of the requests, after which memory is to grow no more
GROWTH = 24 << 20  # bytes of all processes together that allocators and caches may still take then
BINARY, JSON = "application/octet-stream", "application/json"


class Report:
    """What came of the requests; `faults` are what must not be."""

    def __init__(self):
        self.counts, self.faults, self.latencies = Counter(), [], []
        self.killed = set()

    def fault(self, told):
        if len(self.faults) < 20:
            self.faults.append(told)

    def told(self):
        lines = [f"{what}: {count:,}" for what, count in sorted(self.counts.items())]
        if self.latencies:
            p50, p99 = np.percentile(self.latencies, [50, 99])
            lines.append(f"answered within {p50 * 1e3:.1f} ms (median), {p99 * 1e3:.1f} ms (p99)")
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])


def family(pid):
    """The process ids of a process and all below it."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def held(pid):
    return sum(memory(each) for each in family(pid))


# ---- requests that are answered ----------------------------------------------------------------------------
def good(rng, weights):
    """(a request, what its answer must be: an array), in one of the ways in which it can be asked."""
    rows = int(rng.integers(1, 5))
    x = rng.standard_normal((rows, 8)).astype(np.float32)
    (a, b), (c, d) = weights
    want = np.maximum(x @ a.T + b, 0) @ c.T + d
    way = rng.integers(4)
    if way == 0:
        return post("/v1/models/small", json.dumps({"inputs": {"input": x.tolist()}}).encode(), JSON), want
    if way == 1:
        return post("/v1/models/small", to_safetensors({"input": x}), BINARY), want
    entry = {"name": "input", "shape": [rows, 8], "datatype": "FP32", "data": x.ravel().tolist()}
    if way == 2:
        return post("/v2/models/small/infer", json.dumps({"inputs": [entry]}).encode(), JSON), want
    del entry["data"]
    head = json.dumps({"inputs": [entry | {"parameters": {"binary_data_size": x.nbytes}}]}).encode()
    kind = f"{BINARY}\r\ninference-header-content-length: {len(head)}"
    return post("/v2/models/small/infer", head + x.tobytes(), kind), want


def array_in(body):
    """The array that an answer holds, in whichever way."""
    if not body.startswith(b"{"):
        return of_safetensors(body)["output"]
    said = json.loads(body)
    if "outputs" in said and isinstance(said["outputs"], list):
        return np.array(said["outputs"][0]["data"], np.float32).reshape(said["outputs"][0]["shape"])
    return np.array(said["outputs"]["output"], np.float32)


def malformed(rng):
    """A request that is well-formed HTTP and asks for what must be refused."""
    bodies = [
        (b"{", JSON), (b'{"inputs": {"input": [[1, 2]]}}', JSON), (b'{"inputs": {"input": [[NaN]]}}', JSON),
        (b"[" * 5000, JSON), (b'{"inputs": {"x": []}}', JSON), (b"\xff" * 50, JSON), (b"\0" * 50, BINARY),
        (to_safetensors({"input": np.zeros((2, 7), np.float32)}), BINARY), (b"x", "text/plain"),
        (to_safetensors({"input": np.zeros((1, 8), np.float64)}), BINARY),
    ]  # fmt: skip
    paths = ["/v1/models/small", "/v2/models/small/infer", "/v1/models/none", "/v1/completions", "/nowhere"]
    body, kind = bodies[rng.integers(len(bodies))]
    return post(paths[rng.integers(len(paths))], body, kind)


async def client(port, seed, count, weights, share, report):
    """One connection's requests, each looked at."""
    rng, wire = np.random.default_rng(seed), Wire(port)
    for _ in range(count):
        is_good = rng.random() >= share
        request, want = good(rng, weights) if is_good else (malformed(rng), None)
        begun = time.perf_counter()
        try:
            status, body = await asyncio.wait_for(wire.ask(request), PATIENCE)
        except Lost:
            report.counts["connections lost, which the client saw"] += 1
            if not report.killed:
                report.fault("a connection was lost though nobody was killed")
            await asyncio.sleep(0.01)
            continue
        except TimeoutError:
            report.fault(f"no answer within {PATIENCE:g} s: {request[:200]!r}")
            wire.close()
            continue
        report.counts[f"{'good' if is_good else 'malformed'}, answered {status}"] += 1
        if is_good and status == 200:
            report.latencies.append(time.perf_counter() - begun)
            got = array_in(body)
            if got.shape != want.shape or not np.allclose(got, want, 1e-4, 1e-5):
                report.fault(f"a wrong answer: {got} is not {want}")
        elif is_good and status not in (429, 503, 504):
            report.fault(f"{status} for a good request: {body[:200]!r}")
        elif not is_good and not 400 <= status < 500:
            report.fault(f"{status} for a malformed request: {request[:200]!r}")
    wire.close()


async def killing(server, report, every):
    """Kill a worker again and again; and see that nobody else ends."""
    while every:
        await asyncio.sleep(every)
        workers, _ = server.workers()
        if workers:
            victim = random.choice(workers)
            report.killed.add(victim)
            os.kill(victim, signal.SIGKILL)
            report.counts["workers killed"] += 1


async def requests(server, options, weights, report):
    """The storm: a tenth of the requests first, then the rest, and what memory grew in between."""
    first = max(1, int(options.requests * SETTLED))
    kill = asyncio.create_task(killing(server, report, options.kill))
    levels = []
    for at, count in enumerate((first, options.requests - first)):
        share = -(-count // options.clients)
        await asyncio.gather(*(
            client(server.port, [options.seed, at, i], share, weights, options.malformed, report)
            for i in range(options.clients)
        ))  # fmt: skip
        levels.append(held(server.process.pid))
    kill.cancel()
    return levels


# ---- strangers ---------------------------------------------------------------------------------------------
def hostile(rng):
    """(bytes for a connection, whether it ends its side then): lies about lengths and sizes, and noise."""
    head = b"POST /v1/models/small HTTP/1.1\r\nhost: localhost\r\n"
    infer = b"POST /v2/models/small/infer HTTP/1.1\r\nhost: localhost\r\n"
    kind, binary = b"content-type: application/json\r\n", b"content-type: application/octet-stream\r\n"

    def sized(body, kind=kind, path=head):
        return path + kind + b"content-length: %d\r\n\r\n" % len(body) + body

    number = int(rng.integers(1 << 31))
    noise = rng.bytes(int(rng.integers(1, 400)))
    made = [
        noise,
        b"GET /" + noise,
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: " + noise + b"\r\n\r\n",
        head + kind + b"content-length: %d\r\n\r\n" % number + noise,
        head + kind + b"content-length: -1\r\n\r\n",
        head + kind + b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        head + kind + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\nabcde",
        head + kind + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % number + noise,
        head + kind + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n" + noise,
        head + b"a: b\r\n" * int(rng.integers(1, 9000)),
        sized(b"[" * int(rng.integers(1, 200_000))),
        sized(b'{"inputs":{"input":' + b"[" * 60 + b"0" + b"]" * 60 + b"}}"),
        sized(b'{"inputs":{"input":[' + b"[]," * int(rng.integers(1, 100_000)) + b"[]]}}"),
        sized(b'{"inputs":{"input":[' + b"{}," * int(rng.integers(1, 100_000)) + b"0]}}"),
        sized(b'{"inputs":{"input":[[1e999,' + b"9" * int(rng.integers(1, 20_000)) + b"]]}}"),
        sized(b'{"inputs":{"input":["' + b"\\u0000" * int(rng.integers(1, 50_000)) + b'"]}}'),
        sized(b'{"inputs":{' + b",".join(b'"%d":0' % i for i in range(int(rng.integers(1, 3000)))) + b"}}"),
        sized(b'{"a":' * int(rng.integers(1, 3000)) + b"1"),
        sized(noise),
        sized(rng.bytes(8) + noise, binary),
        sized(int(rng.integers(1, 400)).to_bytes(8, "little") + b'{"input":{"dtype":"F32","shape":[%d,8],'
              b'"data_offsets":[0,%d]}}' % (number, number * 32) + noise, binary),
        sized(b'{"inputs":[{"name":"input","datatype":"FP32","shape":[%d,549755813888],"data":[]}]}' % number,
              path=infer),
        sized(noise, kind + b"inference-header-content-length: %d\r\n" % number, infer),
        b"POST /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"%2e" * int(rng.integers(1, 2000))),
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * int(rng.integers(1, 300)),
        b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise,
    ]  # fmt: skip
    data = bytearray(made[int(rng.integers(len(made)))])
    for _ in range(int(rng.integers(4)) if rng.random() < 0.3 else 0):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    if rng.random() < 0.1:
        del data[int(rng.integers(len(data))) :]
    return bytes(data), rng.random() < 0.5


async def stranger(port, seed, count, report):
    """Connections that each send one of these, read a little, and go; some wait for what becomes of them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data, ends = hostile(rng)
        writer = None
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), PATIENCE)
            writer.write(data)
            if ends:
                await writer.drain()
                writer.write_eof()
            got = await asyncio.wait_for(reader.read(1 << 16), 0.05 if rng.random() < 0.8 else PATIENCE)
            report.counts[f"answered {got[9:12].decode('ascii', 'replace') or 'by an end'}"] += 1
            if got.startswith(b"HTTP/1.1 5") and not got.startswith(b"HTTP/1.1 503"):
                report.fault(f"{got[:200]!r} for {data[:300]!r}")
        except TimeoutError:
            report.counts["left without an answer"] += 1
        except OSError:
            report.counts["connection ended"] += 1
        finally:
            if writer is not None:
                writer.close()


async def strangers(server, options, weights, report):
    """The storm, with good requests through it; returns memory after a tenth and at its most, later."""
    before = set(server.workers()[0])
    first = max(1, int(options.hostile * SETTLED))
    most, levels = 0, []

    async def watch():
        nonlocal most
        while True:
            most = max(most, held(server.process.pid))
            await asyncio.sleep(0.5)

    for at, count in enumerate((first, options.hostile - first)):
        most = 0
        watching = asyncio.create_task(watch())
        share = -(-count // options.clients)
        calm = Report()
        calm.killed.add(0)  # a connection may be one too many
        await asyncio.gather(
            client(server.port, [options.seed, at], max(20, count // 200), weights, 0, calm),
            *(stranger(server.port, [options.seed, at, i], share, report) for i in range(options.clients)),
        )
        watching.cancel()
        levels.append(most)
        report.latencies += calm.latencies
        report.faults += calm.faults
        report.counts.update({f"beside: {what}": n for what, n in calm.counts.items()})
    if set(server.workers()[0]) != before:
        report.fault(f"workers ended: {''.join(server.log[-5:])}")
    return levels


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--malformed", type=float, default=0.1)
    parser.add_argument("--kill", type=float, default=2.0, help="seconds between two killings; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.lam"
        network = write_small(path)
        weights = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in (network[0], network[2])]
        report, failed = Report(), False
        tight = ["--header-time", 2, "--body-time", 2, "--idle", 5] if options.hostile else []
        with Process(path, "--workers", options.workers, *tight) as server:
            kind = strangers if options.hostile else requests
            begun, start = time.monotonic(), held(server.process.pid)
            settled, end = asyncio.run(kind(server, options, weights, report))
            took = time.monotonic() - begun
            if end > settled + GROWTH:
                report.fault(f"memory grew from {settled >> 20} to {end >> 20} MiB")
            status = server.stop()
            if status:
                report.fault(f"the server ended with status {status}")
        count = options.hostile or options.requests
        print(report.told())
        mebis = f"{start >> 20} at the start, {settled >> 20} after a tenth, {end >> 20} at the end"
        print(f"memory of all processes, MiB: {mebis}")
        print(f"{count:,} requests in {took:.0f} s, {lamina.__version__}, {os.cpu_count()} CPUs")
        failed = bool(report.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
