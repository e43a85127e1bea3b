"""Switches of libraries that are not there: what was told is told again."""

import types

import pytest

import lamina
from lamina.ir.errors import ArgumentValueError


@pytest.mark.parametrize("kernel", ("flash", "mem_efficient", "math", "cudnn"))
def test_kernels_of_attention_are_permitted_and_not(kernel):
    cuda = lamina.backends.cuda
    enable, enabled = getattr(cuda, f"enable_{kernel}_sdp"), getattr(cuda, f"{kernel}_sdp_enabled")
    assert enabled()
    enable(False)
    try:
        assert not enabled()
    finally:
        enable(True)
    with pytest.warns(FutureWarning, match="sdpa_kernel"):
        block = cuda.sdp_kernel(enable_flash=False, enable_math=True, enable_mem_efficient=False)
        with block as told:
            assert told == {"flash": False, "mem_efficient": False, "math": True, "cudnn": True}
            assert enabled() is told[kernel]
    assert enabled()


def test_libraries_are_preferred():
    cuda = lamina.backends.cuda
    assert cuda.preferred_linalg_library() == "default"
    try:
        assert cuda.preferred_linalg_library("magma") == cuda.preferred_linalg_library() == "magma"
    finally:
        cuda.preferred_linalg_library("default")
    with pytest.raises(ArgumentValueError, match="Unknown input value 'eigen': one of default, cusolver"):
        cuda.preferred_linalg_library("eigen")


def test_halves_may_be_summed():
    cuda = lamina.backends.cuda
    assert not cuda.fp16_bf16_reduction_math_sdp_allowed()
    cuda.allow_fp16_bf16_reduction_math_sdp(True)
    assert cuda.fp16_bf16_reduction_math_sdp_allowed()
    cuda.allow_fp16_bf16_reduction_math_sdp(False)
    assert cuda.matmul.allow_fp16_reduced_precision_reduction and not cuda.matmul.allow_fp16_accumulation


@pytest.mark.parametrize("name", ("mkl", "openmp", "nnpack", "cusparselt", "kleidiai"))
def test_libraries_that_are_not_there(name):
    found = getattr(lamina.backends, name)
    assert isinstance(found, types.ModuleType) and not found.is_available()
