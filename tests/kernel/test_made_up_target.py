"""A target is a value: one that no machine has, narrower than all, runs every family of kernels here."""

import dataclasses

import pytest
import test_conv_gradients
import test_conv_programs
import test_conv_rows
import test_generate
import test_matmul
import test_winograd
from native import call_of, run_code
from probes import PROBES
from test_kernel_llvm import close
from training_programs import random_step

from lamina.ir.kernel import interpret, parse
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.pack_matmuls import Options
from lamina.passes.schedules.target import AVX2, LEVELS, NEON, Target

MADE_UP = Target("made up", 2, "x86-64-v2", registers=8)  # no masks, no fma, no halves


def test_every_field_is_described():
    for field in dataclasses.fields(Target):
        assert f"{field.name}:" in Target.__doc__ or f"{field.name}," in Target.__doc__, field.name


def test_code_does_not_ask_for_the_name():
    kernels = [PROBES[name].kernel for name in ("add", "halves", "softmax", "matmul")]
    padded = "parallel i:4 j:13\n  y[i, j] = x[i-1, j-2 else 0.0]"
    kernels.append(parse(f"kernel k(x: f64[2,3]) -> (y: f64[4,13]) {{\n  {padded}\n}}"))
    for target in (*LEVELS, NEON):
        other = dataclasses.replace(target, name="other")
        assert [code_of(call_of(k), target) for k in kernels] == [code_of(call_of(k), other) for k in kernels]


def test_code_is_kept_for_the_very_machine():
    """Two targets of one name, of which one lacks an instruction, don't share code."""
    kernel = PROBES["matmul"].kernel
    without = dataclasses.replace(AVX2, has_fma=False)
    one, two = (code_of(call_of(kernel), target).text for target in (AVX2, without))
    assert "@llvm.fma" in one and "@llvm.fma" not in two


def test_code_that_this_processor_cannot_run_is_not_entered():
    target = dataclasses.replace(MADE_UP, needs=("made up",))
    with pytest.raises(pytest.skip.Exception, match="this processor has no made up"):
        run_code(PROBES["add"].kernel, PROBES["add"].arrays(), target)


@pytest.mark.parametrize("name", PROBES)
def test_probes(name):
    kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
    wanted = interpret(kernel, *arrays, exact=name not in ("dropout", "halves"))
    for got, want in zip(run_code(kernel, arrays, MADE_UP), wanted, strict=True):
        close(got, want, name)


def test_families():
    for form in ("nn", "nt"):
        program = test_matmul.stated(test_matmul.form(form, 17, 33, 40), "f32")
        test_matmul.check(program, MADE_UP, Options(frozenset((1,))))
    for case in ("3x3", "three channels, stride", "depthwise"):
        test_conv_rows.test_code_agrees_with_its_kernel(case, MADE_UP)
    test_winograd.test_code_agrees_with_its_kernel("odd", MADE_UP)
    for seed in range(2):
        test_conv_gradients.check(random_step(seed), MADE_UP, seed)
    test_conv_programs.test_calls_agree_with_their_kernels("random 4", MADE_UP)
    test_generate.test_every_remainder_of_a_vector_stays_in_its_array("f16", MADE_UP)
