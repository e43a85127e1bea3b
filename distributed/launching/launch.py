"""The command `launch`: run a program as several processes that can talk with each other."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from typing import Any

from ...ir.errors import ArgumentValueError, LaminaError, StateError
from . import launchers, reaping
from .console import Console
from .job import Job, Plan, end_what_is_left

ABOUT = """Run a program as several processes, its ranks, as torchrun does, by way of MPI's mpiexec.
Where a rank fails, all are ended, and the last lines say which it was and why; the exit status is that rank's
(128 and the signal's number where a signal ended it)."""
# What torchrun takes and has no meaning here: mpiexec brings the ranks together.
MEANINGLESS = (
    "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--monitor-interval", "--start-method",
    "--role", "--log-dir", "--redirects", "--tee", "--local-addr", "--local-ranks-filter", "--node-rank",
)  # fmt: skip
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # of batch systems, which name the machines


def launch(argv: list[str]) -> int:
    """Run a program as several processes.  Returns its exit status, or that of the first rank that failed."""
    return run(parser().parse_args(argv))


def run(options: argparse.Namespace) -> int:
    """Do what options say that `parser` gave.  Returns the status as `launch` does."""
    try:
        return _run(options)
    except LaminaError as error:
        print(f"lamina launch: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The options of the command, which are torchrun's and a few more."""
    made = argparse.ArgumentParser("lamina launch", description=ABOUT, allow_abbrev=False)
    add = made.add_argument
    add("-n", *_both("--nproc-per-node"), default="1", help="ranks on each machine; cpu or auto: one a core")
    add("--nnodes", default="1", help="machines of a batch system's allocation, which knows them")
    add("--hosts", help="machines by name, and the ranks on each: a:2,b:2")
    add("--hostfile", help="the same in a file, one a line")
    add(
        *_both("--max-restarts"),
        type=int,
        default=0,
        metavar="N",
        help="start anew after a failure, so often",
    )
    add("-m", "--module", action="store_true", help="script is a module's name")
    add("--tag", action="store_true", help="put the rank before each line")
    add("--timeout", type=float, metavar="S", help="end the job when no rank has written for S seconds")
    add(*_both("--stopped-after"), type=float, default=10.0, metavar="S",
        help="end the job when a rank is stopped, or its machine gone, for S seconds (10)")  # fmt: skip
    add("--mpiexec", metavar="PATH", help="the program that starts the ranks; else the first that is found")
    add(*_both("--mpi-args"), default="", metavar="WORDS", help="more of mpiexec's own options, in one word")
    add(*_both("--master-addr"), help="what ranks find in MASTER_ADDR")
    add(*_both("--master-port"), type=int, help="and in MASTER_PORT")
    add("--standalone", action="store_true", help="one machine: what is done without --hosts anyway")
    add(*_both("--no-python"), action="store_true", help="script is a program by itself")
    for name in MEANINGLESS:
        add(*_both(name), help=argparse.SUPPRESS)
    add(
        "training_script",
        metavar="script",
        help="the program, as python -m lamina run takes it: it gets Lamina where it imports torch",
    )
    add(
        "training_script_args",
        metavar="args",
        nargs=argparse.REMAINDER,
        help="what the program finds in sys.argv",
    )
    return made


def _both(name: str) -> list[str]:
    """An option as it is written here, and as torchrun's users do."""
    old = f"--{name[2:].replace('-', '_')}"
    return [name] if old == name else [name, old]


def _run(options: argparse.Namespace) -> int:
    launcher = launchers.find(options.mpiexec)
    hosts, nodes = _hosts(options), _count("--nnodes", options.nnodes.partition(":")[0])
    per_node = _per_node(options.nproc_per_node)
    if (
        nodes > 1
        and not hosts
        and not any(name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"))
    ):
        raise ArgumentValueError(
            f"--nnodes {nodes}: the machines are not known, as there is no batch system's allocation",
            "name them, and start it on one of them alone: --hosts a:2,b:2",
        )
    sizes = [host.ranks for host in hosts] or [per_node] * nodes
    variables = _variables(options, hosts, nodes)
    for restarts in range(options.max_restarts + 1):
        variables["TORCHELASTIC_RESTART_COUNT"] = str(restarts)
        plan = Plan(
            launcher, sum(sizes), _words(options, sizes), hosts, nodes, variables, options.stopped_after,
            options.timeout, shlex.split(options.mpi_args),
        )  # fmt: skip
        status, again = _run_once(plan, options.tag)
        if not again or restarts == options.max_restarts:
            break
        _say(f"starting all ranks anew ({restarts + 1} of {options.max_restarts})")
    return status


def _count(name: str, text: str) -> int:
    if not (text.isdigit() and int(text) > 0):
        raise ArgumentValueError(f"{name} must be a positive number, not {text!r}")
    return int(text)


def _per_node(text: str) -> int:
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _count("-n", text)


def _hosts(options: argparse.Namespace) -> list[launchers.Host]:
    """The machines that were named.  One that comes without a number of ranks has as many as -n says."""
    if options.hosts and options.hostfile:
        raise ArgumentValueError("--hosts and --hostfile say the same: one of the two")
    if options.hosts:
        text = options.hosts
        found = launchers.hosts_of(text)
    elif options.hostfile:
        try:
            with open(options.hostfile, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise StateError(f"--hostfile {options.hostfile}: {error.strerror}") from error
        found = launchers.hosts_in(text)
    else:
        return []
    if ":" not in text and "slots" not in text:
        found = [launchers.Host(host.name, _per_node(options.nproc_per_node)) for host in found]
    return found


def _variables(options: argparse.Namespace, hosts: list[launchers.Host], nodes: int) -> dict[str, str]:
    """What all ranks find in their environment, beside their places."""
    port = options.master_port or (free_port() if not hosts else 29500)
    variables = {
        "MASTER_ADDR": options.master_addr or (hosts[0].name if hosts else "127.0.0.1"),
        "MASTER_PORT": str(port), "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
        "TORCHELASTIC_RUN_ID": options.rdzv_id or secrets.token_hex(4),
    }  # fmt: skip
    if hosts or nodes > 1:  # not all launchers hand the environment on to other machines
        kept = ("PYTHON", "LAMINA_", "OMP_NUM_THREADS")
        variables |= {k: v for k, v in os.environ.items() if k.startswith(kept)}
    return variables


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _words(options: argparse.Namespace, sizes: list[int]) -> list[str]:
    """A rank's command line."""
    program = [*(["-m"] if options.module else []), options.training_script, *options.training_script_args]
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    rank_main = f"{__package__}.rank_main"
    kind = "exec" if options.no_python else "run"
    sized = ",".join(map(str, sizes))
    return [sys.executable, *flags, "-m", rank_main, "{control}", sized, kind, *program]


def _run_once(plan: Plan, tag: bool) -> tuple[int, bool]:
    """Run a job.  Returns the status, and whether another try may go better."""
    job, caught = Job(plan, Console(tag)), []  # type: Job, list[int]

    def stop(number: int, _: Any) -> None:
        caught.append(number)
        job.end()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    reaping.adopt_orphans()
    try:
        job.run()
    except BrokenPipeError:  # who read the output has seen enough
        _silence()
        caught.append(signal.SIGPIPE)
    finally:
        end_what_is_left()
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        return 128 + caught[0], False
    failure = job.failure
    if job.noise and (failure is None or failure.rank is None):
        print(job.noise, file=sys.stderr)
    if failure is None:
        return 0, False
    _say(failure.told(plan.ranks))
    return failure.status, True


def _silence() -> None:
    """Let what Python flushes at its end go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)


def _say(text: str) -> None:
    print(f"lamina launch: {text}", file=sys.stderr, flush=True)
