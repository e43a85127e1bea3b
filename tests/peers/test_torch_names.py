"""Names, limits and promotion of dtypes against PyTorch's."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import public_names  # noqa: E402

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402
from lamina.runtime import ops  # noqa: E402


def test_functions_have_pytorchs_names():
    offered = [name for name in ops.FUNCTIONS if ops.is_offered(name)]
    known = {*dir(torch), *dir(torch.nn.functional)}
    assert len(offered) > 300 and not {*offered} - known


def test_the_list_of_names_is_that_of_this_version():
    assert public_names.text() == public_names.FILE.read_text()


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_finfo(dtype):
    ours, theirs = lamina.finfo(dtype), torch.finfo(getattr(torch, dtype.name))
    for name in ("bits", "min", "max", "eps", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
def test_iinfo(dtype):
    ours, theirs = lamina.iinfo(dtype), torch.iinfo(getattr(torch, dtype.name))
    assert (ours.bits, ours.min, ours.max, ours.dtype) == (theirs.bits, theirs.min, theirs.max, theirs.dtype)


def test_can_cast_and_result_type():
    for a, b in itertools.product(dtypes.ALL, repeat=2):
        x, y = getattr(torch, a.name), getattr(torch, b.name)
        assert lamina.can_cast(a, b) == torch.can_cast(x, y), (a, b)
        for left, right in itertools.product(((), (2,)), repeat=2):
            ours = lamina.result_type(lamina.ones(left, dtype=a), lamina.ones(right, dtype=b))
            theirs = torch.result_type(torch.ones(left, dtype=x), torch.ones(right, dtype=y))
            assert ours.name == str(theirs).removeprefix("torch."), (a, left, b, right)
        for number in (True, 2, 2.5):
            for order in (1, -1):
                ours = lamina.result_type(*(lamina.ones(2, dtype=a), number)[::order])
                theirs = torch.result_type(*(torch.ones(2, dtype=x), number)[::order])
                assert ours.name == str(theirs).removeprefix("torch."), (a, number)
    assert lamina.result_type(1, 2.5) is lamina.float32 and lamina.result_type(1, True) is lamina.int64
