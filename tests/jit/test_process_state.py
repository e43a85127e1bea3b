"""State of the process and of threads that Lamina keeps: read, and changed, in traced functions."""

import warnings

import pytest

import lamina
from lamina import distributions, jit

# How it is read; two statements that change it, of which the first makes it what it is at the start.
STATES = {
    "default dtype": ("get_default_dtype()", "set_default_dtype(lamina.{})", "float32", "float64"),
    "default device": ("get_default_device().type", "set_default_device({})", "None", "'meta'"),
    "device that is made on": ("ones(1).device.type", "set_default_device({})", "None", "'meta'"),
    "gradients": ("is_grad_enabled()", "set_grad_enabled({})", "True", "False"),
    "anomaly": ("is_anomaly_enabled()", "autograd.set_detect_anomaly({})", "False", "True"),
    "anomaly and NaN": (
        "is_anomaly_check_nan_enabled()", "autograd.set_detect_anomaly(True, check_nan={})", "True", "False",
    ),
    "autocast": ("is_autocast_enabled('cpu')", "set_autocast_enabled('cpu', {})", "False", "True"),
    "autocast's dtype": (
        "get_autocast_dtype('cpu')", "set_autocast_dtype('cpu', lamina.{})", "bfloat16", "float16",
    ),
    "autocast's cache": (
        "is_autocast_cache_enabled()", "set_autocast_cache_enabled({})", "True", "False",
    ),
    "deterministic": (
        "are_deterministic_algorithms_enabled()", "use_deterministic_algorithms({})", "False", "True",
    ),
    "deterministic, warnings": (
        "is_deterministic_algorithms_warn_only_enabled()", "use_deterministic_algorithms(True, warn_only={})",
        "False", "True",
    ),
    "deterministic, by numbers": (
        "get_deterministic_debug_mode()", "set_deterministic_debug_mode({})", "0", "1",
    ),
    "precision": (
        "get_float32_matmul_precision()", "set_float32_matmul_precision({})", "'highest'", "'high'",
    ),
    "warnings": ("is_warn_always_enabled()", "set_warn_always({})", "False", "True"),
    "threads": ("get_num_threads()", "set_num_threads({})", "2", "1"),
    "threads between ops": ("get_num_interop_threads()", "set_num_interop_threads({})", "1", "1"),
    "text": ("ones(1).div(3).__repr__()", "set_printoptions(precision={})", "4", "2"),
    "seed": ("initial_seed()", "manual_seed({})", "0", "1"),
    "numbers drawn": ("get_rng_state().sum().item()", "manual_seed({})", "0", "1"),
    "swapped parameters": (
        "__future__.get_swap_module_params_on_conversion()",
        "__future__.set_swap_module_params_on_conversion({})", "False", "True",
    ),
    "overwritten parameters": (
        "__future__.get_overwrite_module_params_on_conversion()",
        "__future__.set_overwrite_module_params_on_conversion({})", "False", "True",
    ),
    "models": ("hub.get_dir()", "hub.set_dir({})", "'a'", "'b'"),
    "sharing": (
        "multiprocessing.get_sharing_strategy()", "multiprocessing.set_sharing_strategy({})",
        "'file_system'", "'file_descriptor'",
    ),
    "attention": (
        "backends.cuda.flash_sdp_enabled()", "backends.cuda.enable_flash_sdp({})", "True", "False",
    ),
    "attention's sums": (
        "backends.cuda.fp16_bf16_reduction_math_sdp_allowed()",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp({})", "False", "True",
    ),
    "linear algebra": (
        "backends.cuda.preferred_linalg_library()", "backends.cuda.preferred_linalg_library({})",
        "'default'", "'magma'",
    ),
    "TF32": (
        "backends.cuda.matmul.allow_tf32", "backends.cuda.matmul.__setattr__('allow_tf32', {})",
        "False", "True",
    ),
    "cudnn": ("backends.cudnn.benchmark", "backends.cudnn.__setattr__('benchmark', {})", "False", "True"),
    "threads of backward": (
        "autograd.is_multithreading_enabled()", "autograd.set_multithreading_enabled({})", "True", "False",
    ),
}  # fmt: skip


