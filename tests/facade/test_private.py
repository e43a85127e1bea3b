"""What libraries import from PyTorch's private rooms, and the rooms of what is not here."""

import pickle
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from imported_names import look

import lamina
from lamina import nn
from lamina.facade import private
from lamina.ir import dtypes

NAMES = Path(__file__).with_name("imported_names.txt")


def test_names_that_libraries_import():
    text = "\n".join(line for line in NAMES.read_text().splitlines() if not line.startswith("#"))
    offered, lacking = (part.split() for part in text.split("----"))
    assert set(look("lamina", offered + lacking)) == set(offered)


def test_what_libraries_ask_of_rooms():
    assert lamina.serialization.DEFAULT_PROTOCOL == 2 and not lamina.cuda._initialized
    assert lamina.utils.data._utils.collate.np_str_obj_array_pattern.search("<U3")
    with pytest.raises(ValueError, match="Lamina downloads nothing"):
        lamina.utils.model_zoo.load_url("https://example.com/x.pth")
    assert lamina.ones(2).dtype not in (lamina.complex32, lamina.chalf, lamina.qint8)
    assert str(lamina.quint4x2) == "torch.quint4x2"
    # diffusers and torchao have tables of them
    narrow = [getattr(lamina, f"{kind}{bits}") for kind in ("uint", "int") for bits in range(1, 8)]
    assert len(set(narrow)) == 14 and lamina.int8 not in narrow and str(lamina.uint7) == "torch.uint7"
    state = lamina.utils.data._utils.worker._generate_state(12345678901234, 3)
    assert state == [2677634501, 810098766, 226270600, 4115140591]  # PyTorch's
    from lamina._ops import HigherOrderOperator, OpOverload
    from lamina._subclasses.fake_tensor import FakeTensor

    assert lamina._guards.active_fake_mode() is None
    assert not isinstance(lamina.ones(1), FakeTensor) and not isinstance(len, HigherOrderOperator)
    assert isinstance(lamina.ops.aten.add.Tensor, OpOverload)
    assert isinstance(lamina.ones(1).untyped_storage(), lamina.StorageBase)
    assert lamina._utils._get_device_module("cpu") is lamina.cpu


def test_rooms_of_what_is_not_here_say_so():
    with pytest.raises(ValueError, match="process group has not been initialized"):
        lamina.distributed.get_rank()
    with pytest.raises(AttributeError, match=r"no torch\.distributed\.elastic\.tensors: this part of it"):
        from lamina.distributed import elastic

        elastic.tensors  # noqa: B018
    from lamina.utils.cpp_extension import CUDA_HOME, load

    assert CUDA_HOME is None
    with pytest.raises(ValueError, match="nothing is compiled against PyTorch's headers"):
        load(name="kernels", sources=["kernels.cu"])
    for room in (lamina.xpu, lamina.mps, lamina.mtia, lamina.accelerator):
        assert not room.is_available() and room.device_count() == 0
        room.synchronize()
    assert lamina.version.cuda is None
    assert "numpy" in lamina.__config__.show()


def test_helpers_of_modules():
    weight = lamina.ones(6, 4, 3, 3)
    assert nn.init._calculate_fan_in_and_fan_out(weight) == (36, 54)
    assert nn.init._calculate_correct_fan(weight, "fan_out") == 54
    with pytest.raises(ValueError, match="not supported"):
        nn.init._calculate_correct_fan(weight, "both")
    assert nn.modules.utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert nn.modules.module._addindent("a\nb", 2) == "a\n  b"
    assert nn._reduction.get_enum("mean") == 1 and nn._reduction.legacy_get_string(None, False) == "none"
    clones = nn.modules.transformer._get_clones(nn.Linear(2, 2), 3)
    assert len(clones) == 3 and clones[0].weight is not clones[1].weight
    q, k, v = lamina.randn(3, 2, 4)
    w, b = lamina.randn(12, 4), lamina.randn(12)
    for packed, each in zip(
        nn.functional._in_projection_packed(q, k, v, w, b),
        nn.functional._in_projection(q, k, v, *w.chunk(3), *b.chunk(3)),
        strict=True,
    ):
        assert packed.tolist() == each.tolist()


def test_helpers_of_optimizers_and_loaders():
    class Mine(lamina.optim.Optimizer):
        @lamina.optim.optimizer._use_grad_for_differentiable
        def step(self, closure=None):
            return lamina.is_grad_enabled()

    weight = nn.Parameter(lamina.ones(2))
    assert not Mine([weight], {}).step() and Mine([weight], {"differentiable": True}).step()
    assert lamina.is_grad_enabled()
    tensors = [lamina.randn(2, 3), lamina.randn(4)]
    flat = lamina._utils._flatten_dense_tensors(tensors)
    for x, y in zip(lamina._utils._unflatten_dense_tensors(flat, tensors), tensors, strict=True):
        assert x.tolist() == y.tolist()
    z = [lamina.tensor([1 + 2j])]
    lamina.optim.optimizer._view_as_real(z)
    assert z[0].tolist() == [[1, 2]]


