"""Every public name of torch.nn's modules is there, or stands in a table with a reason."""

import math
import types
import warnings
from importlib import import_module

import pytest

import lamina

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

MACHINERY = "PyTorch's own machinery, imported there for its own use"
OLD = "deprecated in PyTorch"
MINE = "a part of how PyTorch is built, that nobody calls"
ROOMS = {
    "nn": {
        "Container": OLD,
        "factory_kwargs": MINE,
    },
    "nn.functional": {
        **dict.fromkeys(("grouped_mm", "scaled_grouped_mm", "scaled_mm"), "for CUDA devices"),
        **dict.fromkeys(("ScalingType", "SwizzleType"), "for CUDA devices, arguments of scaled_mm"),
        **dict.fromkeys(("boolean_dispatch", "assert_int_or_pair"), MINE),
        **dict.fromkeys(("BroadcastingList1", "BroadcastingList2", "BroadcastingList3"), MINE),
        **dict.fromkeys(("GRID_SAMPLE_INTERPOLATION_MODES", "GRID_SAMPLE_PADDING_MODES"), MINE),
        **dict.fromkeys(("reproducibility_notes", "sparse_support_notes", "tf32_notes"), MINE),
        **dict.fromkeys(("DType", "TYPE_CHECKING"), MACHINERY),
    },
    "nn.init": {},
    "nn.parameter": {},
    "nn.attention": {
        **dict.fromkeys(
            ("SDPAParams", "can_use_efficient_attention", "can_use_flash_attention"), "for CUDA devices"
        ),
        "WARN_FOR_UNFUSED_KERNELS": "for CUDA devices",
        **dict.fromkeys(
            ("activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls",
             "register_flash_attention_impl", "restore_flash_attention_impl"), "for CUDA devices",
        ),
    },
    "nn.utils": {},
    "nn.utils.rnn": dict.fromkeys(("bind", "copy_method_params"), MINE),
    "nn.utils.parametrize": dict.fromkeys(
        ("OpaqueBase", "get_swap_module_params_on_conversion", "is_opaque_reference_type",
         "is_traceable_wrapper_subclass"), MACHINERY,
    ),
    "nn.utils.parametrizations": {},
    "nn.utils.prune": {},
    "nn.utils.stateless": {"NamedMemberAccessor": MACHINERY},
    "nn.utils.fusion": dict.fromkeys(("ConvT", "LinearT"), MACHINERY),
}  # fmt: skip
# Attributes of a module that are PyTorch's way of doing it, or for devices that are not there.
OF_MODULES = {
    "T_destination", "_backward_pre_hooks_with_kwargs", "_compiled_call_impl",
    "_forward_hooks_always_called", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
    "_get_backward_hooks", "_get_backward_pre_hooks", "_is_full_backward_hook",
    "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_maybe_warn_non_full_backward_hook",
    "_replicate_for_data_parallel", "_slow_forward", "_state_dict_hooks", "_state_dict_pre_hooks",
    "dump_patches", "ipu", "mtia", "xpu",
}  # fmt: skip


def named(module):
    """The public names that stand for something of PyTorch's: no modules, no types of typing's."""
    home = ("torch", "lamina", "builtins", None)
    for name in dir(module):
        value = getattr(module, name)
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        if (getattr(value, "__module__", None) or "torch").split(".")[0] in home:
            yield name


@pytest.mark.parametrize("room", ROOMS)
def test_names_are_those_of_torch(room):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = import_module(f"torch.{room}")
    mine = import_module(f"lamina.{room}")
    lacking = {name for name in named(theirs) if not hasattr(mine, name)}
    assert lacking == set(ROOMS[room])


def test_attributes_of_modules_are_those_of_torch():
    mine, theirs = lamina.nn.Module(), torch.nn.Module()
    assert {name for name in dir(theirs) if not hasattr(mine, name)} <= OF_MODULES


