"""Stores against PyTorch's: random requests have the same answers, of each kind."""

import datetime
import random

import pytest

import lamina.distributed as dist

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
peer = pytest.importorskip("torch.distributed", reason="this PyTorch has no distributed")

KEYS = ("a", "b", "", "n")
SHORT = datetime.timedelta(milliseconds=30)


def asked(rng):
    """A method and its arguments; numbers stand under n alone, as PyTorch hangs up on others."""
    key = rng.choice(KEYS[:3])
    value = rng.choice(["", "1", "x"])
    return rng.choice(
        [
            ("set", key, value), ("get", key), ("add", "n", rng.randrange(-9, 9)), ("append", key, value),
            ("compare_set", key, rng.choice(["", "1", "x"]), value), ("delete_key", rng.choice(KEYS)),
            ("check", rng.sample(KEYS, 2)), ("wait", rng.sample(KEYS, 2)), ("num_keys",),
            ("multi_set", ["a", "b"], [value, "z"]), ("multi_get", ["a", "b"]), ("queue_push", "q", value),
            ("queue_pop", "q", False), ("queue_len", "q"), ("has_extended_api",),
        ]
    )  # fmt: skip


def answered(store, request):
    name, *arguments = request
    try:
        return getattr(store, name)(*arguments)
    except RuntimeError as error:
        return "empty" if "QueueEmpty" in type(error).__name__ else "refused"


@pytest.mark.parametrize("prefixed", [False, True])
def test_random_requests_are_answered_as_by_pytorch(prefixed):
    rng = random.Random(prefixed)
    theirs = peer.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=20))
    ours = dist.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=20))
    if prefixed:
        theirs, ours = peer.PrefixStore("p", theirs), dist.PrefixStore("p", ours)
    for store in (theirs, ours):
        store.set_timeout(SHORT)
    for _ in range(300):
        request = asked(rng)
        assert answered(ours, request) == answered(theirs, request), request


def test_the_methods_are_there_with_their_defaults():
    for name in ("Store", "TCPStore", "FileStore", "HashStore", "PrefixStore"):
        there = {n for n in dir(getattr(peer, name)) if not n.startswith("_")}
        assert there - set(dir(getattr(dist, name))) == ({"host", "port"} if name == "TCPStore" else set())
    assert dist.TCPStore("127.0.0.1", 0, is_master=True).port  # attributes of each
    assert dist.HashStore().timeout == peer.HashStore().timeout