def test_helpers_of_distributions():
    from lamina.distributions import multivariate_normal, transforms, utils

    matrix = lamina.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=lamina.float64)
    vector = lamina.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=lamina.float64)
    factor = lamina.linalg.cholesky(matrix)
    known = lamina.linalg.inv(matrix)
    assert utils._standard_normal((2, 3), lamina.float64, "cpu").shape == (2, 3)
    assert utils._sum_rightmost(lamina.ones(2, 3, 4), 2).tolist() == [12.0, 12.0]
    lamina.testing.assert_close(multivariate_normal._batch_mv(matrix, vector), vector @ matrix)
    squared = multivariate_normal._batch_mahalanobis(factor, vector)
    lamina.testing.assert_close(squared, (vector @ known * vector).sum(-1))
    inverse = multivariate_normal._precision_to_scale_tril(matrix)
    lamina.testing.assert_close(inverse @ inverse.mT, known)
    assert isinstance(transforms.ExpTransform().inv, transforms._InverseTransform)


def test_decorators_for_scripts_change_nothing():
    from lamina._jit_internal import BroadcastingList2, _copy_to_script_wrapper, _overload

    assert _overload(_copy_to_script_wrapper(len)) is len and BroadcastingList2[int] == list[int]


def test_handles_of_a_programs_own_hooks():
    handle = lamina.utils.hooks.RemovableHandle
    assert isinstance(nn.ReLU().register_forward_hook(print), handle)
    hooks, named = {}, {}
    first, second = handle(hooks, extra_dict=named), handle(hooks)
    hooks |= {first.id: "first", second.id: "second"}
    named[first.id] = "name"
    first.remove()
    assert hooks == {second.id: "second"} and named == {}
    first.remove()
    with second:
        assert hooks
    assert hooks == {}


def test_kinds_of_data_pipes_are_asked_for():
    from lamina.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe

    assert not isinstance([1], ShufflerIterDataPipe)
    with pytest.raises(ValueError, match="data pipes are not PyTorch's way any more"):
        ShufflerIterDataPipe([1])


def test_placements_in_another_order_are_asked_for():
    from lamina.distributed.tensor.placement_types import Shard, _StridedShard

    assert not isinstance(Shard(0), _StridedShard)
    with pytest.raises(ValueError, match="parts are cut in the order of the mesh's dims"):
        _StridedShard(0, split_factor=2)


def test_the_cpu_is_set_as_a_device():
    assert lamina.cpu.set_device("cpu") is None and lamina.cpu.is_initialized()


def test_tensors_by_device_and_dtype():
    group = private._foreach_utils._group_tensors_by_device_and_dtype
    a, b, c = lamina.ones(1), lamina.ones(2).double(), lamina.ones(3)
    cpu = lamina.device("cpu")
    found = group([[a, b, c], [], [None, b, 1.0]], with_indices=True)
    assert set(found) == {(cpu, lamina.float32), (cpu, lamina.float64)}
    (first, empty, third), indices = found[cpu, lamina.float32]
    assert first[0] is a and first[1] is c and not empty and third == [None, 1.0] and indices == [0, 2]
    assert group([[b]])[cpu, lamina.float64] == ([[b]], [])


def test_modules_of_optimizers():
    for name in (
        "Adadelta",
        "Adagrad",
        "Adam",
        "Adamax",
        "AdamW",
        "ASGD",
        "LBFGS",
        "NAdam",
        "RAdam",
        "RMSprop",
    ):
        assert getattr(import_module(f"lamina.optim.{name.lower()}"), name) is getattr(lamina.optim, name)
    from lamina.optim._adafactor import Adafactor
    from lamina.optim._muon import Muon
    from lamina.optim.sparse_adam import SparseAdam

    assert (Adafactor, Muon) == (lamina.optim.Adafactor, lamina.optim.Muon)
    assert SparseAdam is lamina.optim.SparseAdam


def test_functions_of_the_root_stand_in_functional_too():
    from lamina.functional import F, Tensor, einsum

    assert F is nn.functional and Tensor is lamina.Tensor and einsum is lamina.einsum
    for name in lamina.functional._NAMES:
        assert getattr(lamina.functional, name) is getattr(lamina, name)
    with pytest.raises(AttributeError, match="no attribute 'relu'"):
        lamina.functional.relu  # noqa: B018


def test_export_decorates_what_pytorchs_compiler_is_to_keep():
    class Net(nn.Module):
        @lamina.jit.export
        def doubled(self, x):
            return 2 * x

    assert Net().doubled(3) == 6
    for given, settings in ((Net(), {}), (lambda x: x, {"dynamic": {"x": {0: "n"}}})):
        with pytest.raises(TypeError, match="path is missing"):
            lamina.jit.export(given, **settings)


def test_a_warning_of_tracing_is_one_that_programs_may_let_pass():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=lamina.jit.TracerWarning)
        warnings.warn("a shape became a constant", lamina.jit.TracerWarning, stacklevel=1)


