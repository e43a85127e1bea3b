"""A fake of NCCL's library: C functions that Python answers, which hold each call to NCCL's rules.

The functions are real ones, by ctypes, so that arguments go through the types that the caller has declared
and arrive with those of nccl.h, which stand here a second time.  Ranks are threads; "device memory" is the
host's, within blocks that a test names.  A collective is done when all ranks of a communicator are there.
"""

import ctypes
import threading
from collections import Counter

import numpy as np

C = ctypes
INVALID_ARGUMENT, INVALID_USAGE, SYSTEM, REMOTE = 4, 5, 2, 6
TEXT = {
    0: b"no error", 1: b"unhandled cuda error", 2: b"unhandled system error", 3: b"internal error",
    4: b"invalid argument", 5: b"invalid usage", 6: b"remote process exited", 7: b"in progress",
}  # fmt: skip


class Id(C.Structure):
    _fields_ = [("internal", C.c_char * 128)]


P, SIZE, INT = C.c_void_p, C.c_size_t, C.c_int
# From nccl.h: result and arguments.
HEADER = {
    "ncclGetVersion": (INT, P),
    "ncclGetUniqueId": (INT, P),
    "ncclCommInitRank": (INT, P, INT, Id, INT),
    "ncclCommDestroy": (INT, P),
    "ncclCommAbort": (INT, P),
    "ncclCommGetAsyncError": (INT, P, P),
    "ncclCommCount": (INT, P, P),
    "ncclCommUserRank": (INT, P, P),
    "ncclGetErrorString": (P, INT),
    "ncclGetLastError": (P, P),
    "ncclGroupStart": (INT,),
    "ncclGroupEnd": (INT,),
    "ncclAllReduce": (INT, P, P, SIZE, INT, INT, P, P),
    "ncclReduce": (INT, P, P, SIZE, INT, INT, INT, P, P),
    "ncclBroadcast": (INT, P, P, SIZE, INT, INT, P, P),
    "ncclAllGather": (INT, P, P, SIZE, INT, P, P),
    "ncclReduceScatter": (INT, P, P, SIZE, INT, INT, P, P),
    "ncclSend": (INT, P, SIZE, INT, INT, P, P),
    "ncclRecv": (INT, P, SIZE, INT, INT, P, P),
}
DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
COMBINE = [np.add.reduce, np.multiply.reduce, np.maximum.reduce, np.minimum.reduce, lambda x: np.mean(x, 0)]


class Clique:
    """The ranks of one unique id, and the call that they meet in."""

    def __init__(self, size):
        self.size, self.members = size, {}
        self.barrier = threading.Barrier(size)
        self.given = {}
        self.mail = {}
        self.arrived = threading.Condition()


