"""Stores: what each op answers, in every kind; who shares one, who waits; hostile bytes; what is left."""

import datetime
import gc
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
import ranks
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina.distributed as dist
from lamina.distributed import file_store, store_table
from lamina.distributed.store_server import GREETING
from lamina.distributed.store_table import Op, Request, Table, packed, request_of, unpacked
from lamina.ir.errors import ArgumentError, ArgumentValueError, DistributedError

SHORT = datetime.timedelta(seconds=0.2)
KINDS = ("tcp", "file", "hash", "prefix")


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    return made(request.param, tmp_path)


def made(kind, tmp_path):
    """A new store of a kind."""
    if kind == "prefix":
        return dist.PrefixStore("a", made("tcp", tmp_path))
    if kind == "tcp":
        return dist.TCPStore("127.0.0.1", 0, is_master=True)
    return dist.HashStore() if kind == "hash" else dist.FileStore(str(tmp_path / "store"), 1)


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """No thread and no descriptor outlives the stores of a test."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    request.node.funcargs.clear()
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name == "lamina-store"]
    assert len(os.listdir("/proc/self/fd")) == before


def another(store):
    """The same store as another process would open it."""
    if isinstance(store, dist.PrefixStore):
        return dist.PrefixStore(store.prefix, another(store.underlying_store))
    if isinstance(store, dist.TCPStore):
        return dist.TCPStore(store.host, store.port)
    return dist.FileStore(store.path) if isinstance(store, dist.FileStore) else store


def test_ops_answer_as_pytorch_says(store):
    assert store.set("a", "x") is None and store.get("a") == b"x"
    store.set("a", b"\xff\0")
    assert another(store).get("a") == b"\xff\0"
    assert [store.add("n", 3), store.add("n", -5), store.get("n")] == [3, -2, b"-2"]
    asked = [("c", "", "one"), ("c", "zzz", "two"), ("c", "one", "two"), ("d", "x", "y")]
    assert [store.compare_set(*one) for one in asked] == [b"one", b"one", b"two", b"x"]
    assert store.get("c") == b"two" and not store.check(["d"])
    assert [store.check(["a", "c"]), store.check(["a", "q"]), store.check([])] == [True, False, True]
    store.append("p", "1"), store.append("p", "2")
    store.multi_set(["m1", "m2"], ["1", b"2"])
    assert store.multi_get(["p", "m1", "m2"]) == [b"12", b"1", b"2"]
    assert [store.delete_key("m1"), store.delete_key("m1"), store.num_keys()] == [True, False, 5]
    assert store.list_keys() == ["a", "c", "m2", "n", "p"]
    store.set("", "v"), store.set("é", "")
    assert store.multi_get(["", "é"]) == [b"v", b""] and store.has_extended_api()
    store.queue_push("a", "1"), another(store).queue_push("a", "2")
    assert [store.queue_len("a"), store.queue_pop("a"), store.queue_pop("a", False)] == [2, b"1", b"2"]
    with pytest.raises(dist.QueueEmptyError, match="the queue 'a' is empty"):
        store.queue_pop("a", block=False)
    assert store.queue_len("a") == 0 and store.clone().get("a") == b"\xff\0"


def test_refusals_leave_the_store_as_it_was(store):
    store.set("a", "x")
    store.set("huge", str((1 << 63) - 1))
    for ask, said in (
        (lambda: store.add("a", 1), "add('a'): the value is no number: b'x'"),
        (lambda: store.add("huge", 1), "is no 64-bit number"),
        (lambda: store.set("k" * (1 << 17), "x"), "a key of a store has at most 65536 bytes"),
        (lambda: store.set("a", bytes((8 << 20) + 1)), "a value of a store has at most 8388608 bytes"),
        (lambda: store.set(1, "x"), "a store's key is a str, not 1"),
        (lambda: store.set("a", 1), "a store's value is a str or bytes, not int"),
        (lambda: store.check("ab"), "keys: a list of str, not 'ab'"),
        (lambda: store.multi_set(["a"], []), "as many values as keys, not 0 for 1"),
        (lambda: store.wait(["a"], "soon"), "timeout: a datetime.timedelta above 0, not 'soon'"),
    ):
        with pytest.raises((DistributedError, ArgumentError, ArgumentValueError)) as refused:
            ask()
        assert said.replace("'a'", "'a/a'" if "add" in said and "prefix" in vars(store) else "'a'") in str(
            refused.value
        )
    assert store.get("a") == b"x" and store.num_keys() == 2
    with pytest.raises(ArgumentError, match="can't be pickled"):
        store.__reduce__()


def test_waits_end_with_the_key_or_in_time(store, monkeypatch):
    monkeypatch.setenv("RANK", "7")
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    for ask in (lambda: store.get("late"), lambda: store.wait(["late"]), lambda: store.queue_pop("late")):
        with pytest.raises(DistributedError, match="nobody set '.*late' for 0.2 s\n  this is rank 7"):
            ask()
    store.set_timeout(datetime.timedelta(seconds=20))
    other, got = another(store), []
    waiting = [threading.Thread(target=lambda: got.append(store.get("late"))) for _ in range(3)]
    waiting += [threading.Thread(target=lambda: got.append(other.queue_pop("q")))]
    [thread.start() for thread in waiting]
    store.set("late", "here")  # by the store that others wait by
    store.queue_push("q", "first")
    [thread.join(20) for thread in waiting]
    assert sorted(got) == [b"first", b"here", b"here", b"here"]


def test_sums_of_many_threads(store):
    stores = [another(store) for _ in range(4)]
    sums = []

    def work(own):
        [own.add("n", 1) for _ in range(50)]
        own.barrier("all", 4)
        sums.append(own.add("n", 0))

    threads = [threading.Thread(target=work, args=(own,)) for own in stores]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sums == [200] * 4


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_sums_of_several_processes(kind, tmp_path):
    store = made(kind, tmp_path)
    children = []
    for _ in range(3):
        if not (child := os.fork()):
            try:
                [store.add("n", 1) for _ in range(300)]
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert store.add("n", 0) == 900


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_a_forked_child_asks_by_itself_and_takes_nothing_along(kind, tmp_path):
    store = made(kind, tmp_path)
    store.set("a", "parent")
    child = os.fork()
    if not child:
        try:
            threads = threading.active_count()
            for n in range(500):
                store.set("child", f"{n}")
                assert store.get("child") == b"%d" % n
            store.set("child", store.get("a") + b" was read")
            store = None
            gc.collect()
            os._exit(0 if threads == 1 else 3)
        except BaseException:
            os._exit(1)
    for n in range(500):  # at the same time
        store.set("mine", f"{n} parent")
        assert store.get("mine") == b"%d parent" % n
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("child") == b"parent was read"


def test_a_child_keeps_no_port(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    port = store.port
    child = os.fork()
    if not child:
        signal.pause()
    try:
        store = None
        gc.collect()
        with pytest.raises(DistributedError, match=f"nobody listens at 127.0.0.1:{port} after 0.* s"):
            dist.TCPStore("127.0.0.1", port, timeout=SHORT)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_masters_wait_for_all_and_ports_are_said():
    with pytest.raises(DistributedError, match=r"TCPStore\(localhost:\d+\): 1 of 2 processes came in 0.2 s"):
        dist.TCPStore("localhost", 0, 2, True, SHORT)
    master = dist.TCPStore("localhost", 0, 2, True, SHORT, wait_for_workers=False)
    assert dist.TCPStore("localhost", master.port, 2).get("init/") == b"2"
    with pytest.raises(
        DistributedError, match=f"TCPStore.localhost:{master.port}.: this process can't listen"
    ):
        dist.TCPStore("localhost", master.port, is_master=True)
    with pytest.raises(ArgumentValueError, match="the master alone can choose one"):
        dist.TCPStore("localhost", 0)
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        given = dist.TCPStore(
            "127.0.0.1", own.getsockname()[1], is_master=True, master_listen_fd=own.detach()
        )
    given.set("a", "b")
    assert given.get("a") == b"b"


def test_masters_of_one_process_share_a_port_if_asked():
    first = dist.TCPStore("localhost", 0, is_master=True, multi_tenant=True)
    second = dist.TCPStore("localhost", first.port, is_master=True, multi_tenant=True)
    first.set("a", "b")
    del first
    gc.collect()
    assert second.get("a") == b"b"
    port = second.port
    del second
    gc.collect()
    again = dist.TCPStore("localhost", port, is_master=True, multi_tenant=True)
    assert not again.check(["a"])


def test_clients_hear_that_the_master_has_ended(tmp_path):
    text = """if True:
        import lamina.distributed as dist
        store = dist.TCPStore('127.0.0.1', 0, is_master=True)
        print(store.port, flush=True)
        store.get("never")
    """
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as master:
        store = dist.TCPStore("127.0.0.1", int(master.stdout.readline()))
        threading.Timer(0.3, master.kill).start()
        with pytest.raises(DistributedError, match=r"TCPStore\(127.0.0.1:\d+\): get: the connection ended"):
            store.get("never")
        master.kill()
    with pytest.raises(DistributedError, match="the connection ended|nobody listens"):
        store.set_timeout(SHORT)
        store.set("a", "b")


def test_a_slow_answer_is_not_taken_for_the_next_ones():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT)
    with pytest.raises(DistributedError):
        store.get("late")
    store.set("late", "1"), store.set("b", "2")
    assert store.get("b") == b"2"


# ---- hostile bytes ----
def hostile(rng):
    """What no client sends."""
    whole = GREETING + packed(Op.SET, [b"k"], [b"v"])
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if kind == 1:
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    if kind == 2:
        return GREETING + struct.pack(
            ">IBI", rng.randrange(1 << 32), rng.randrange(256), rng.randrange(1 << 32)
        )
    if kind == 3:  # one request behind the other
        return whole + packed(Op.SET, [b"k"], [b"w"])
    if kind == 4:
        return GREETING + packed(rng.randrange(16, 256), [b"k"], [])
    if kind == 5:  # numbers of keys that don't fit
        return GREETING + packed(rng.choice(list(Op)), [b"k"] * rng.randrange(4), [b"1"] * rng.randrange(4))
    bad = bytearray(whole)
    for _ in range(rng.randrange(1, 4)):
        bad[rng.randrange(len(bad))] = rng.randrange(256)
    return bytes(bad)


def test_hostile_bytes_end_in_a_closed_connection():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    store.set("mine", "1")
    rng = random.Random(0)
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", store.port)) as own:
            try:
                own.sendall(hostile(rng))
                own.shutdown(socket.SHUT_WR)
                own.settimeout(5)
                while own.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
    assert store.get("mine") == b"1"
    with socket.create_connection(("127.0.0.1", store.port)) as own:  # it never reads, and asks on
        own.sendall(GREETING + packed(Op.GET, [b"not there"], []))
        time.sleep(0.05)
        own.sendall(packed(Op.GET, [b"mine"], []))
        own.settimeout(5)
        try:
            assert own.recv(1) == b""
        except ConnectionError:
            pass


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_refused(data):
    try:
        request = request_of(data)
    except ValueError:
        return
    assert unpacked(packed(*request)[4:]) == tuple(request)
    try:
        Table().answer(request)
    except DistributedError:
        pass


KEYS = st.sampled_from([b"a", b"b", b"", b"1"])
OPS = st.sampled_from(list(Op))


@st.composite
def requests(draw):
    """Mostly such as clients send."""
    op, anything = draw(OPS), st.lists(KEYS, max_size=3)
    if op not in store_table._TAKES or not draw(st.integers(0, 9)):
        return Request(op, draw(anything), draw(anything))
    sizes = store_table._TAKES[op]
    return Request(op, *(draw(st.lists(KEYS, min_size=n, max_size=n)) for n in sizes))


@given(st.lists(requests(), max_size=30))
def test_a_table_counts_its_bytes_and_does_nothing_by_halves(asked):
    table, again = Table(), Table()
    for request in asked:
        before = dict(table.values), {k: list(q) for k, q in table.queues.items()}
        try:
            answer = table.answer(request)
        except DistributedError:
            answer = None
        if answer is None:
            assert before == (table.values, {k: list(q) for k, q in table.queues.items()})
        else:
            again.answer(request_of(packed(*request)[4:]))
    kept = sum(len(k) + len(v) for k, v in table.values.items())
    kept += sum(len(k) + sum(map(len, q)) for k, q in table.queues.items())
    assert table.nbytes == kept and again.values == table.values and again.queues == table.queues


def test_a_store_is_full_at_its_limit(monkeypatch):
    monkeypatch.setattr(store_table, "WHOLE", 100)
    table = Table()
    table.answer(Request(Op.SET, [b"a"], [bytes(80)]))
    for op in (Op.SET, Op.PUSH, Op.APPEND):
        with pytest.raises(DistributedError, match="the store is full: it keeps at most 100 bytes"):
            table.answer(Request(op, [b"b"], [bytes(40)]))
    assert list(table.values) == [b"a"] and table.nbytes == 81


# ---- files ----
def test_a_file_goes_with_the_last_of_all(tmp_path):
    path = tmp_path / "store"
    path.touch()  # as those who take a fresh name do
    first, second = dist.FileStore(str(path), 2), dist.FileStore(path, 2)
    first.set("a", "b")
    del first
    gc.collect()
    assert second.get("a") == b"b" and second.path == str(path)
    del second
    gc.collect()
    assert not path.exists()
    kept = dist.FileStore(str(path))
    kept.set("a", "c")
    del kept
    gc.collect()
    assert dist.FileStore(str(path)).get("a") == b"c"


def test_a_file_that_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("something of the user's")
    with pytest.raises(DistributedError, match="this file is none of a store"):
        dist.FileStore(str(path), 1)
    gc.collect()
    assert path.read_text() == "something of the user's"
    with pytest.raises(DistributedError, match=r"FileStore\('.*/no/store'\): No such file or directory"):
        dist.FileStore(str(tmp_path / "no" / "store"))


def test_what_a_killed_process_wrote_in_part_is_cut_off(tmp_path):
    """At each length of the last request, and with any byte of it changed."""
    store = dist.FileStore(str(tmp_path / "store"))
    store.set("a", "1")
    whole = (tmp_path / "store").read_bytes()
    joined = bytes(4) + packed(Op.JOIN, [], [])  # behind a checksum
    store.set("b", "23")
    longer = (tmp_path / "store").read_bytes()
    broken = [longer[:n] for n in range(len(whole), len(longer))]
    broken += [longer[:n] + bytes([longer[n] ^ 1]) + longer[n + 1 :] for n in range(len(whole), len(longer))]
    for number, data in enumerate(broken):
        path = tmp_path / str(number)
        path.write_bytes(data)
        again = dist.FileStore(str(path))
        assert again.list_keys() == ["a"] and len(path.read_bytes()) == len(whole) + len(joined)
        again.set("c", "3")
        assert dist.FileStore(str(path)).multi_get(["a", "c"]) == [b"1", b"3"]


def test_a_file_made_anew_is_another_store(tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path))
    store.set("a", "1")
    path.unlink()
    assert not store.check(["a"])
    store.set("b", "1")
    assert dist.FileStore(str(path)).list_keys() == ["b"]


def test_a_disk_that_is_full_changes_nothing(tmp_path, monkeypatch):
    store = dist.FileStore(str(tmp_path / "store"))
    store.set("a", "1")

    def full(fd, data, at):
        os.pwrite(fd, data[: len(data) // 2], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file_store, "_write_all", full)
        with pytest.raises(DistributedError, match="No space left on device"):
            store.set("a", "2")
    assert store.get("a") == b"1" and store.add("n", 1) == 1


@settings(max_examples=20)
@given(st.binary(max_size=80))
def test_any_file_is_a_store_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "store"
    for begin in (b"", b"Lamina store file 1\n"):
        path.write_bytes(begin + data)
        try:
            dist.FileStore(str(path)).set("a", "b")
        except DistributedError as error:
            assert "none of a store" in str(error)


# ---- ranks meet by them ----
MEET = """
import multiprocessing, os, socket, sys
def store(how, rank, port, path):
    if how == "file":
        return dist.FileStore(path, 2)
    own = dist.TCPStore("localhost", port, 2, is_master=rank == 1)  # not rank 0's
    return dist.PrefixStore("meet", own) if how == "prefix" else own
