"""NCCL's calls, against a fake library that holds them to NCCL's rules; no GPU has run them."""

import numpy as np
import pytest
import ranks
from fake_nccl import HEADER, REMOTE, SYSTEM, FakeNccl, on_ranks

from lamina.distributed.nccl import Communicator, Nccl
from lamina.distributed.nccl_library import REDUCTIONS, SIGNATURES, TYPES, UniqueId, open_library
from lamina.ir.errors import DistributedError
from lamina.ir.lazy import MissingLibraryError


def test_the_table_says_what_the_header_says():
    import ctypes

    assert SIGNATURES.keys() == HEADER.keys()
    for name, (_, *arguments) in HEADER.items():
        sizes = [ctypes.sizeof(a) for a in SIGNATURES[name]]
        assert sizes == [ctypes.sizeof(a) for a in arguments], name
        numbers = [a for a in SIGNATURES[name] if a in (ctypes.c_size_t, ctypes.c_int)]
        assert numbers == [a for a in arguments if a in (ctypes.c_size_t, ctypes.c_int)], name


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_collectives_move_what_they_say(size, dtype):
    fake, n = FakeNccl(), 5
    whole = np.random.default_rng(1).integers(0, 5, (size, size * n)).astype(dtype)
    combine = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min, "avg": np.mean}

    def body(comm, stream, rank):
        x, _ = fake.block(whole[rank])
        for reduce, f in combine.items():
            expected = f(whole, axis=0).astype(dtype)
            y, out = fake.block(np.zeros(size * n, dtype))
            comm.all_reduce(x, y, size * n, dtype, reduce, stream)
            assert np.array_equal(out, expected), reduce
            comm.reduce(x, y, n, dtype, reduce, size - 1, stream)
            assert rank < size - 1 or np.array_equal(out[:n], expected[:n])
            comm.reduce_scatter(x, y, n, dtype, reduce, stream)
            assert np.array_equal(out[:n], expected[rank * n : rank * n + n])
        y, out = fake.block(np.zeros(size * n, dtype))
        comm.broadcast(x, y, size * n, dtype, size - 1, stream)
        assert np.array_equal(out, whole[-1])
        comm.all_gather(x, y, n, dtype, stream)
        assert np.array_equal(out, whole[:, :n].reshape(-1))
        if size > 1:  # to the next, and from the one before
            with comm.group():
                comm.recv(y, n, dtype, (rank - 1) % size, stream)
                comm.send(x, n, dtype, (rank + 1) % size, stream)
            assert np.array_equal(out[:n], whole[rank - 1, :n])
        comm.check()
        comm.destroy()

    on_ranks(fake, size, body)
    assert not fake.faults and not fake.comms, fake.faults


def test_every_type_and_reduction_has_its_number():
    assert (TYPES["int8"], TYPES["float16"], TYPES["bfloat16"]) == (0, 6, 9)
    assert REDUCTIONS == {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4}


def alone(fake):
    """A communicator of one rank, its stream, and two addresses of 8 floats."""
    kept = []
    on_ranks(fake, 1, lambda comm, stream, rank: kept.extend((comm, stream)))
    fake.device = lambda: 0
    return *kept, fake.block(np.ones(8, np.float32))[0], fake.block(np.zeros(8, np.float32))[0]


def test_what_nccl_refuses_is_said_with_its_words():
    fake = FakeNccl()
    comm, stream, x, y = alone(fake)
    fake.fail("ncclAllReduce", SYSTEM)
    with pytest.raises(DistributedError, match="ncclAllReduce: unhandled system error") as refused:
        comm.all_reduce(x, y, 8, "float32", "sum", stream)
    assert "the fake was asked to fail" in str(refused.value) and "result 2" in str(refused.value)
    with pytest.raises(DistributedError, match="ncclAllReduce: unhandled cuda error"):
        comm.all_reduce(x, y, 9, "float32", "sum", stream)  # more than there is
    fake.asynchronous = REMOTE
    with pytest.raises(DistributedError, match="remote process exited, while it ran"):
        comm.check()
    comm.abort()
    comm.abort()
    assert fake.calls.count("ncclCommAbort") == 1 and not fake.comms
    with pytest.raises(DistributedError, match="destroyed or aborted"):
        comm.all_reduce(x, y, 8, "float32", "sum", stream)


