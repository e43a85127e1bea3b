"""gradcheck and gradgradcheck: what each setting looks for, seen to find it."""

import pytest

import lamina
from lamina.autograd import Function, forward_ad, gradcheck, gradgradcheck
from lamina.autograd.gradcheck import GradcheckError, get_analytical_jacobian, get_numerical_jacobian
from lamina.runtime import kernels


def doubles(*values, **more):
    return lamina.tensor(values, dtype=lamina.float64, requires_grad=True, **more)


def hooked(change):
    def function(x):
        y = x.clone()
        y.register_hook(change)
        return y

    return function


class Scaled(Function):
    """2 x, whose derivatives are off by `wrong` in one mode, or by random numbers."""

    @staticmethod
    def forward(ctx, x, backward, forward, noise=0.0):
        ctx.settings = backward, forward, noise
        return x * 2

    @staticmethod
    def backward(ctx, g):
        by, _, noise = ctx.settings
        return g * by + g * noise * lamina.rand_like(g), None, None, None

    @staticmethod
    def jvp(ctx, t, *_):
        return t * ctx.settings[1]


def test_each_check_finds_what_it_is_for():
    x = doubles(1.0, -2.0)
    assert gradcheck(lambda x: Scaled.apply(x, 2, 3), x)  # forward mode is not looked at
    every = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(lambda x, y: (x * y, y.sin()), (x, doubles(0.5, 3.0)), **every)
    assert gradgradcheck(lambda x: x.exp() * x, x, check_fwd_over_rev=True)
    for message, function, more in (
        ("Jacobian mismatch for output 0 with respect to input 0", lambda x: Scaled.apply(x, 3, 2), {}),
        ("forward mode mismatch for output 0", lambda x: Scaled.apply(x, 2, 3), {"check_forward_ad": True}),
        ("Backward is not reentrant", lambda x: Scaled.apply(x, 2, 2, 1e-6), {}),
        ("not multiplied by grad_output", hooked(lambda g: g + 1e-6), {}),
        ("expected to be zero", lambda x: x.detach() * 2, {}),
        ("testing batched gradient", lambda x: Scaled.apply(x, 2, 2), {"check_batched_grad": True}),
    ):
        with pytest.raises(GradcheckError, match=message):
            gradcheck(function, x, **more)
        assert not gradcheck(function, x, raise_exception=False, **more)
    assert gradcheck(lambda x: Scaled.apply(x, 2, 2, 1e-7), x, nondet_tol=1e-5)


@pytest.mark.parametrize("after", range(4))
def test_an_op_may_change_over_to_native_code_in_between(after):
    calls = []

    def rounded_otherwise_from_then_on(g, told):
        calls.append(g)
        if len(calls) == after + 1 and told:
            kernels.changes += 1
        return g * (1 + 1e-15 * (len(calls) > after))

    x = doubles(1.0, -2.0)
    assert gradcheck(hooked(lambda g: rounded_otherwise_from_then_on(g, True)), x)
    assert len(calls) > after
    calls.clear()
    if after % 2:  # between the two of a pair, and nothing changed over
        with pytest.raises(GradcheckError, match="not reentrant"):
            gradcheck(hooked(lambda g: rounded_otherwise_from_then_on(g, False)), x)


def test_complex_outputs_are_told_by_their_parts():
    z = lamina.tensor([1 + 2j], dtype=lamina.complex128, requires_grad=True)
    assert gradcheck(lambda z: (z * z, z.real), z, check_forward_ad=True)
    with pytest.raises(GradcheckError, match="imaginary part of complex outputs only"):
        gradcheck(hooked(lambda g: g * 1.5), z)


def test_inputs_that_were_expanded_along_nothing():
    x = lamina.eye(2, dtype=lamina.float64).expand(1, -1, -1).requires_grad_()
    assert gradcheck(lambda x: x * x, x)


def test_what_can_not_be_checked_is_refused():
    x = doubles(1.0)
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lamina.sin, lamina.ones(1))
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad"):
        gradcheck(lamina.sin, x, check_backward_ad=False)
    with pytest.raises(RuntimeError, match="dimension with stride 0"):
        gradcheck(lamina.sin, x.expand(2))
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        gradcheck(lambda x: x.to_sparse(), x)
    with pytest.raises(AssertionError, match="outputs with the same shape"):
        gradcheck(lambda x: lamina.cat([x, x]) if x.item() >= 1 else x, x)
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double"):
        assert gradcheck(lambda x: x * 1, lamina.ones(1, requires_grad=True), atol=0.1)


def test_sparse_and_strided_inputs():
    values = lamina.rand(2, 3, dtype=lamina.float64)
    assert gradcheck(
        lambda x, y: x * y.to_dense(), (values.T.requires_grad_(), values.T.to_sparse().requires_grad_())
    )


def test_jacobians_of_the_old_functions():
    a = doubles(1.0, 2.0)
    with pytest.warns(FutureWarning, match="private API"):
        (found,) = get_numerical_jacobian(lambda xs: xs[0] * 3, (a,))
    assert found.round().tolist() == [[3, 0], [0, 3]]
    with pytest.warns(FutureWarning, match="private API"):
        (found,), again, *_ = get_analytical_jacobian((a,), Scaled.apply(a, 2, 2, 1e-3))
    assert not again and found.round().tolist() == [[2, 0], [0, 2]]


def test_jvp_of_custom_functions_is_held_to_what_forward_did():
    class Views(Function):
        @staticmethod
        def forward(ctx, x, how):
            ctx.how = how
            if how == "written":
                ctx.mark_dirty(x)
                return x.mul_(2)
            if how == "without":
                out = x * 1
                ctx.mark_non_differentiable(out)
                return out
            return x[:1]

        @staticmethod
        def jvp(ctx, t, _):
            return (
                {"view": t[:1], "copy": t[:1] * 1, "written": t * 2, "without": t}[ctx.how]
                if t is not None
                else t
            )

    x, t = lamina.tensor([1.0, 2.0]), lamina.ones(2)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(Views.apply(forward_ad.make_dual(x, t), "view"))
        assert found.tangent.tolist() == [1.0] and found.primal.tolist() == [1.0]
        for how, message in (
            ("copy", "jvp is not returning a view"),
            ("written", "modify the corresponding gradient inplace"),
            ("without", "You should return None at that position instead"),
        ):
            with pytest.raises(RuntimeError, match=message):
                Views.apply(forward_ad.make_dual(x, t), how)
        with pytest.raises(RuntimeError, match="forward gradient at the same level"):
            forward_ad.make_dual(x, forward_ad.make_dual(x, t))
        with pytest.raises(ValueError, match="Expected primal to be floating point"):
            forward_ad.make_dual(lamina.ones(2, dtype=lamina.int64), t)


def test_an_output_that_is_not_differentiated_is_passed_over():
    x = lamina.rand(3, dtype=lamina.float64, requires_grad=True)
    for function in (lambda x: (x * x, x.detach() * 2), lambda x: (x.detach() * 2, x.sin())):
        assert gradcheck(function, (x,)) and gradcheck(function, (x,), fast_mode=True)
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, (x,))
