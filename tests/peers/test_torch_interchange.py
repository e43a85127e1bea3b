"""Memory shared with PyTorch through DLPack, both ways, bfloat16 included."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_torch_reads_tensors_without_a_copy(dtype):
    x = lamina.ones(3, 4).to(dtype).T[1:]
    theirs = torch.from_dlpack(x)
    assert theirs.dtype == getattr(torch, dtype.name) and theirs.tolist() == x.tolist()
    assert theirs.data_ptr() == x.data_ptr() and theirs.stride() == x.stride()
    theirs.zero_()
    assert not x.any()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_tensors_read_torch_without_a_copy(dtype):
    theirs = torch.ones(3, 4).to(getattr(torch, dtype.name)).T[1:]
    x = lamina.from_dlpack(theirs)
    assert x.dtype is dtype and x.tolist() == theirs.tolist()
    assert x.data_ptr() == theirs.data_ptr() and x.stride() == theirs.stride()
    x.zero_()
    assert not theirs.any()


def test_memory_outlives_whoever_made_it():
    x = lamina.from_dlpack(torch.arange(1000, dtype=torch.bfloat16))
    theirs = torch.from_dlpack(lamina.arange(1000))
    assert x[256].item() == 256.0 and theirs.sum().item() == 499500


def test_types_that_lamina_lacks_are_refused():
    with pytest.raises(lamina.DTypeError):
        lamina.from_dlpack(torch.empty(2, dtype=torch.float4_e2m1fn_x2))


def test_pytorchs_tensors_are_no_duck_arrays():
    for call in (lamina.relu, lamina.diff, lambda x: lamina.add(lamina.ones(2), x), lamina.ones(2).add_):
        with pytest.raises(TypeError):
            call(torch.ones(2))


def test_three_libraries_see_one_memory():
    array = np.zeros(4, np.float32)
    theirs = torch.from_dlpack(lamina.from_dlpack(array))
    theirs[2] = 5.0
    assert array.tolist() == [0.0, 0.0, 5.0, 0.0]