def child(rank, how, port, path):
    own = store(how, rank, port, path)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=2)
    x = lamina.tensor([rank])
    dist.all_reduce(x)
    assert x.item() == 1 and dist.get_rank() == rank
    own.set(f"done {rank}", "1")
    own.wait([f"done {1 - rank}"])
    dist.barrier()  # the store ends with its master
    print(f"{how} met", flush=True)
if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=child, args=(r, sys.argv[1], port, sys.argv[2])) for r in range(2)]
    [c.start() for c in children]
    [c.join() for c in children]
    assert [c.exitcode for c in children] == [0, 0], children
"""


@pytest.mark.parametrize("how", ["tcp", "prefix", "file"])
def test_ranks_meet_by_a_store(how, tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    (tmp_path / "meet.py").write_text(ranks.BEGIN + MEET)
    place = tmp_path / "place"
    printed = ranks.command([sys.executable, str(tmp_path / "meet.py"), how, str(place)])
    assert printed.count(f"{how} met") == 2, printed
    assert not place.exists()


def test_a_store_or_a_method_but_not_both():
    with pytest.raises(ArgumentValueError, match="store or init_method, not both"):
        dist.init_process_group("gloo", "tcp://127.0.0.1:1", store=dist.HashStore(), rank=0, world_size=2)


def test_a_recorded_function_that_asks_a_store_runs_as_it_is():
    import lamina

    store = dist.HashStore()

    @lamina.jit.trace
    def step(x):
        return x * store.add("n", 1)

    assert [step(lamina.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    assert "a store was asked" in str(step.explain())
