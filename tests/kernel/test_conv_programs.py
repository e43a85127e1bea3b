"""Every call of blocked programs in native code: relayouts, packed weights, convolutions, the rest."""

import numpy as np
import pytest
from image_programs import arguments, random_images, small_network
from native import each_level, run_code

from lamina.ir.kernel import interpret
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.program import Alias

PROGRAMS = {"network": small_network(), "ragged network": small_network(12)}
PROGRAMS |= {f"random {seed}": random_images(seed) for seed in (1, 4, 7)}


@each_level
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_agree_with_their_kernels(name, target):
    """Each call on what the interpreter gave its operands.

    5e-6 of the largest value: the growth of Winograd's transforms (1000, of random sign) times the rounding
    of float32.
    """
    program = assign_layouts(PROGRAMS[name], target)
    values = dict(program.constants) | dict(zip(program.params, arguments(program), strict=True))
    for call in program.steps:
        given = [values[array] for array in call.inputs]
        if isinstance(call, Alias):
            (whole,), (view,) = given, call.outputs
            values[view] = whole.reshape(-1)[call.offset :][: view.size].reshape(view.shape)
            continue
        wanted = interpret(call.kernel, *given)
        for want, got in zip(wanted, run_code(call.kernel, given, target, call.how), strict=True):
            atol = 5e-6 * max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=f"{call.name} {call.how}")
        values |= zip(call.outputs, wanted, strict=True)
