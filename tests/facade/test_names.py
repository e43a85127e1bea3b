"""What scripts use of PyTorch's module besides ops."""

import importlib
import subprocess
import sys
from operator import attrgetter

import numpy as np
import pytest

import lamina
import lamina as torch
from lamina.facade import late
from lamina.facade.modules import MODULES
from lamina.ir.errors import ArgumentError, ArgumentValueError, DeviceError, DTypeError
from lamina.runtime import ops


def test_results_have_the_types_of_return_types():
    x = lamina.rand(3, 3)
    square = x @ x.T + lamina.eye(3)
    types = lamina.return_types
    for made, kind in (
        (x.max(0), types.max), (lamina.min(x, 1), types.min), (x.sort(), types.sort), (x.topk(2), types.topk),
        (x.cummax(0), types.cummax), (lamina.aminmax(x), types.aminmax), (lamina.svd(x), types.svd),
        (lamina.nanmedian(x, 0), types.nanmedian), (lamina.linalg.qr(x), types.linalg_qr),
        (lamina.linalg.lu_factor_ex(square), types.linalg_lu_factor_ex),
        (lamina.histogram(x), types.histogram),
    ):  # fmt: skip
        assert type(made) is kind and kind in types.all_return_types
    made = types.max((x, x + 1))  # as PyTorch's are made, of one sequence
    assert made.values is x and type(made) is type(x.max(0)) and types.max(x, made.indices) == made


def test_switches_of_attention_kernels_may_be_set():
    cuda = lamina.backends.cuda
    q = lamina.rand(1, 2, 4, 8)
    with pytest.warns(FutureWarning, match="sdpa_kernel"), cuda.sdp_kernel(enable_flash=False):
        assert not cuda.flash_sdp_enabled() and cuda.math_sdp_enabled()
        lamina.nn.functional.scaled_dot_product_attention(q, q, q)
    assert cuda.flash_sdp_enabled() and cuda.mem_efficient_sdp_enabled()
    cuda.enable_mem_efficient_sdp(False)
    assert not cuda.mem_efficient_sdp_enabled()
    cuda.enable_mem_efficient_sdp(True)


@pytest.mark.parametrize("name", MODULES)
def test_modules_can_be_imported_and_reached(name):
    module = importlib.import_module(f"lamina.{name}")
    assert module is MODULES[name]


@pytest.mark.parametrize("name", [*late.ROOMS, "distributed.checkpoint", "distributed.elastic"])
def test_rooms_that_are_loaded_late_can_be_imported_and_reached(name):
    module = importlib.import_module(f"lamina.{name}")
    assert attrgetter(name)(lamina) is module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"lamina.{name}.no_such_room")


@pytest.mark.parametrize(
    "name", ["utils.data", "utils.dlpack", "cuda.amp", "backends.cudnn", "linalg", "special", "random"]
)
def test_modules_are_attributes_too(name):
    found = lamina
    for part in name.split("."):
        found = getattr(found, part)
    assert found is MODULES[name]


def test_face_has_its_rooms():
    assert torch.nn.Linear and torch.optim.SGD and torch.autograd.grad and torch.utils.data.DataLoader
    assert torch.linalg.inv(torch.eye(2)).shape == (2, 2) and torch.special.expit is torch.sigmoid


@pytest.mark.parametrize("name", ["linalg_inv", "sgd_update", "unview", "random_words", "view", "_prelu"])
def test_what_only_the_machinery_uses_is_no_name_of_the_face(name):
    assert name in ops.FUNCTIONS
    assert name not in dir(torch) and not hasattr(torch, name)


def test_typed_constructors():
    assert torch.FloatTensor([1, 2]).dtype is torch.float32
    assert torch.LongTensor([1.0, 2.0]).tolist() == [1, 2]
    assert torch.DoubleTensor(2, 3).shape == (2, 3) and torch.IntTensor(torch.Size([4])).shape == (4,)
    assert torch.FloatTensor().shape == (0,) and torch.Tensor(3).shape == (3,)
    assert torch.Tensor([[1, 2]]).tolist() == [[1.0, 2.0]]
    assert torch.Tensor(torch.tensor([1, 2])).dtype is torch.int64
    assert isinstance(torch.ones(1), torch.FloatTensor) and not isinstance(torch.ones(1), torch.LongTensor)
    assert isinstance(torch.tensor([True]), torch.BoolTensor) and isinstance(torch.ones(1), torch.Tensor)
    for wrong in ((2.5,), (1, 2.5), ([1], [2])):
        with pytest.raises(ArgumentError):
            torch.Tensor(*wrong)


