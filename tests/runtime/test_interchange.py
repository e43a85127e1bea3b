"""Memory shared with NumPy by DLPack and buffers: no copies, read-only kept, bfloat16, what is refused."""

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import lamina
from lamina.ir import dtypes
from lamina.ir.errors import ArgumentError, DeviceError, GradError, InplaceError
from lamina.runtime import interchange
from lamina.runtime.history import storage_of
from lamina.runtime.interchange import ExportError

ARRAYS = {
    "0-d": np.ones(()),
    "empty": np.ones((0, 3)),
    "row": np.arange(5.0),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "strided": np.arange(20.0)[3::4],
    "backwards": np.arange(5.0)[::-1],
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_dlpack_round_trip_shares_memory(name, dtype):
    data = ARRAYS[name]
    x = lamina.from_numpy(np.lib.stride_tricks.as_strided(*_cast(data, dtype)))
    y = lamina.from_dlpack(x)
    assert y.dtype is dtype and y.shape == x.shape and y.tolist() == x.tolist()
    assert y.stride() == x.stride() or not x.numel()
    assert storage_of(x).exposed and storage_of(y).exposed
    if x.numel():
        assert y.data_ptr() == x.data_ptr()
        y.zero_()
        assert not x.any()


def _cast(data: np.ndarray, dtype: dtypes.DType) -> tuple:
    """The values in `dtype` under the same strides, as arguments of as_strided."""
    base = np.empty(20, dtype.numpy)
    steps = tuple(s // 8 * dtype.itemsize for s in data.strides)
    start = 19 if any(s < 0 for s in steps) else 0
    view = np.lib.stride_tricks.as_strided(base[start:], data.shape, steps)
    view[...] = data
    return base[start:], data.shape, steps


def test_numpy_reads_tensors():
    x = lamina.arange(4)
    array = np.from_dlpack(x)
    x[0] = 9
    assert array.tolist() == [9, 1, 2, 3]


def test_from_numpy_through_dlpack():
    array = np.arange(4.0)
    x = lamina.from_dlpack(array)
    array[1] = 7.0
    assert x.tolist() == [0.0, 7.0, 2.0, 3.0]


def test_what_is_handed_out_is_marked_and_copies_are_not():
    x = lamina.ones(2)
    np.from_dlpack(x, copy=True)
    assert not storage_of(x).exposed
    np.from_dlpack(x)
    assert storage_of(x).exposed
    assert not storage_of(lamina.from_dlpack(x, copy=True)).exposed


def test_copy_has_its_own_memory():
    x = lamina.ones(2)
    y = lamina.from_dlpack(x, copy=True)
    y.zero_()
    assert x.tolist() == [1.0, 1.0]
    z = np.from_dlpack(x, copy=True)
    z[...] = 5
    assert x.tolist() == [1.0, 1.0]


def test_read_only_memory_stays_read_only_both_ways():
    array = np.arange(3.0)
    array.flags.writeable = False
    x = lamina.from_dlpack(array)
    with pytest.raises(InplaceError, match="read-only"):
        x.add_(1)
    assert not np.from_dlpack(x).flags.writeable
    with pytest.raises(ExportError, match="readonly"):
        x.__dlpack__()  # the older capsule can't say it


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_bfloat16_capsules_say_bfloat16(version):
    x = lamina.tensor([1.0, -2.5], dtype=lamina.bfloat16)
    y = lamina.from_dlpack(x.__dlpack__(max_version=version))
    assert y.dtype is lamina.bfloat16 and y.tolist() == [1.0, -2.5]
    assert y.numpy().dtype == ml_dtypes.bfloat16
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)  # NumPy has no such type: it must not get the bits as integers


def test_memory_lives_as_long_as_who_sees_it():
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    x = lamina.from_dlpack(array)
    del array
    gc.collect()
    assert gone() is not None and x.sum().item() == 499500.0
    y = np.from_dlpack(x)
    del x
    gc.collect()
    assert gone() is not None and y[999] == 999.0
    del y
    gc.collect()
    assert gone() is None


def test_capsules_that_nobody_takes_free_their_memory():
    x = lamina.ones(3, dtype=lamina.bfloat16)
    before = sys.getrefcount(x._data)
    x.__dlpack__(max_version=(1, 0))
    after = sys.getrefcount(x._data)
    assert after == before


def test_a_capsule_is_consumed_once():
    capsule = lamina.ones(2).__dlpack__()
    lamina.from_dlpack(capsule)
    with pytest.raises(ArgumentError, match="consumed already"):
        lamina.from_dlpack(capsule)


def test_what_is_refused():
    x = lamina.ones(2, requires_grad=True)
    with pytest.raises(ExportError, match="share x.detach()"):
        x.__dlpack__()
    with pytest.raises(BufferError):
        np.from_dlpack(x)
    with pytest.raises(ArgumentError, match="has no stream"):
        lamina.ones(2).__dlpack__(stream=1)
    with pytest.raises(BufferError):
        lamina.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ArgumentError, match="takes an object with __dlpack__, not list"):
        lamina.from_dlpack([1.0])
    assert lamina.from_dlpack(np.ones(2, np.complex64)).dtype is lamina.complex64

    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError("the device must be asked first")

        def __dlpack_device__(self):
            return (2, 1)

    with pytest.raises(DeviceError, match="the memory is on cuda:1"):
        lamina.from_dlpack(Elsewhere())


def test_producers_from_before_versions_are_read():
    class Old:
        def __dlpack__(self, stream=None):
            return np.arange(3.0).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    x = lamina.from_dlpack(Old())
    assert x.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(InplaceError):
        x.zero_()  # such a capsule can't say whether writing is allowed


def test_numpy_and_array_share_memory_and_mark_it():
    x = lamina.zeros(2)
    assert not storage_of(x).exposed
    x.numpy()[0] = 4.0
    assert storage_of(x).exposed and x.tolist() == [4.0, 0.0]
    assert np.asarray(x).tolist() == [4.0, 0.0]
    assert np.shares_memory(np.asarray(x), x._data)
    with pytest.raises(GradError):
        np.asarray(lamina.ones(2, requires_grad=True))


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python before 3.12 has no buffers from Python classes"
)
def test_buffers_share_memory():
    x = lamina.arange(6).view(2, 3)
    view = memoryview(x)
    assert view.shape == (2, 3) and view.format == "l"
    view[1, 2] = 50
    assert x[1, 2].item() == 50 and storage_of(x).exposed
    with pytest.raises(BufferError):
        memoryview(lamina.ones(2, requires_grad=True))
    with pytest.raises(BufferError):
        memoryview(lamina.ones(2, dtype=lamina.bfloat16))


def test_a_capsule_whose_elements_lie_nowhere_is_refused():
    capsule = lamina.arange(6.0).__dlpack__()
    interchange.inside_of(capsule).data = None
    with pytest.raises(ArgumentError, match="lie nowhere"):
        lamina.from_dlpack(capsule)
    nothing = lamina.ones(0, 3).__dlpack__()
    interchange.inside_of(nothing).data = None
    assert lamina.from_dlpack(nothing).shape == (0, 3)
