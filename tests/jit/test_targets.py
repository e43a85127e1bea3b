"""What traced functions are compiled for: names, and what keeps programs of different targets apart."""

import pytest

import lamina
from lamina import jit
from lamina.jit import backend, targets
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE


def test_targets_are_named():
    assert targets.target_of("cpu") is targets.CPU
    assert targets.target_of("cuda").name == "cuda:0"
    assert targets.target_of("cuda:3") is targets.target_of("cuda:3")
    for name in ("gpu", "cuda:", "cuda:x", "CUDA", ""):
        with pytest.raises(TypeError, match="target is 'cpu', 'cuda' or 'cuda:N'"):
            jit.trace(lambda x: x, target=name)


def test_machines_that_share_a_cache_keep_their_programs_apart(monkeypatch):
    """Of one graph, each level of CPU has an entry of its own, whatever it is split into."""
    asked = []
    get = backend.disk.Cache.get
    monkeypatch.setattr(backend.disk.Cache, "get", lambda cache, name: asked.append(name) or get(cache, name))
    keys = []
    for level in (AVX512, AVX2, BASELINE):
        monkeypatch.setattr(targets, "host_target", lambda level=level: level)
        backend.forget()
        asked.clear()
        f = jit.trace(lambda x: x * 2 + 1)
        f(lamina.ones(3))
        keys.append(asked[0])  # what is known of the whole comes first
    assert len({*keys}) == 3


def test_the_language_of_the_code_is_the_targets():
    f = jit.trace(lambda x: x * 2)
    f(lamina.ones(3))
    assert f.source() == f.source("llvm") and "define " in f.source()
    with pytest.raises(TypeError, match="there is 'llvm', not 'triton'"):
        f.source("triton")
