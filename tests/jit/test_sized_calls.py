"""One recording of what takes sizes serves all of them, where nothing asks for values; and none wrongly."""

import sized_calls
from pytest import mark, raises

import lamina
from lamina import jit
from lamina.jit import backend
from lamina.jit.interpreted import compile_graph
from lamina.jit.observe.instances import Instances
from lamina.jit.symbolic import Symbolic


def served(name, monkeypatch):
    """Call a case on all sizes, traced and not: the traced function."""
    function, given = sized_calls.CALLS[name]
    monkeypatch.setattr(backend, "compile_graph", compile_graph)
    traced = jit.trace(function, budget=None)
    with lamina.no_grad():
        for sizes in sized_calls.SIZES:
            x = given(*sizes)
            wanted, found = function(x), traced(x)
            assert found.shape == wanted.shape and found.dtype is wanted.dtype, sizes
            # orders of sums differ: 1e-4 of the largest number
            assert (found - wanted).abs().max() <= 1e-4 * (1 + wanted.abs().max()), sizes
    return traced


@mark.sampled(7)
@mark.parametrize("name", sized_calls.CALLS)
def test_calls_of_many_sizes(name, monkeypatch):
    traced = served(name, monkeypatch)
    if name not in sized_calls.OFTENER and name not in sized_calls.ASKED:
        assert traced.counts()["recorded"] == 2, traced.explain(detail=True)
        assert traced.counts()["served"] == len(sized_calls.SIZES) - 2, traced.explain(detail=True)


def test_what_is_named_is_there():
    assert {*sized_calls.OFTENER, *sized_calls.ASKED} <= sized_calls.CALLS.keys()


def test_planted_numbers_that_c_code_reads_are_found(monkeypatch):
    """Pairs that `starmap` takes apart hold sizes, which are to be guarded."""
    monkeypatch.setattr(Instances, "watch", lambda self, value, strict, ordered=True: value)
    with raises(AssertionError):
        served("starmap of a list", monkeypatch)


def test_planted_views_of_one_call_that_keep_numbers_are_found(monkeypatch):
    """A view of a view with symbols, both of one call, is said with symbols too."""
    along = Symbolic._along
    monkeypatch.setattr(
        Symbolic, "_along", lambda self, event: event.outputs in self.attrs and along(self, event)
    )
    traced = None
    with raises((AssertionError, UserWarning)):
        traced = served("einsum over a size", monkeypatch)
        assert traced.counts()["recorded"] == 2
