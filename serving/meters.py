"""What the server counts, for Prometheus.

Each process writes its numbers into files of the folder PROMETHEUS_MULTIPROC_DIR, which must be set before
this module is imported; any worker adds up what all wrote.  Counts of a killed worker stay.
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SECONDS = (.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)  # fmt: skip
REQUESTS = Counter("lamina_requests", "Requests that were answered", ["model", "front", "code"])
LATENCY = Histogram("lamina_request_seconds", "From headers to answer", ["model", "front"], buckets=SECONDS)
RUN_SECONDS = Histogram("lamina_run_seconds", "One run of a model", ["model"], buckets=SECONDS)
BATCH_ROWS = Histogram(
    "lamina_batch_rows", "Rows of one run", ["model"], buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256)
)
QUEUE = Gauge("lamina_queue_length", "Requests that wait", ["model"], multiprocess_mode="livesum")
TOKENS = Counter("lamina_tokens", "Tokens read and written", ["model", "kind"])
HELD = Gauge("lamina_held_bytes", "Bytes of requests and answers held", multiprocess_mode="livesum")
GENERATION = Gauge("lamina_generation", "How often models were loaded", multiprocess_mode="max")


def exposition() -> bytes:
    """All numbers of all workers, in Prometheus's text format."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)
    else:  # one process, as in tests of parts
        for each in (REQUESTS, LATENCY, RUN_SECONDS, BATCH_ROWS, QUEUE, TOKENS, HELD, GENERATION):
            registry.register(each)
    return generate_latest(registry)


def gone(pid: int) -> None:
    """Forget what a process that ended held; what it counted stays."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        mark_process_dead(pid)
