"""What PyTorch keeps in torch.distributed.launcher and elastic.multiprocessing.errors: ranks from a program.

@record
def main(): ...

results = elastic_launch(LaunchConfig(1, 1, nproc_per_node=4, max_restarts=2), train)(config)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..ir.errors import ArgumentError, ArgumentValueError, DistributedError
from .environment import exported, place
from .launching.launch import free_port, parser
from .launching.spawn import ProcessException, RankContext

__path__: list[str] = []  # of `launcher.api`: Python looks below what has a path
F = TypeVar("F", bound=Callable)


def record(fn: F, error_handler: Any = None) -> F:
    """The function as it is: the launcher sees what a rank raises, and where."""
    return fn


@dataclass
class ProcessFailure:
    """How a rank failed.  exitcode: negative for a signal.  message: what is said of it."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str = ""
    message: str = ""


class ChildFailedError(DistributedError):
    """Ranks failed.  name: what they ran.  failures: by rank."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]):
        self.name, self.failures = name, failures
        told = [f"rank {rank}: {f.message or f'exit code {f.exitcode}'}" for rank, f in failures.items()]
        super().__init__(f"{name} failed", *told)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        return next(iter(self.failures.items()))


@dataclass
class LaunchConfig:
    """How many ranks, and how often they are started anew.

    What else PyTorch's has is taken and means nothing: mpiexec brings the ranks together.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None

    def __post_init__(self) -> None:
        if self.min_nodes != 1:
            raise ArgumentValueError(
                f"LaunchConfig(min_nodes={self.min_nodes}): ranks are started on this machine alone",
                "several machines: python -m lamina launch --hosts a:2,b:2 script.py, on one of them",
            )
        if self.nproc_per_node < 1 or self.max_restarts < 0:
            raise ArgumentValueError(
                "LaunchConfig: nproc_per_node is above 0 and max_restarts is not below, "
                f"not {self.nproc_per_node} and {self.max_restarts}"
            )


class elastic_launch:
    """Calls a function, or runs a command, on the ranks that a config says."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable | str | None):
        if not callable(entrypoint) and not isinstance(entrypoint, str):
            raise ArgumentError(f"elastic_launch(entrypoint): a function or a command, not {entrypoint!r}")
        self.config, self.entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """What each rank returned, by rank; nothing of a command.

        Raises ChildFailedError once restarts are used up.
        """
        config, entry = self.config, self.entrypoint
        if isinstance(entry, str):
            options = ["-n", str(config.nproc_per_node), "--max-restarts", str(config.max_restarts)]
            if status := launched(parser().parse_args([*options, "--no-python", entry, *map(str, args)])):
                raise ChildFailedError(entry, {0: ProcessFailure(0, 0, status)})
            return {}
        common = {
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": config.run_id or secrets.token_hex(4),
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        }  # fmt: skip
        for restarts in range(config.max_restarts + 1):
            try:
                more = {"MASTER_PORT": str(free_port()), "TORCHELASTIC_RESTART_COUNT": str(restarts)}
                return _called(entry, args, config, common | more)
            except ProcessException as error:
                if restarts == config.max_restarts:
                    code = getattr(error, "exit_code", 1)
                    failure = ProcessFailure(error.error_index, error.pid, code, message=error.msg)
                    name = getattr(entry, "__qualname__", repr(entry))
                    raise ChildFailedError(name, {error.error_index: failure}) from error
        raise AssertionError("unreachable")


def launched(options: argparse.Namespace) -> int:
    """Run what options of the command `launch` say, in a process of its own: it ends all that is below it.

    Returns its exit status.
    """
    code = (
        "import argparse, json, sys; from lamina.distributed.launching import launch; "
        "sys.exit(launch.run(argparse.Namespace(**json.loads(sys.argv[1]))))"
    )
    return subprocess.call([sys.executable, "-c", code, json.dumps(vars(options))])


def launch_agent(config: LaunchConfig, entrypoint: Callable | str | None, args: list[Any]) -> dict[int, Any]:
    """The same as `elastic_launch(config, entrypoint)(*args)`."""
    return elastic_launch(config, entrypoint)(*args)


def _called(entry: Any, args: tuple, config: LaunchConfig, variables: dict[str, str]) -> dict[int, Any]:
    results = multiprocessing.get_context("spawn").SimpleQueue()
    returned: dict[int, Any] = {}
    ranks = RankContext(_be_rank, (variables, entry, args, results), config.nproc_per_node, False)
    done = False
    while not done:
        done = ranks.join(0.05)
        while not results.empty():  # or who returns much would wait for it to be read
            rank, value = results.get()
            returned[rank] = value
    results.close()
    return dict(sorted(returned.items()))


def _be_rank(rank: int, variables: dict[str, str], entry: Any, args: tuple, results: Any) -> None:
    here = place()
    assert here is not None
    os.environ.update(exported(here) | variables)
    results.put((rank, entry(*args)))