@pytest.fixture(params=STATES)
def state(request):
    read, change, first, second = STATES[request.param]
    about = {"lamina": lamina}
    first, second = (f"lamina.{change.format(value)}" for value in (first, second))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(first, about)
        yield f"lamina.{read}", first, second
        exec(first, about)
    lamina.autograd.set_detect_anomaly(False)
    lamina.use_deterministic_algorithms(False)


def outcomes(text, between, read):
    """What calls of the function of `text` give and leave, eagerly and traced, with statements in between."""
    for decorate in (lambda f: f, jit.trace):
        about = {"lamina": lamina}
        exec(text, about)
        f, told, x = decorate(about["f"]), [], lamina.arange(3.0)
        for statement in between:
            exec(statement, about)
            told.append((str(f(x)), str(eval(read, about))))
        exec(between[0], about)
        yield told


def test_what_is_read_is_what_holds(state):
    read, first, second = state
    text = f"def f(x):\n    return x * 2, {read}"
    eager, traced = outcomes(text, [first, first, first, second, second, first, second, first], read)
    assert traced == eager


def made(x, p):
    """New tensors, views and parameters, of which some are made under a mode of their own."""
    with lamina.inference_mode(False):
        ordinary = x + 1
    with lamina.no_grad():
        without = p * 2
    return x * 2, x[1:], (x + 1)[1:], x, p, p * 2, without, ordinary, x.detach(), (x * 2).view(3, 1), x.sum()


def kinds(found):
    return [(x.is_inference(), x.requires_grad, x._base is None, x.tolist()) for x in found]


@pytest.mark.parametrize("mode", [lamina.inference_mode, lamina.no_grad, lamina.enable_grad])
def test_results_are_what_the_mode_makes(mode):
    traced, p = jit.trace(made), lamina.tensor([1.0, 2.0], requires_grad=True)
    with lamina.inference_mode():
        inferred = lamina.arange(3.0)
    for x in (lamina.arange(3.0), inferred) * 6:
        with mode():
            assert kinds(traced(x, p)) == kinds(made(x, p))
        if x is not inferred:
            with lamina.inference_mode():
                found, expected = traced(x, p), made(x, p)
            for a, b in zip(found, expected, strict=True):  # outside of the mode
                assert _written(a) == _written(b)


def _written(x):
    try:
        return x.clone().add_(1).tolist(), x.detach().add_(0).tolist()
    except RuntimeError as error:
        return str(error).splitlines()[0]


def test_divergences_that_programs_enter_are_computed_by():
    class Own(distributions.Normal):
        pass

    def f(x):
        return distributions.kl_divergence(Own(x, 1.0), Own(0.0, 1.0))

    traced, x, told = jit.trace(f), lamina.tensor([1.0, 2.0]), []
    for _ in range(4):
        assert lamina.equal(traced(x), f(x))
    for factor in (3, 4, 5):
        distributions.register_kl(Own, Own)(lambda p, q, factor=factor: p.loc * factor)
        told += [(traced(x) - x * factor).abs().max().item() for _ in range(3)]
    assert told == [0.0] * 9


def test_divergences_are_compiled():
    def f(x):
        return distributions.kl_divergence(distributions.Normal(x, 1.0), distributions.Normal(0.0, 1.0))

    traced, x = jit.trace(f), lamina.tensor([1.0, 2.0])
    for _ in range(5):
        assert lamina.allclose(traced(x), f(x))
    assert traced.explain(as_dict=True)["served"] >= 3


def test_what_is_changed_is_changed_at_each_call(state):
    read, first, second = state
    text = f"def f(x):\n    y = x * 2\n    {second}\n    return y"
    eager, traced = outcomes(text, [first] * 5, read)
    assert traced == eager
