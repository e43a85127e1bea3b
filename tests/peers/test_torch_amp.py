"""Compare mixed precision with PyTorch's on the CPU: the dtype that each op gives, and the scaler."""

import numpy as np
import pytest

import lamina

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

X, SQUARE = (3, 4), (3, 3)
CALLS = {
    "matmul": lambda t, x: x @ x.mT,
    "mm": lambda t, x: t.mm(x, x.mT),
    "bmm": lambda t, x: t.bmm(x[None], x.mT[None]),
    "addmm": lambda t, x: t.addmm(x @ x.mT, x, x.mT),
    "baddbmm": lambda t, x: t.baddbmm(x @ x.mT, x[None], x.mT[None]),
    "addbmm": lambda t, x: t.addbmm(x @ x.mT, x[None], x.mT[None]),
    "mv": lambda t, x: t.mv(x, x[0]),
    "dot": lambda t, x: t.dot(x[0], x[1]),
    "einsum": lambda t, x: t.einsum("ij,kj->ik", x, x),
    "linear": lambda t, x: t.nn.functional.linear(x, x, x[:, 0]),
    "conv1d": lambda t, x: t.nn.functional.conv1d(x[None], x[:, :3, None]),
    "conv2d": lambda t, x: t.nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "conv_transpose2d": lambda t, x: t.nn.functional.conv_transpose2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "prelu": lambda t, x: t.nn.functional.prelu(x, x[0, :1]),
    "softmax": lambda t, x: x.softmax(-1),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, (4,)),
    "relu": lambda t, x: x.relu(),
    "add": lambda t, x: x + x,
    "exp": lambda t, x: x.exp(),
    "sum": lambda t, x: x.sum(),
    "prod": lambda t, x: x.prod(),
    "cat": lambda t, x: t.cat([x, x.float()]),
    "stack": lambda t, x: t.stack([x, x.float()]),
    "trace": lambda t, x: t.trace(x),
    "cdist": lambda t, x: t.cdist(x, x),
    "quantile": lambda t, x: t.quantile(x, 0.5),
    "inverse": lambda t, x: t.linalg.inv(x[:, :3] + 3 * t.eye(3)),
    "mse_loss": lambda t, x: t.nn.functional.mse_loss(x, x.detach()),
    "l1_loss": lambda t, x: t.nn.functional.l1_loss(x, x.detach()),
    "huber_loss": lambda t, x: t.nn.functional.huber_loss(x, x.detach()),
    "smooth_l1_loss": lambda t, x: t.nn.functional.smooth_l1_loss(x, x.detach()),
    "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([0, 1, 2])),
    "nll_loss": lambda t, x: t.nn.functional.nll_loss(x, t.tensor([0, 1, 2])),
    "bce": lambda t, x: t.nn.functional.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()),
    "bce_with_logits": lambda t, x: t.nn.functional.binary_cross_entropy_with_logits(x, x.detach().sigmoid()),
    "kl_div": lambda t, x: t.nn.functional.kl_div(x, x.detach().sigmoid(), reduction="sum"),
    "soft_margin_loss": lambda t, x: t.nn.functional.soft_margin_loss(x, x.detach().sign()),
    "multi_margin_loss": lambda t, x: t.nn.functional.multi_margin_loss(x, t.tensor([0, 1, 2])),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "avg_pool2d": lambda t, x: t.nn.functional.avg_pool2d(x[None], 2),
}


def told(function, *args):
    try:
        made = function(*args)
    except (RuntimeError, TypeError, ValueError):
        return "refused"
    return str(made.dtype).split(".")[1]


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_ops_give_pytorchs_dtypes(name, low):
    values = np.random.default_rng(0).normal(size=X)
    for given in ("float32", low, "float64"):
        found = []
        for t in (lamina, torch):
            x = t.tensor(values).to(getattr(t, given)).requires_grad_()
            with t.autocast("cpu", dtype=getattr(t, low)):
                found.append(told(CALLS[name], t, x))
        assert found[0] == found[1] or found[1] == "refused", (given, *found)