class FakeNccl:
    """The library: `Nccl(FakeNccl())`.

    streams: the handles that are known.  calls: names, in order, by thread.  faults: what broke a rule.
    """

    def __init__(self, version=22105, without=()):
        self.version, self.calls, self.faults = version, [], []
        self.streams, self.blocks = set(), []
        self.failing = {}
        self.asynchronous = 0
        self.cliques, self.comms = {}, {}
        self.local = threading.local()
        self.lock = threading.Lock()
        self.device = lambda: 0  # the current one, as `Device.use` left it
        self._texts = {code: C.create_string_buffer(text) for code, text in TEXT.items()}
        self._last = C.create_string_buffer(b"the fake was asked to fail")
        self._keep = []
        for name, (result, *arguments) in HEADER.items():
            if name not in without:
                setattr(self, name, self._function(name, result, arguments))

    def _function(self, name, result, arguments):
        answer = getattr(self, f"_{name}")

        def called(*given):
            with self.lock:
                self.calls.append(name)
                count = Counter(self.calls)[name]
            try:
                if (name, count) in self.failing:
                    return self.failing[name, count]
                return answer(*given)
            except Broken as broken:
                self.faults.append(f"{name}: {broken}")
                return broken.code
            except BaseException as error:
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
                return INVALID_USAGE

        native = C.CFUNCTYPE(result, *arguments)(called)
        self._keep.append(native)
        # as a library gives it: without types, which the caller sets
        return C.CFUNCTYPE(INT)(C.cast(native, P).value)

    def fail(self, name, code, nth=1):
        """Have the nth call of a function, counted from the beginning, return a code and do nothing."""
        self.failing[name, nth] = code

    # ---- memory that is the device's
    def block(self, values):
        """The address of device memory with these values, and the array that sees it."""
        array = np.ascontiguousarray(values).copy()
        self.blocks.append(array)
        return array.ctypes.data, array

    def _seen(self, address, count, kind):
        need(0 <= kind < len(DTYPES), f"type {kind}")
        dtype = np.dtype(DTYPES[kind])
        nbytes, address = count * dtype.itemsize, address or 0
        for block in self.blocks:
            begin = block.ctypes.data
            if begin <= address and address + nbytes <= begin + block.nbytes:
                seen = np.ctypeslib.as_array((C.c_uint8 * nbytes).from_address(address))
                return seen.view(dtype)
        raise Broken(f"{count} elements at {address} are no device memory", 1)

    # ---- what each function does
    def _ncclGetVersion(self, out):
        C.cast(out, C.POINTER(INT))[0] = self.version
        return 0

    def _ncclGetErrorString(self, code):
        return C.addressof(self._texts.get(code, self._texts[3]))

    def _ncclGetLastError(self, comm):
        return C.addressof(self._last)

    def _ncclGetUniqueId(self, out):
        made = bytes([len(self.cliques) + 1]) * 128
        C.memmove(out, made, 128)
        self.cliques[made] = None
        return 0

    def _ncclCommInitRank(self, out, size, unique_id, rank):
        key = C.string_at(C.addressof(unique_id), 128)
        need(key in self.cliques, "an id that nobody made")
        need(0 <= rank < size, f"rank {rank} of {size}")
        with self.lock:
            clique = self.cliques[key] = self.cliques[key] or Clique(size)
            need(clique.size == size, "another size")
            need(rank not in clique.members, "the rank is there already")
            handle = 1000 * len(self.cliques) + rank + 1
            clique.members[rank] = self.device()
            self.comms[handle] = (clique, rank)
        clique.barrier.wait(20)  # it returns when all are there
        C.cast(out, C.POINTER(P))[0] = handle
        return 0

    def _known(self, comm):
        need(comm in self.comms, f"communicator {comm} is not known, or was ended")
        return self.comms[comm]

    def _ncclCommDestroy(self, comm):
        self._known(comm)
        del self.comms[comm]
        return 0

    _ncclCommAbort = _ncclCommDestroy

    def _ncclCommGetAsyncError(self, comm, out):
        self._known(comm)
        C.cast(out, C.POINTER(INT))[0] = self.asynchronous
        return 0

    def _ncclCommCount(self, comm, out):
        C.cast(out, C.POINTER(INT))[0] = self._known(comm)[0].size
        return 0

    def _ncclCommUserRank(self, comm, out):
        C.cast(out, C.POINTER(INT))[0] = self._known(comm)[1]
        return 0

    def _ncclGroupStart(self):
        self.local.depth = getattr(self.local, "depth", 0) + 1
        return 0

    def _ncclGroupEnd(self):
        need(getattr(self.local, "depth", 0) > 0, "no group was begun")
        self.local.depth -= 1
        if not self.local.depth:
            queued, self.local.queued = getattr(self.local, "queued", []), []
            # what goes goes first: all of a group begin together
            for go in sorted(queued, key=lambda item: item[0] != "ncclSend"):
                go[1]()
        return 0

    def _put(self, name, comm, stream, what):
        clique, rank = self._known(comm)
        need(stream in self.streams, f"stream {stream} is not known")
        need(self.device() == clique.members[rank], "another device is current")
        if getattr(self.local, "depth", 0):
            self.local.queued = [*getattr(self.local, "queued", []), (name, lambda: what(clique, rank))]
        else:
            need(name not in ("ncclSend", "ncclRecv") or clique.size > 1, "a message to itself, alone")
            what(clique, rank)
        return 0

    def _together(self, name, comm, stream, about, source, write):
        """All ranks give (what they call, with what) and an array; each writes of all."""

        def what(clique, rank):
            clique.given[rank] = (name, about, None if source is None else source.copy())
            clique.barrier.wait(20)
            said = {given[:2] for given in clique.given.values()}
            arrays = [clique.given[r][2] for r in range(clique.size)]
            clique.barrier.wait(20)
            need(len(said) == 1, f"the ranks called {sorted(said)}", INVALID_USAGE)
            write(arrays, rank)
            clique.barrier.wait(20)

        return self._put(name, comm, stream, what)

    def _ncclAllReduce(self, source, target, count, kind, op, comm, stream):
        need(0 <= op < 5, f"reduction {op}")
        x, out = self._seen(source, count, kind), self._seen(target, count, kind)

        def write(arrays, rank):
            out[:] = COMBINE[op](np.stack(arrays))

        return self._together("AllReduce", comm, stream, (count, kind, op), x, write)

    def _ncclReduce(self, source, target, count, kind, op, root, comm, stream):
        need(0 <= op < 5, f"reduction {op}")
        x, own = self._seen(source, count, kind), self._known(comm)[1] == root
        out = self._seen(target, count, kind) if own else None

        def write(arrays, rank):
            if own:
                out[:] = COMBINE[op](np.stack(arrays))

        return self._together("Reduce", comm, stream, (count, kind, op, root), x, write)

    def _ncclBroadcast(self, source, target, count, kind, root, comm, stream):
        own = self._known(comm)[1] == root
        x, out = self._seen(source, count, kind) if own else None, self._seen(target, count, kind)

        def write(arrays, rank):
            out[:] = arrays[root]

        return self._together("Broadcast", comm, stream, (count, kind, root), x, write)

    def _ncclAllGather(self, source, target, count, kind, comm, stream):
        x, size = self._seen(source, count, kind), self._known(comm)[0].size
        out = self._seen(target, count * size, kind)

        def write(arrays, rank):
            out[:] = np.concatenate(arrays)

        return self._together("AllGather", comm, stream, (count, kind), x, write)

    def _ncclReduceScatter(self, source, target, count, kind, op, comm, stream):
        need(0 <= op < 5, f"reduction {op}")
        size = self._known(comm)[0].size
        x, out = self._seen(source, count * size, kind), self._seen(target, count, kind)

        def write(arrays, rank):
            out[:] = COMBINE[op](np.stack(arrays))[rank * count : (rank + 1) * count]

        return self._together("ReduceScatter", comm, stream, (count, kind, op), x, write)

    def _ncclSend(self, source, count, kind, peer, comm, stream):
        x = self._seen(source, count, kind)

        def what(clique, rank):
            need(0 <= peer < clique.size, f"peer {peer}")
            with clique.arrived:
                clique.mail.setdefault((rank, peer), []).append((count, kind, x.copy()))
                clique.arrived.notify_all()

        return self._put("ncclSend", comm, stream, what)

    def _ncclRecv(self, target, count, kind, peer, comm, stream):
        out = self._seen(target, count, kind)

        def what(clique, rank):
            need(0 <= peer < clique.size, f"peer {peer}")
            with clique.arrived:
                there = clique.arrived.wait_for(lambda: clique.mail.get((peer, rank)), 20)
                need(there, "nobody sent")
                sent = clique.mail[peer, rank].pop(0)
            need(sent[:2] == (count, kind), f"sent was {sent[:2]}, not {(count, kind)}")
            out[:] = sent[2]

        return self._put("ncclRecv", comm, stream, what)


