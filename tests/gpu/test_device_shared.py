"""A device's memory as others see it: storages, files that say where tensors were, DLPack, array interfaces.

On the fake driver.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import Fake, on_fake, run

import lamina
from lamina import nn
from lamina.ir.errors import ArgumentError, DeviceError
from lamina.runtime.cuda.machine import machine


def interpreted(fake: Fake) -> list[str]:
    from cuda_interpreting import interpret_launches

    return interpret_launches(fake)


def written(value: object, **how: object) -> io.BytesIO:
    """What `save` made of a value, to be read."""
    made = io.BytesIO()
    lamina.save(value, made, **how)
    made.seek(0)
    return made


@on_fake(devices=2)
def test_files_say_where_tensors_were(fake: Fake):
    interpreted(fake)
    x = lamina.arange(12.0, device="cuda:1").reshape(3, 4)
    model = nn.Linear(2, 2).cuda()
    saved = {
        "x": x, "t": x.t(), "row": x[1], "bits": x.view(lamina.int32), "s": lamina.tensor(2.0, device="cuda"),
        "mask": lamina.tensor([True, False], device="cuda"), "none": lamina.zeros(0, 3, device="cuda"),
        "host": lamina.ones(3), "p": nn.Parameter(lamina.ones(2, device="cuda")), **model.state_dict(),
    }  # fmt: skip
    ways = {
        None: lambda place: place,
        "cuda": lambda place: "cuda:0",
        "cpu": lambda place: "cpu",
        lamina.device("cuda:1"): lambda place: "cuda:1",
        1: lambda place: {"cuda:1": "cuda:0"}.get(place, place),
        2: lambda place: "cuda:0" if place != "cpu" else place,
    }
    given = {
        1: {"cuda:1": "cuda:0"},
        2: lambda storage, place: storage.cuda(0) if place.startswith("cuda") else None,
    }
    for newer in (True, False):
        file = written(saved, _use_new_zipfile_serialization=newer)
        for way, place in ways.items():
            file.seek(0)
            found = lamina.load(file, map_location=given.get(way, way))
            for name, y in found.items():
                was = saved[name]
                assert str(y.device) == place(str(was.device)), (newer, way, name)
                assert y.tolist() == was.tolist() and y.stride() == was.stride() and type(y) is type(was)
            # what shared memory shares it again, wherever it is
            found["x"][1] = -1.0
            assert found["t"][2, 1].item() == found["row"][3].item() == -1.0
            assert (found["bits"][1] == -1082130432).all()
            assert found["x"].untyped_storage().data_ptr() == found["t"].untyped_storage().data_ptr()
    with pytest.raises(DeviceError, match="(?s)there is no device cuda:7 here.*map_location='cpu'"):
        lamina.load(written(x), map_location="cuda:7")
    whole = lamina.load(written({"s": x.untyped_storage(), "x": x}), weights_only=False)
    assert whole["s"].is_cuda and whole["s"].data_ptr() == whole["x"].data_ptr()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        lamina.save({"a": x, "b": x}, path)  # whose form knows no devices
        assert lamina.load(path)["a"].is_cpu
        found = lamina.load(path, map_location="cuda")
        assert found["a"].is_cuda
        found["a"].zero_()
        assert found["b"].sum().item() == 0


ELSEWHERE = """
import sys, lamina
try:
    lamina.load(sys.argv[1])
except RuntimeError as error:
    assert "saved on 'cuda:1'" in str(error) and "map_location='cpu'" in str(error), error
else:
    raise AssertionError("loaded")