def test_values_and_gradients_are_those_of_casts():
    sides = []
    for t in (lamina, torch):
        draw = np.random.default_rng(1)
        x, w = (t.tensor(draw.normal(size=s).astype("f"), requires_grad=True) for s in ((5, 8), (3, 8)))
        with t.autocast("cpu"):
            loss = t.nn.functional.mse_loss(t.nn.functional.linear(x, w), t.zeros(5, 3))
        loss.backward()
        sides.append([loss.detach().numpy(), x.grad.numpy(), w.grad.numpy()])
    for mine, theirs in zip(*sides, strict=True):
        # products of 8 and 5 terms, rounded to bfloat16 (2 ** -8) on the way there, back, and in the cast
        assert mine.dtype == theirs.dtype and np.allclose(mine, theirs, rtol=0.02, atol=3 * 2**-8)


def test_blocks_nest_and_decorate_as_pytorchs_do():
    for t in (lamina, torch):
        x, seen = t.ones(2, 2), []

        @t.autocast("cpu")
        def product(x):
            return x @ x

        with t.autocast("cpu", dtype=t.float16):
            seen += [(x @ x).dtype, t.is_autocast_enabled("cpu"), t.get_autocast_dtype("cpu")]
            with t.autocast("cpu", enabled=False):
                seen += [(x @ x).dtype, t.is_autocast_enabled("cpu")]
                with t.amp.autocast("cpu"):
                    seen.append((x @ x).dtype)
            with t.autocast("cpu", dtype=t.float16), pytest.raises(ZeroDivisionError):
                seen.append((x @ x).dtype)
                raise ZeroDivisionError
            seen.append((x @ x).dtype)
        seen += [product(x).dtype, (x @ x).dtype, t.is_autocast_enabled("cpu"), t.get_autocast_dtype("cpu")]
        names = [str(s).split(".")[-1] for s in seen]
        assert names == ["float16", "True", "float16", "float32", "False", "float16", "float16", "float16",
                         "bfloat16", "float32", "False", "bfloat16"]  # fmt: skip


@pytest.mark.parametrize("t", [lamina, torch])
def test_custom_functions_in_it_are_pytorchs(t):
    seen = []

    class Product(t.autograd.Function):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
        def forward(ctx, x, y):
            seen.append((x.dtype, t.is_autocast_enabled("cpu")))
            ctx.save_for_backward(x, y)
            return x @ y

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            seen.append((g.dtype, t.is_autocast_enabled("cpu")))
            return g @ y.mT, x.mT @ g

    x = t.ones(2, 2, requires_grad=True)
    with t.autocast("cpu"):
        out = Product.apply(x @ x, x)
    out.sum().backward()
    assert [(str(d).split(".")[-1], on) for d, on in seen] == [("float32", False)] * 2
    assert str(out.dtype).endswith("float32") and x.grad.shape == (2, 2)


def test_the_scaler_is_pytorchs():
    sides = []
    for t in (lamina, torch):
        p = t.ones(3).requires_grad_()
        optimizer = t.optim.SGD([p], lr=0.5)
        scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, growth_factor=4.0)
        seen = []
        for factor in (1.0, 2.0, float("inf"), 1.0, float("nan"), 3.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((p * factor).sum()).backward()
            scaler.unscale_(optimizer)
            with pytest.raises(RuntimeError):
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            with pytest.raises(RuntimeError):
                scaler.step(optimizer)
            scaler.update()
            seen += [scaler.get_scale(), *p.tolist()]
        seen.append(scaler.state_dict())
        other = t.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        seen += [other.state_dict(), t.amp.GradScaler("cpu", enabled=False).state_dict()]
        seen.append([float(x) for x in scaler.scale([t.ones(()), t.ones(())])])
        scaler.update(2.0)
        seen.append(scaler.get_scale())
        with pytest.raises(RuntimeError):
            scaler.step(optimizer, closure=None)
        with pytest.raises((RuntimeError, AssertionError)):
            t.amp.GradScaler("cpu").update()
        sides.append(seen)
    assert sides[0] == sides[1]