DEVICES = "for copies on several devices"
# Private methods are no interface, but what derived classes of other libraries replace, or call: Lamina's are
# tried in tests/nn/test_derived.py.  These it lacks:
PRIVATE = {
    ("_CircularPadNd", "_check_input_dim"): MINE,
    **dict.fromkeys((("CircularPad1d", "_check_input_dim"), ("CircularPad2d", "_check_input_dim")), MINE),
    ("CircularPad3d", "_check_input_dim"): MINE,
    ("LazyModuleMixin", "_replicate_for_data_parallel"): DEVICES,
    ("_LazyConvXdMixin", "_get_in_channels"): MINE,
    ("_LazyConvXdMixin", "_get_num_spatial_dims"): MINE,
    **{
        (f"Lazy{kind}{n}d", "_get_num_spatial_dims"): MINE
        for kind in ("Conv", "ConvTranspose")
        for n in (1, 2, 3)
    },
    ("ParameterDict", "_key_to_attr"): MINE,
    ("ParameterList", "_get_abs_string_index"): MINE,
    ("RNNBase", "_replicate_for_data_parallel"): DEVICES,
    ("RNNBase", "_weights_have_changed"): MINE,
    ("SyncBatchNorm", "_check_non_zero_input_channels"): MINE,
    ("Unflatten", "_require_tuple_int"): MINE,
    ("_ConvNd", "_conv_forward"): "a transposed convolution has none, nor has PyTorch's a body",
    ("_InstanceNorm", "_apply_instance_norm"): MINE,
    ("_InstanceNorm", "_handle_no_batch_input"): MINE,
    ("Optimizer", "_optimizer_step_code"): MACHINERY,
    ("Optimizer", "_patch_step_function"): MACHINERY,
    ("Optimizer", "_process_value_according_to_param_policy"): MINE,
    ("LRScheduler", "_update_lr"): MINE,
    ("DataLoader", "_get_iterator"): MINE,
}


def pairs():
    """Classes of PyTorch's that others derive from, with Lamina's."""
    for name in dir(torch.nn):
        theirs, mine = getattr(torch.nn, name), getattr(lamina.nn, name, None)
        if isinstance(theirs, type) and issubclass(theirs, torch.nn.Module) and theirs is not torch.nn.Module:
            if mine is not None:
                yield theirs, mine, torch.nn.Module
    yield torch.optim.Optimizer, lamina.optim.Optimizer, object
    yield torch.optim.lr_scheduler.LRScheduler, lamina.optim.lr_scheduler.LRScheduler, object
    yield torch.utils.data.DataLoader, lamina.data.DataLoader, object


def test_private_methods_that_others_replace_are_those_of_torch():
    lacking = set()
    for theirs, mine, end in pairs():
        for kind in theirs.__mro__[: theirs.__mro__.index(end)]:
            for name, value in vars(kind).items():
                private = name.startswith("_") and not name.startswith("__")
                if private and callable(getattr(value, "__func__", value)) and not hasattr(mine, name):
                    lacking.add((kind.__name__, name))
    assert lacking == set(PRIVATE)


def test_what_copies_of_attention_ask_of_functional():
    for space in (torch, lamina):
        F, bools = space.nn.functional, space.tensor([True, False])
        told = (None, "", space.float32, False)
        assert F._canonical_mask(bools, "mask", *told).tolist() == [-math.inf, 0.0]
        assert F._canonical_mask(None, "mask", *told) is None
        assert F._canonical_mask(space.ones(2), "mask", *told).tolist() == [1.0, 1.0]
        with pytest.raises((RuntimeError, AssertionError), match="only bool and floating types of mask"):
            F._canonical_mask(space.ones(2).long(), "mask", *told)
        with pytest.warns(UserWarning, match="mismatched mask and other"):
            F._canonical_mask(bools, "mask", space.float32, "other", space.float32)
        assert F._none_or_dtype(None) is None and F._none_or_dtype(bools) is space.bool
        x, y = space.ones(2, 4), space.ones(3, 2, 4)
        assert F._mha_shape_check(y, y, y, None, None, 2) and not F._mha_shape_check(x, x, x, None, None, 2)
        assert not F._mha_shape_check(x, x, x, None, space.ones(2, 2, 2), 2)
        for wrong in (
            (space.ones(2), x, x, None, None, 2), (x, y, y, None, None, 2), (x, x, x, y, None, 2),
            (x, x, x, None, space.ones(1, 2, 2), 2), (y, y, y, x[0], None, 2),
        ):  # fmt: skip
            with pytest.raises((RuntimeError, AssertionError, ValueError)):
                F._mha_shape_check(*wrong)
        assert F._pair(3) == (3, 3)
        vf = import_module(f"{space.__name__}._VF")
        assert vf.lstm_cell(y[0], (x, x), *(space.ones(16, 4),) * 2)[0].shape == (2, 4)