print(lamina.load(sys.argv[1], map_location="cpu").tolist())
"""


@on_fake(devices=2)
def test_a_file_of_a_device_that_is_not_here_says_the_way_out(fake: Fake):
    with tempfile.TemporaryDirectory() as folder:
        path, script = os.path.join(folder, "x.pt"), os.path.join(folder, "elsewhere.py")
        lamina.save(lamina.tensor([1.0, 2.0], device="cuda:1"), path)
        Path(script).write_text(ELSEWHERE)
        done = run([script, path], devices=1)
        assert done.stdout == "[1.0, 2.0]\n", done.stderr


@on_fake(devices=2)
def test_storages_of_a_device(fake: Fake):
    interpreted(fake)
    x = lamina.arange(6, dtype=lamina.int32, device="cuda:1").reshape(2, 3)
    s = x[1:].untyped_storage()
    assert s.device == x.device and s.is_cuda and s.get_device() == 1 and s.nbytes() == len(s) == 24
    assert s.data_ptr() == x.data_ptr() and s == x.untyped_storage() and fake.is_device(s.data_ptr(), 24)
    assert s[4] == 1 and s.tolist()[:8] == [0, 0, 0, 0, 1, 0, 0, 0] and s[4:8].tolist() == [1, 0, 0, 0]
    assert x.storage().tolist() == [0, 1, 2, 3, 4, 5] and x.storage().type() == "torch.cuda.IntStorage"
    s[4:8].fill_(0)
    s[8] = 9
    assert x.tolist() == [[0, 0, 9], [3, 4, 5]]
    version = x._version
    host = s.cpu()
    assert host.device.type == "cpu" and host.tolist() == s.tolist() and host.cpu() is host
    host.fill_(1)
    s.copy_(host)  # from the CPU
    assert x.tolist() == [[0x01010101] * 3] * 2 and x._version > version
    assert s.cuda(1) is s and s.cuda().device.index == 0 and s.cuda(0).tolist() == s.tolist()
    other = s.clone()
    assert other.data_ptr() != s.data_ptr() and other.is_cuda
    made = lamina.UntypedStorage(8, device="cuda")
    assert made.is_cuda and made.tolist() == [0] * 8
    y = lamina.empty(0, dtype=lamina.int32, device="cuda:1").set_(s, 1, (2, 2), (3, 1))
    y.zero_()
    assert x.tolist() == [[0x01010101, 0, 0], [0x01010101, 0, 0]] and y.storage_offset() == 1
    assert lamina.empty(0, dtype=lamina.int32, device="cuda:1").set_(x).is_set_to(x)
    with pytest.raises(DeviceError, match="on device .cpu. to a storage on different device .cuda:1."):
        lamina.empty(0, dtype=lamina.int32).set_(x)
    twin = copy.deepcopy({"a": x, "b": x[0]})
    assert twin["a"].is_cuda and twin["a"].data_ptr() != x.data_ptr()


@on_fake(devices=2)
def test_numbers_are_names_of_devices(fake: Fake):
    x = lamina.ones(2).cuda(1)
    assert x.get_device() == 1 and x.to(0).get_device() == 0 and lamina.device(1) == x.device
    assert lamina.zeros(2, device=1).get_device() == 1 and nn.Linear(2, 2).cuda(1).weight.get_device() == 1
    lamina.cuda.set_device(1)
    assert lamina.cuda.current_device() == 1 and lamina.ones(1).cuda().get_device() == 1
    assert x.type() == "torch.cuda.FloatTensor" and x.type("torch.IntTensor").is_cpu
    assert x.cpu().type("torch.cuda.IntTensor").get_device() == 1 and x.type(lamina.int64).is_cuda


class Other:
    """An array of another library's: all that is known of it is how it describes itself."""

    def __init__(self, x, **more):
        self._x, self._more = x, more

    @property
    def __cuda_array_interface__(self):
        return self._x.__cuda_array_interface__ | self._more