# ---- what surrounds PyTorch's compilers, devices and workers -----------------------------------------------
def test_switches_of_pytorchs_compilers_may_be_set():
    inductor = import_module("lamina._inductor").config
    inductor.coordinate_descent_tuning = True
    inductor.triton.unique_kernel_names = True
    assert inductor.triton.unique_kernel_names and not inductor.fx_graph_cache
    config = lamina._dynamo.config
    with config.patch(error_on_recompile=True):
        assert config.error_on_recompile

    @config.patch("do_not_emit_runtime_asserts", True)
    def patched():
        return config.do_not_emit_runtime_asserts

    assert patched() and not config.do_not_emit_runtime_asserts and not config.error_on_recompile
    assert lamina._dynamo.utils.counters["frames"]["ok"] == 0 and lamina._functorch.config is not None
    assert lamina._dynamo.exc.Unsupported is lamina.jit.RefusedError
    assert lamina._logging.set_logs(dynamo=20) is None
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        lamina._dynamo.nosuch  # noqa: B018


def test_profilers_of_gpus_hear_nothing():
    nvtx = import_module("lamina.cuda.nvtx")
    with nvtx.range("step"):
        nvtx.range_push("forward")
        nvtx.range_pop()
    with lamina.cuda.profiler.profile():
        lamina.cuda.profiler.start()
    assert "memory_allocated" in lamina.cuda.memory_summary()
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        lamina.cuda.nosuch  # noqa: B018


def test_errors_travel_from_workers():
    wrapped = []
    for error in (KeyError("x"), ValueError("of a text"), UnicodeDecodeError("utf8", b"", 0, 1, "which")):
        try:
            raise error
        except Exception:
            wrapped.append(lamina._utils.ExceptionWrapper(where="in worker 3"))
    for each, kind in zip(wrapped, (KeyError, ValueError, RuntimeError), strict=True):
        with pytest.raises(kind, match=r"Caught \w+ in worker 3.\nOriginal Traceback") as caught:
            each.reraise()
        assert type(caught.value) is kind
    assert import_module("lamina.utils.data._utils.worker").get_worker_info() is None


def test_replicas_are_called_one_after_the_other():
    layer, x = nn.Linear(2, 2), lamina.ones(3, 2)
    apply, replicate = nn.parallel.parallel_apply, nn.parallel.replicate
    assert lamina.equal(nn.parallel.data_parallel(layer, x), layer(x))
    for found in apply(replicate(layer, ["cpu", "cpu"]), [x, (x,)], [{}, {}]):
        assert lamina.equal(found, layer(x))
    with pytest.raises(lamina.ir.errors.DeviceError, match="modules stay where they are"):
        replicate(layer, ["cuda:1"])


def test_arguments_of_checkpoints():
    x = lamina.ones(2, requires_grad=True) * 2
    (leaf, number) = lamina.utils.checkpoint.detach_variable((x, 3))
    assert leaf.is_leaf and leaf.requires_grad and number == 3
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        lamina.utils.checkpoint.check_backward_validity([lamina.ones(2), 3])
    with pytest.raises(TypeError, match="Only tuple of tensors is supported"):
        lamina.utils.checkpoint.detach_variable([x])


def test_attention_asks_gpus_kernels_in_vain():
    cuda, x = lamina.backends.cuda, lamina.ones(1, 1, 2, 2)
    assert cuda.SDPBackend is nn.attention.SDPBackend
    params = cuda.SDPAParams(x, x, x, None, 0.0, False, False)
    assert not cuda.can_use_flash_attention(params) and not cuda.can_use_efficient_attention(params, True)


def test_versions_of_modules_are_compared():
    at_least = lamina.serialization.check_module_version_greater_or_equal
    module = SimpleNamespace(__name__="dill", __version__="0.3.10")
    assert at_least(module, (0, 3, 1)) and at_least(module, (0, 3, 10)) and not at_least(module, (0, 4))
    module.__version__ = "0.x"
    with pytest.raises(ValueError, match="'dill' module version is malformed: '0.x'"):
        at_least(module, (0, 3, 1))
    with pytest.warns(UserWarning, match="but continuing"):
        assert at_least(module, (0, 3, 1), error_if_malformed=False)


def test_layouts_are_texts_as_pytorchs(monkeypatch):
    monkeypatch.setattr(dtypes, "namespace", "torch")
    assert str(lamina.sparse_csr) == f"{lamina.sparse_csr}" == repr(lamina.sparse_csr) == "torch.sparse_csr"
    assert lamina.sparse_csr == "sparse_csr" and pickle.loads(pickle.dumps(lamina.strided)) is lamina.strided


def test_reports_of_environments_ask_the_machine():
    collect_env = import_module("lamina.facade.info")  # which stands as torch.utils.collect_env
    asked = []
    assert collect_env.get_gpu_info(lambda command: (asked.append(command), (1, "", "none"))[1]) is None
    assert collect_env.run("echo here; exit 2") == (2, "here", "") and asked == ["nvidia-smi -L"]
    assert collect_env.get_nvidia_driver_version(lambda _: (0, "550.1\n550.1", "")) == "550.1"
    for found in (collect_env.get_cpu_info, collect_env.get_gcc_version):
        assert found(lambda _: (127, "", "not found")) is None