def test_what_can_be_told_ahead_never_reaches_nccl():
    fake = FakeNccl()
    comm, stream, x, y = alone(fake)
    before = len(fake.calls)
    for call, says in (
        (lambda: comm.all_reduce(x, y, 8, "bool", "sum", stream), "no type for bool"),
        (lambda: comm.all_reduce(x, y, 8, "complex64", "sum", stream), "two floats"),
        (lambda: comm.all_reduce(x, y, -1, "float32", "sum", stream), "at least 0"),
        (lambda: comm.all_reduce(x, y, 8, "float32", "band", stream), "combines by sum"),
        (lambda: comm.broadcast(x, y, 8, "float32", 1, stream), "rank 1 of 1"),
        (lambda: comm.send(x, 8, "float32", -1, stream), "rank -1 of 1"),
        (lambda: Communicator(comm.nccl, comm.device, 2, 2, UniqueId()), "rank 2 of 2"),
    ):
        with pytest.raises((ValueError, TypeError), match=says):
            call()
    assert len(fake.calls) == before


def test_ranks_that_call_different_things_are_told():
    fake = FakeNccl()

    def body(comm, stream, rank):
        x, _ = fake.block(np.ones(4, np.float32))
        comm.all_reduce(x, x, 4 - rank, "float32", "sum", stream)

    with pytest.raises(DistributedError, match="invalid usage"):
        on_ranks(fake, 2, body)
    assert "the ranks called" in fake.faults[0]


def test_a_group_ends_where_its_body_raises():
    fake = FakeNccl()
    comm, stream, x, _ = alone(fake)
    with pytest.raises(ZeroDivisionError):
        with comm.group():
            1 / 0  # noqa: B018
    assert fake.calls[-1] == "ncclGroupEnd"
    with comm.group():
        comm.all_reduce(x, x, 8, "float32", "sum", stream)
    assert not fake.faults


def test_libraries_that_are_too_old_or_lack_something():
    with pytest.raises(DistributedError, match="NCCL 20906 is older than 21000"):
        Nccl(FakeNccl(version=20906))
    with pytest.raises(DistributedError, match="has no ncclRecv"):
        Nccl(FakeNccl(without=("ncclRecv",)))


def test_a_missing_library_is_said_with_where_to_get_it(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda path: (_ for _ in ()).throw(OSError(f"{path}: not there")))
    with pytest.raises(MissingLibraryError, match=r"libnccl\.so\.2 is needed here") as missing:
        open_library()
    assert "pip install nvidia-nccl-cu12" in str(missing.value)


def test_backend_nccl_joins_gpus_and_refuses_tensors(tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(
        1,
        f"""
        import sys
        sys.path.insert(0, {str(ranks.ROOT / "tests/distributed")!r})
        from types import SimpleNamespace
        from fake_nccl import FakeNccl, FakeStream
        from lamina.distributed import nccl
        import lamina.distributed.functional as F
        try:
            nccl.open_library = lambda: (_ for _ in ()).throw(lamina.ir.errors.DeviceError("no library"))
            dist.init_process_group("nccl")
        except RuntimeError as error:
            assert "no library" in str(error) and not dist.is_initialized()
        fake = FakeNccl()
        nccl.open_library = lambda: fake
        device = SimpleNamespace(use=lambda: None)
        nccl.Driver = SimpleNamespace(open=lambda: SimpleNamespace(count=1, device=lambda ordinal: device))
        dist.init_process_group("nccl")
        assert dist.get_backend() == "nccl"
        dist.barrier()
        told = [1]
        dist.broadcast_object_list(told, 0)
        for call in (lambda: dist.all_reduce(lamina.ones(2)), lambda: dist.broadcast(lamina.ones(2), 0),
                     lambda: nn.parallel.DistributedDataParallel(nn.Linear(1, 1))):
            try:
                call()
            except RuntimeError as error:
                assert "tensors are on the CPU" in str(error) and 'backend="mpi"' in str(error)
                print("refused")
        comm = nccl.get_communicator()
        address, out = fake.block(np.ones(3, np.float32))
        comm.all_reduce(address, address, 3, "float32", "sum", FakeStream(fake, 9))
        other = dist.new_group(backend="gloo")
        dist.all_reduce(x := lamina.ones(1), group=other)
        try:
            nccl.get_communicator(other)
        except ValueError as error:
            print("refused")
        dist.destroy_process_group()
        assert not fake.comms and not fake.faults, fake.faults
        """,
        tmp_path,
    )
    assert printed.count("refused") == 4, printed