def test_default_tensor_type():
    try:
        torch.set_default_tensor_type(torch.DoubleTensor)
        assert torch.get_default_dtype() is torch.float64
        torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.get_default_dtype() is torch.float32
        with pytest.raises(DTypeError):
            torch.set_default_tensor_type(torch.LongTensor)
        with pytest.raises(ArgumentError):
            torch.set_default_tensor_type("torch.NoTensor")
    finally:
        torch.set_default_dtype(torch.float32)


def test_limits_refuse_the_other_kind():
    with pytest.raises(ArgumentError, match="see iinfo"):
        torch.finfo(torch.int32)
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(ArgumentError, match="see finfo"):
            torch.iinfo(dtype)


def test_cuda_says_that_it_is_not_there():
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    torch.cuda.manual_seed(1)
    torch.cuda.empty_cache()
    for name in (
        "synchronize",
        "current_device",
        "get_device_name",
        "get_device_properties",
        "get_device_capability",
    ):
        with pytest.raises(DeviceError, match=rf"cuda.{name}\(\): there is no CUDA device here"):
            getattr(torch.cuda, name)()
    with pytest.raises(DeviceError):
        torch.cuda.set_device(0)
    assert not torch.backends.cudnn.is_available() and not torch.backends.mps.is_available()


def test_mixed_precision_turns_itself_off():
    with pytest.warns(UserWarning, match="GradScaler does nothing"):
        scaler = torch.amp.GradScaler()
    with pytest.warns(UserWarning, match="autocast"):
        block = torch.autocast("cuda")
    x = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=1.0)
    with block:
        loss = (x * 2).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [-1.0, -1.0] and not scaler.is_enabled()
    scaler.load_state_dict(scaler.state_dict())
    torch.cuda.amp.GradScaler(enabled=False)  # no warning
    assert torch.cuda.amp.autocast(enabled=False)(lambda: 5)() == 5


def test_threads_are_those_of_the_matrix_product():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert torch.get_num_threads() == before
    with pytest.raises(ArgumentValueError, match="must be positive"):
        torch.set_num_threads(0)
    with pytest.raises(ArgumentError, match="must be an int"):
        torch.set_num_threads(1.5)


def test_switches():
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    with pytest.raises(ArgumentValueError):
        torch.set_float32_matmul_precision("low")
    torch.set_default_device("cpu")
    assert torch.get_default_device() == torch.device("cpu")
    with pytest.raises(DeviceError):
        torch.set_default_device("cuda")


def test_dlpack_functions():
    x = torch.arange(3)
    assert torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()


def test_memory_formats_that_change_nothing_are_taken():
    x = torch.ones(2, 2)
    assert torch.empty(2, 2, memory_format=torch.contiguous_format).shape == (2, 2)
    assert np.isinf(torch.inf) and torch.pi > 3 and x[torch.newaxis].shape == (1, 2, 2)


def test_names_of_the_face_that_are_pythons_are_dtypes(tmp_path):
    program = "import lamina\nassert lamina.float is lamina.float32 and lamina.bool.name == 'bool'"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_masked_reductions_look_at_what_is_selected():
    x = lamina.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    mask = lamina.tensor([[True, False, True], [False, False, False]])
    assert lamina.masked.sum(x, 1, mask=mask).tolist() == [4.0, 0.0]
    assert lamina.masked.amax(x, 1, mask=mask).tolist() == [3.0, -float("inf")]
    lamina.masked.mean(x[:1], mask=mask[:1]).backward()
    assert x.grad.tolist() == [[0.5, 0.0, 0.5], [0.0] * 3]
    with pytest.raises(lamina.ShapeError, match="mask has 3 dimensions"):
        lamina.masked.sum(x, mask=lamina.ones(1, 2, 3))
    assert set(lamina.masked.__all__) <= {*dir(lamina.masked)}


def test_types_are_for_annotations():
    from lamina import types

    assert isinstance(2, types._Number) and types.Device is not None
