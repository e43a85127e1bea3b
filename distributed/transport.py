"""Communicators of MPI, collectives on NumPy arrays, and the world of all ranks.

Every collective is begun without waiting (`MPI_Iallreduce` and its kin) and waited for by `Flight.wait`, so
a rank that has nothing to do leaves its core to others.  Arrays are the caller's own memory, dense; what a
collective can't take as it lies (another dim than the first, halves to be summed, bool) goes through a copy.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.errors import DistributedError
from ..ir.meeting import got_before, is_anew
from ..runtime.memory import DATA_AT
from ..runtime.threads import get_num_threads
from . import rendezvous
from .arrays import NUMBERS
from .board import PART, Board, note_of
from .environment import FAILED, WATCHED
from .flights import EAGER, Flight, Message
from .launching import segments
from .mpi import MPI, NATIVE
from .mpi_arrays import After, is_over, named, plain, raw, spelled, wide_of, widened
from .waiting import wait
from .without_python import FIRST_TURNS, plan_of
from .work import PROGRESS

FORKED = "a forked process is no rank"
_HANDLE = {4: ctypes.c_uint32, 8: ctypes.c_uint64}[MPI._sizeof(MPI.Request)]
STOPPED = 5.0  # seconds after which a rank that is stopped is not waited for

_OPS = {
    "sum": MPI.SUM, "avg": MPI.SUM, "product": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX,
    "band": MPI.BAND, "bor": MPI.BOR, "bxor": MPI.BXOR,
}  # fmt: skip
Arrays = tuple[np.ndarray, ...]


class Channel:
    """A communicator and who is in it.

    number: the same on all its ranks.  ranks: by their numbers among all.  near: those of them on this
    machine, but this one.  count: the collectives begun so far.  broken: why nothing more is begun.
    """

    def __init__(self, world: World, comm: Any, ranks: tuple[int, ...], number: int, timeout: float):
        self.world, self.comm, self.ranks, self.number, self.timeout = world, comm, ranks, number, timeout
        self.rank, self.size = comm.rank, comm.size
        board = world.board
        self.near = tuple([r for r in ranks if r in board.parts and r != world.rank])
        self.count = 0
        self.broken: DistributedError | None = None
        self.plans: dict[tuple, tuple[str, int, object]] = {}  # of what is combined in place
        self.checked = False  # each call is compared on all ranks, on other machines too
        self.request = ctypes.create_string_buffer(8)  # of what is begun without Python
        self.request_at = ctypes.addressof(self.request)

    # ---- agreement
    def need_sound(self) -> None:
        """Raise DistributedError where the others can't be met any more."""
        self.world.need_alive()
        if self.broken is not None:
            raise DistributedError("the ranks of this group did not agree before", str(self.broken))

    def begin(self, text: str) -> None:
        """Note that this rank comes to its next collective.  Raises DistributedError where others differ."""
        self.need_sound()
        self.count += 1
        self.world.board.note(self.number, self.count, text)
        self.compare(text)
        if self.checked:
            self.compare_all(text)

    def compare(self, text: str) -> None:
        """Compare with what ranks nearby noted.  Raises DistributedError, and the group is of no more use."""
        try:
            self.world.board.compare(self.near, self.number, self.count, text)
        except DistributedError as error:
            self.broken = error
            self.world.is_sound = False
            raise

    def compare_all(self, text: str) -> None:
        """Exchange what each rank is about to do, and raise DistributedError where that differs."""
        own = f"{self.count} {text}".encode()
        lengths = np.empty(self.size, np.int64)
        request = self.comm.Iallgather(np.array([len(own)]), lengths)
        Flight(self, f"the check of {text}", [request], 8, None, None).wait()
        longest = int(lengths.max())
        texts = np.zeros((self.size, longest), np.uint8)
        padded = np.zeros(longest, np.uint8)
        padded[: len(own)] = np.frombuffer(own, np.uint8)
        Flight(
            self, f"the check of {text}", [self.comm.Iallgather(padded, texts)], longest, None, padded
        ).wait()
        said = [bytes(t[:n]).decode("utf-8", "replace") for t, n in zip(texts, lengths, strict=True)]
        if len(set(said)) > 1:
            raise DistributedError(
                "the ranks don't agree on a collective of their group",
                *[f"rank {r}: {one.partition(' ')[2]}" for r, one in zip(self.ranks, said, strict=True)],
            )

    def all_came(self) -> bool:
        """Whether the ranks of this machine have begun all collectives of the group that this one has."""
        return self.world.board.have_come(self.near, self.number, self.count)

    def look(self, flight: Flight, waited: float, limit: float) -> None:
        """Raise DistributedError where a wait of so many seconds is in vain."""
        board = self.world.board
        if flight.of is None and flight.count == self.count:
            self.compare(flight.text)
        for rank in self.near if flight.of is None else flight.of:
            if rank not in self.near:
                continue
            trouble = board.trouble(rank)
            noted = board.read(rank, self.number)
            if flight.of is None and noted is not None and noted[0] >= flight.count:
                patience = STOPPED  # it came, and what it gave may be on its way
            else:
                patience = STOPPED if trouble and "stopped" in trouble or flight.of is not None else 0.0
            if trouble and waited > patience:
                self.world.lost(trouble)
                raise DistributedError(f"{flight.text}: {trouble}", *self.report())
        if waited > limit:
            raise DistributedError(f"{flight.text}: nobody came for {waited:.1f} s", *self.report())

    def report(self) -> list[str]:
        """Where each rank of the group is, as far as it can be seen from here."""
        board = self.world.board
        lines = [f"rank {self.world.rank} is here: {self.count}"]
        lines += [board.where(rank, self.number) for rank in self.near]
        far = len(self.ranks) - 1 - len(self.near)
        return [*lines, f"{far} ranks are on other machines"] if far else lines

    def failed(self, text: str, error: Exception) -> DistributedError:
        """MPI's error about a collective, with where everyone is."""
        return DistributedError(f"{text}: {str(error).splitlines()[0]}", *self.report())

    # ---- collectives
    def start(self, kind: str, attrs: Mapping[str, Any], inputs: Arrays, outputs: Arrays) -> Flight:
        """Begin a collective of `ir/ops/collectives.py` on dense arrays."""
        (input,), (output,) = inputs, outputs
        if got_before(kind, attrs, output):
            return Flight.over(self, kind)
        if (
            input is output
            and kind == "all_reduce"
            and input.dtype.num in NUMBERS
            and attrs["reduce"] != "avg"
        ):
            text, request, _ = self._begun_over(input, attrs["reduce"], 0)
            return Flight(self, text, [request], input.nbytes, None, input)
        text = spelled(kind, attrs, input)
        self.begin(text)
        try:
            requests, after, keep = getattr(self, f"_{kind}")(input, output, **attrs)
        except MPI.Exception as error:
            raise self.failed(text, error) from None
        nbytes = max(input.nbytes, output.nbytes)
        return Flight(self, text, requests, nbytes, after, (input, output, keep))

    def all_reduce_now(self, array: np.ndarray, reduce: str) -> None:
        """Combine an array of all ranks in place, and return when it is done: `start` with less ado."""
        if is_anew() and got_before("all_reduce", {"reduce": reduce, "group": self.ranks}, array):
            return
        text, request, is_there = self._begun_over(
            array, reduce, FIRST_TURNS if self.world.log is None else 0
        )
        if not is_there:
            Flight(self, text, [request], array.nbytes, None, array).wait()

    def _begun_over(self, array: np.ndarray, reduce: str, turns: int) -> tuple[str, Any, bool]:
        """Begin to combine a dense array of numbers in place: its text, its request, or that it is done.

        turns: for which to look at once whether it is, as somebody waits.

        Between kernels each line costs ten times what it does in a loop, as nothing of it is in the caches.
        """
        key = array.dtype.num, array.shape, reduce
        if (known := self.plans.get(key)) is None:
            known = self.plans[key] = self._planned(array, reduce)
        text, plan, _ = known
        if plan and not self.checked:
            if self.broken is not None or self.world.trouble is not None:
                self.need_sound()
            self.count += 1
            found = NATIVE.begin(plan, self.count, id(array), self.request_at, turns)
            if found == 1:
                return text, None, True
            if not found:
                return text, MPI.Request.fromhandle(_HANDLE.from_buffer(self.request).value), False
            if found > 1:
                raise self.failed(text, MPI.Exception(found - 2))
            self.compare(text)  # which doesn't raise where a note was read while it was written
        else:
            self.begin(text)
        try:
            return text, self.comm.Iallreduce(MPI.IN_PLACE, array, _OPS[reduce]), False
        except MPI.Exception as error:
            raise self.failed(text, error) from None

    def _planned(self, array: np.ndarray, reduce: str) -> tuple[str, int, object]:
        """The text of a collective, its plan's address (0 where MPI is called by Python), what keeps that."""
        text = spelled("all_reduce", {"reduce": reduce}, array)
        kind = MPI._typedict.get(array.dtype.char)
        if NATIVE is None or DATA_AT is None or kind is None or array.size >= 1 << 31:
            return text, 0, None
        board = self.world.board
        fingerprint, letters = note_of(text)
        notes = [board.address + board.place(r, self.number) for r in (self.world.rank, *self.near)]
        handles = [MPI._handleof(one) for one in (kind, _OPS[reduce], self.comm)]
        words = [notes[0], self.number, fingerprint, 0, 0, NATIVE.all_reduce, int(MPI.IN_PLACE), array.size]
        words += [*handles, NATIVE.test, DATA_AT, len(notes) - 1, *notes[1:]]
        return text, *plan_of(words, letters)

    def _all_reduce(self, input: np.ndarray, output: np.ndarray, reduce: str, **_: Any) -> tuple:
        wide, after = self._summing(input, output, reduce)
        return [self.comm.Iallreduce(MPI.IN_PLACE, plain(wide), _OPS[reduce])], after, wide

    def _summing(self, input: np.ndarray, output: np.ndarray, reduce: str) -> tuple[np.ndarray, After]:
        """The array that a collective is to combine in place, which holds the operand."""
        wide, after = widened(input, output, reduce, self.size)
        if wide is not input:
            np.copyto(wide, input, casting="unsafe")
        elif not is_over(input, output):
            np.copyto(output, input)
            wide = output
        return wide, after

    def _reduce(self, input: np.ndarray, output: np.ndarray, dst: int, reduce: str, **_: Any) -> tuple:
        root = self.ranks.index(dst)
        if self.rank != root:
            sent = input.astype(wide_of(input.dtype))  # a copy
            output[...] = 0
            return [self.comm.Ireduce(plain(sent), None, _OPS[reduce], root)], None, sent
        wide, after = self._summing(input, output, reduce)
        return [self.comm.Ireduce(MPI.IN_PLACE, plain(wide), _OPS[reduce], root)], after, wide

    def _broadcast(self, input: np.ndarray, output: np.ndarray, src: int, **_: Any) -> tuple:
        root = self.ranks.index(src)
        if self.rank == root and not is_over(input, output):
            np.copyto(output, input)
        return [self.comm.Ibcast(raw(output), root)], None, None

    def _all_gather(self, input: np.ndarray, output: np.ndarray, dim: int, **_: Any) -> tuple:
        if all(n == 1 for n in input.shape[:dim]):  # parts lie one behind the other
            return [self.comm.Iallgather(raw(input), raw(output))], None, None
        parts = np.empty((self.size, *input.shape), input.dtype)
        whole = output.reshape(*input.shape[:dim], self.size, *input.shape[dim:])

        def after() -> None:
            np.copyto(whole, np.moveaxis(parts, 0, dim))

        return [self.comm.Iallgather(raw(input), raw(parts))], after, parts

    def _reduce_scatter(
        self, input: np.ndarray, output: np.ndarray, dim: int, reduce: str, **_: Any
    ) -> tuple:
        wide, after = widened(output, output, reduce, self.size)
        shape = input.shape
        cut = input.reshape(*shape[:dim], self.size, shape[dim] // self.size, *shape[dim + 1 :])
        sent = np.ascontiguousarray(np.moveaxis(cut, dim, 0), wide.dtype)
        request = self.comm.Ireduce_scatter_block(plain(sent), plain(wide), _OPS[reduce])
        return [request], after, (sent, wide)

    def _all_to_all(
        self, input: np.ndarray, output: np.ndarray, split_dim: int, cat_dim: int, **_: Any
    ) -> tuple:
        n, shape = self.size, input.shape
        cut = input.reshape(*shape[:split_dim], n, shape[split_dim] // n, *shape[split_dim + 1 :])
        sent = np.ascontiguousarray(np.moveaxis(cut, split_dim, 0))
        part = sent.shape[1:]
        parts = np.empty_like(sent)
        whole = output.reshape(*part[:cat_dim], n, *part[cat_dim:])

        def after() -> None:
            np.copyto(whole, np.moveaxis(parts, 0, cat_dim))

        return [self.comm.Ialltoall(raw(sent), raw(parts))], after, (sent, parts)

    def _all_to_all_parts(
        self, input: np.ndarray, output: np.ndarray, dim: int, sent: tuple, received: tuple, **_: Any
    ) -> tuple:
        rows = np.ascontiguousarray(np.moveaxis(input, dim, 0))
        rows = rows.copy() if is_over(rows, output) else rows
        joined = output if dim == 0 else np.empty((sum(received), *rows.shape[1:]), rows.dtype)
        row = rows.itemsize * math.prod(rows.shape[1:])

        def after() -> None:
            np.copyto(output, np.moveaxis(joined, 0, dim))

        given = [raw(rows), [n * row for n in sent]]
        request = self.comm.Ialltoallv(given, [raw(joined), [n * row for n in received]])
        return [request], None if dim == 0 else after, (rows, joined)

    def _permute_ranks(self, input: np.ndarray, output: np.ndarray, pairs: tuple, **_: Any) -> tuple:
        own, requests = self.ranks[self.rank], []
        sources = [a for a, b in pairs if b == own]
        targets = [b for a, b in pairs if a == own]
        sent = input.copy() if targets and np.may_share_memory(input, output) else input
        if sources:
            requests.append(self.comm.Irecv(raw(output), self.ranks.index(sources[0]), self.count % 30000))
        else:
            output[...] = 0
        if targets:
            requests.append(self.comm.Isend(raw(sent), self.ranks.index(targets[0]), self.count % 30000))
        return requests or [MPI.REQUEST_NULL], None, sent

    def exchange(self, text: str, sent: list[np.ndarray], received: list[np.ndarray]) -> Flight:
        """Give each rank an array and get one of each, of any sizes; the caller knows those of all."""
        self.begin(text)
        counts = [[x.nbytes for x in arrays] for arrays in (sent, received)]
        out = np.concatenate([raw(x) for x in sent]) if sent else np.empty(0, np.uint8)
        into = np.empty(sum(counts[1]), np.uint8)

        def after() -> None:
            at = 0
            for x in received:
                raw(x)[:] = into[at : at + x.nbytes]
                at += x.nbytes

        request = self.comm.Ialltoallv([out, counts[0]], [into, counts[1]])
        return Flight(self, text, [request], out.nbytes + into.nbytes, after, (out, into, received))

    def barrier(self, text: str = "barrier()") -> Flight:
        """Begin to wait until all ranks of the group are here."""
        self.begin(text)
        return Flight(self, text, [self.comm.Ibarrier()], 0, None, None)

    # ---- messages
    def send(self, array: np.ndarray, to: int, tag: int) -> Flight:
        """Begin to send to the `to`-th rank of the group."""
        self.world.need_alive()
        text = f"send({named(array)}, to rank {self.ranks[to]}, tag {tag})"
        requests, whom = [self.comm.Isend(raw(array), to, tag)], (self.ranks[to],)
        return Flight(self, text, requests, array.nbytes, None, array, whom)

    def receive(
        self, array: np.ndarray, source: int | None, tag: int, seen: list[int] | None = None
    ) -> Flight:
        """Begin to receive from the `source`-th rank, or whoever sends first, who is then put into `seen`."""
        self.world.need_alive()
        whom = "any rank" if source is None else f"rank {self.ranks[source]}"
        text = f"recv({named(array)}, from {whom}, tag {tag})"
        into = raw(array)
        request = self.comm.Irecv(into, MPI.ANY_SOURCE if source is None else source, tag)
        of = self.ranks if source is None else (self.ranks[source],)
        return Message(self, text, [request], array.nbytes, None, array, of, seen)

    def free(self) -> None:
        """Give the communicator back."""
        if self.comm != MPI.COMM_WORLD:
            self.comm.Free()


class World:
    """All ranks of this job, joined once per process.

    board: what those of this machine tell each other.
    """

    def __init__(self, timeout: float):
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
        comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.process = os.getpid()
        node = comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        near = tuple(node.allgather(self.rank))
        self._window = MPI.Win.Allocate_shared(PART, 1, comm=node)
        whole, _ = self._window.Shared_query(0)
        memory = memoryview(np.frombuffer(_of_size(whole, PART * len(near)), np.uint8))
        self.board = Board(memory, near, self.rank)
        self.near, self.local_rank = near, near.index(self.rank)
        node.Barrier()
        # All of this machine have mapped it; its name would be left of ranks that are killed.
        segments.unlink({n for n in segments.mapped(self.process) if n.startswith("mpich_shm_")})
        self.numbers, self.numbers_among = 0, dict[tuple[int, ...], int]()
        self.trouble: str | None = None
        os.register_at_fork(after_in_child=self._forked)
        # Where this rank may run, and how many ranks compute there: who is bound to cores has them alone.
        self.cores = len(os.sched_getaffinity(0))
        self.sharers = 1 if self.cores < (os.cpu_count() or 1) else len(near)
        self.under_way = 0  # bytes of collectives and messages
        self.looks_ahead: bool | None = None  # whatever cores there are, if somebody says so
        self.log: list[tuple[int, int, int]] | None = None  # when what went began and came, and its bytes
        self.is_sound = True  # no collective was left undone
        self.channel = Channel(self, comm, tuple(range(self.size)), self.number(), timeout)

    @property
    def has_idle_core(self) -> bool:
        """Whether the ranks of this machine leave a core idle that this one may run on while they compute."""
        if self.looks_ahead is None:
            return self.sharers * get_num_threads() < self.cores
        return self.looks_ahead

    def number(self) -> int:
        """The next number of a group; all ranks count alike."""
        self.numbers += 1
        return self.numbers

    def number_among(self, ranks: tuple[int, ...]) -> int:
        """The same for a group that its own ranks alone make, and count."""
        nth = self.numbers_among[ranks] = self.numbers_among.get(ranks, 0) + 1
        digest = hashlib.blake2b(repr((ranks, nth)).encode(), digest_size=7).digest()
        return 1 << 60 | int.from_bytes(digest, "little")

    def subset(self, ranks: tuple[int, ...], number: int, timeout: float) -> Channel | None:
        """A channel between some ranks; None on the others.  Those of `ranks` alone take part."""
        self.need_alive()
        if self.rank not in ranks:
            return None
        group = MPI.COMM_WORLD.Get_group().Incl(list(ranks))
        comm = MPI.COMM_WORLD.Create_group(group, number % 30000)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        return Channel(self, comm, ranks, number, timeout)

    def need_alive(self) -> None:
        """Raise DistributedError where nobody can be met: a rank was lost, or this is a forked child."""
        if self.trouble is FORKED:
            raise DistributedError(FORKED, "it can't meet the others: start it by spawn, or in the parent")
        if self.trouble:
            raise DistributedError(f"the group is broken: {self.trouble}", "start the job anew")

    def _forked(self) -> None:
        self.trouble = FORKED

    def lost(self, trouble: str) -> None:
        """Remember that a rank can't be met any more."""
        self.trouble = trouble

    def leave(self) -> None:
        """End this rank's part once all others have; the process's last act with MPI."""
        if MPI.Is_finalized() or os.getpid() != self.process:
            return
        if FAILED in os.environ:  # it is not waited for, and waits for nobody
            self.board.leave()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        if self.trouble:
            self.abort(1)
        PROGRESS.end()
        self.board.leave()
        request = MPI.COMM_WORLD.Ibarrier()
        wait(request.Test, EAGER, self._look_after_others)
        if self.is_sound:  # or MPI would wait for what was left undone
            MPI.Finalize()

    def _look_after_others(self, waited: float) -> None:
        for rank in self.near:
            if rank != self.rank and "gone" in (self.board.trouble(rank) or ""):
                self.abort(1)

    def abort(self, status: int) -> None:
        """End all ranks of the job at once; without a launcher the others see that this one is gone."""
        sys.stdout.flush()
        sys.stderr.flush()
        if rendezvous.IS_SERVED not in os.environ:
            MPI.COMM_WORLD.Abort(status)
        os._exit(status)  # MPI's own comes back where its launcher can't be reached


def join(timeout: float) -> World:
    """Meet all ranks of the job."""
    world = World(timeout)
    atexit.register(world.leave)
    before = sys.excepthook

    def told(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        if WATCHED in os.environ:
            return  # the launcher ends the others, and says why
        if world.size > 1 and not MPI.Is_finalized() and os.getpid() == world.process:
            time.sleep(0.3)  # for those who will find the same error by themselves, and say so
            world.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = told
    return world


def _of_size(buffer: Any, nbytes: int) -> Any:
    return MPI.memory.fromaddress(buffer.address, nbytes)