class Broken(Exception):
    """A rule that a call broke, and the code that NCCL would return."""

    def __init__(self, rule, code=INVALID_ARGUMENT):
        super().__init__(rule)
        self.code = code


def need(holds, rule, code=INVALID_ARGUMENT):
    if not holds:
        raise Broken(rule, code)


class FakeStream:
    """A stream of the driver's, as far as NCCL knows it."""

    def __init__(self, fake, handle):
        self.handle = handle
        fake.streams.add(handle)


class FakeDevice:
    """A device whose `use` is remembered, by thread."""

    def __init__(self, fake, ordinal, current):
        self.fake, self.ordinal, self.current = fake, ordinal, current

    def use(self):
        self.current.ordinal = self.ordinal


def on_ranks(fake, size, body):
    """Run `body(comm, stream, rank)` on threads that are ranks, each with a GPU; raise what one raised."""
    from lamina.distributed.nccl import Communicator, Nccl

    nccl = Nccl(fake)
    unique_id = nccl.unique_id()
    current = threading.local()
    fake.device = lambda: getattr(current, "ordinal", None)
    raised = []

    def run(rank):
        try:
            comm = Communicator(nccl, FakeDevice(fake, rank, current), size, rank, unique_id)
            current.ordinal = None  # another library may make its own current
            body(comm, FakeStream(fake, 500 + rank), rank)
        except BaseException as error:
            raised.append(error)
            for clique in fake.cliques.values():
                clique.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    first = [e for e in raised if not isinstance(e, threading.BrokenBarrierError)]
    if first:
        raise first[0]