@on_fake(devices=2)
def test_capsules_carry_memory_of_a_device_both_ways(fake: Fake):
    interpreted(fake)
    x = lamina.arange(12.0, device="cuda:1").reshape(3, 4)
    assert x.__dlpack_device__() == (2, 1)
    used = machine(1).allocator.statistics
    for version in (None, (1, 0), (2, 0)):
        capsule = x.t().__dlpack__(max_version=version)
        assert ("versioned" in repr(capsule)) is (version is not None)
        y = lamina.from_dlpack(capsule)
        assert y.data_ptr() == x.data_ptr() and y.device == x.device and y.shape == (4, 3)
        assert y.stride() == (1, 4)
        y[1, 2] = 50.0
        assert x[2, 1].item() == 50.0
        with pytest.raises(ArgumentError, match="consumed already"):
            lamina.from_dlpack(capsule)
        x[2, 1] = 9.0
    for dtype in (lamina.bfloat16, lamina.bool, lamina.int8, lamina.float16, lamina.int64, lamina.uint8):
        z = x.to(dtype)
        again = lamina.from_dlpack(z)
        assert again.dtype is dtype and again.tolist() == z.tolist()
    part = lamina.from_dlpack(x[1:, 1:])
    assert part.tolist() == [[5, 6, 7], [9, 10, 11]] and (part + 1).tolist()[0] == [6, 7, 8]
    assert lamina.from_dlpack(lamina.zeros(0, 3, device="cuda")).shape == (0, 3)
    assert (
        lamina.from_dlpack(x, device="cpu").is_cpu
        and lamina.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    )
    assert lamina.from_dlpack(x.__dlpack__(dl_device=(1, 0))).tolist() == x.tolist()
    np.testing.assert_array_equal(lamina.from_dlpack(lamina.ones(2), device="cuda").tolist(), [1, 1])
    # memory lives until who took it gives it back
    big = lamina.ones(500_000, device="cuda:1")
    before = used()["allocated_bytes.all.current"]
    y = lamina.from_dlpack(big)
    del big
    gc.collect()
    assert y[-1].item() == 1 and used()["allocated_bytes.all.current"] == before
    del y
    gc.collect()
    lamina.cuda.synchronize(1)
    assert used()["allocated_bytes.all.current"] < before
    unused = lamina.ones(500_000, device="cuda:1").__dlpack__()
    del unused
    gc.collect()
    assert used()["allocated_bytes.all.current"] < before
    for call in (
        lambda: x.__dlpack__(dl_device=(13, 0)), lambda: x.__dlpack__(dl_device=(1, 0), copy=False),
        lambda: x.clone().requires_grad_().__dlpack__(), lambda: memoryview(x),
    ):  # fmt: skip
        with pytest.raises((BufferError, TypeError)):
            call()


@on_fake()
def test_who_takes_a_capsule_waits_for_who_made_it(fake: Fake):
    interpreted(fake)
    x = lamina.ones(4, device="cuda")
    own, waits = machine().stream.handle, fake.calls("cuStreamWaitEvent")
    for stream, wait in ((own, 0), (-1, 0), (None, 1), (1, 1), (2, 1)):
        x.__dlpack__(stream=stream)
        assert fake.calls("cuStreamWaitEvent") - waits == wait, stream
        waits += wait
    for stream in (0, -2, "a", 1.5):
        with pytest.raises(ArgumentError, match=r"__dlpack__\(stream\)"):
            x.__dlpack__(stream=stream)
    s = lamina.cuda.Stream()
    for seed in range(4):
        fake.seed(seed)
        y = x * 2
        with lamina.cuda.stream(s):
            z = lamina.from_dlpack(y)  # which hands our current stream to `y.__dlpack__` of the other
            lamina.cuda.current_stream().wait_stream(lamina.cuda.default_stream())
            w = z + 1
        y.record_stream(s)
        lamina.cuda.current_stream().wait_stream(s)
        assert w.tolist() == [3.0] * 4
        lamina.cuda.synchronize()


@on_fake(devices=2)
def test_array_interfaces_of_a_device(fake: Fake):
    interpreted(fake)
    x = lamina.arange(6.0, device="cuda:1").reshape(2, 3)
    told = x.__cuda_array_interface__
    assert told == {
        "typestr": "<f4", "shape": (2, 3), "strides": None, "data": (x.data_ptr(), False), "version": 2,
    }  # fmt: skip
    assert x.t().__cuda_array_interface__["strides"] == (4, 12)
    assert not hasattr(x.cpu(), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        x.clone().requires_grad_().__cuda_array_interface__  # noqa: B018
    for found in (lamina.as_tensor(Other(x.t()), device="cuda:1"), lamina.asarray(Other(x.t(), stream=1))):
        assert found.data_ptr() == x.data_ptr() and found.device == x.device
        assert found.tolist() == x.t().tolist()
    assert lamina.as_tensor(Other(x, version=3, stream=None)).tolist() == x.tolist()
    assert lamina.as_tensor(Other(x), device="cpu").is_cpu
    for wrong in ({"data": (x.data_ptr(), True)}, {"mask": x}, {"typestr": "<V7"}, {"data": (4096, False)}):
        with pytest.raises((ArgumentError, DeviceError, TypeError)):
            lamina.as_tensor(Other(x, **wrong))
    assert sys.getrefcount(x) < 6
