"""`lamina.masked` against `torch.masked`: reductions over what a mask selects."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

ALONG = ("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "normalize")
ONE = (*ALONG, "argmax", "argmin", "median")
DTYPES = ("float32", "float64", "int32", "complex64")
SHAPES = ((2, 3), (), (3,), (2, 2, 2))


def _said(library, name, array, mask, dtype, dim, **settings):
    """The dtype and values of a call, or that it is refused."""
    x = library.tensor(array).to(getattr(library, dtype))
    first = (2.0,) if name in ("norm", "normalize") else ()
    if mask is not None:
        settings["mask"] = library.tensor(mask)
    try:
        found = getattr(library.masked, name)(x, *first, *dim, **settings)
    except Exception:
        return "refused", None
    return str(found.dtype).partition(".")[2], found.numpy()


@pytest.mark.parametrize("name", sorted({*lamina.masked.__all__} - {"logaddexp"}))
def test_reductions_are_those_of_pytorch(name):
    numbers = np.random.default_rng(3)
    dims = ((0,), (-1,), (7,)) + (() if name in ONE else ((), ((0, 1),), ((),), ((0, 0),)))
    for shape in SHAPES:
        array = numbers.standard_normal(shape) * 3
        for mask in (None, numbers.random(shape) > 0.5, np.zeros(shape, bool)):
            for dtype in DTYPES:
                if (name, dtype) == ("median", "complex64"):  # PyTorch's drops the imaginary parts
                    continue
                for dim in dims:
                    for settings in ({},) if name in ALONG else ({}, {"keepdim": True}):
                        ours, theirs = (
                            _said(library, name, array, mask, dtype, dim, **settings)
                            for library in (lamina, torch)
                        )
                        case = (shape, mask, dtype, dim, settings)
                        assert ours[0] == theirs[0], case
                        if ours[1] is not None:
                            # at most eight terms are added or multiplied, of numbers below 10
                            np.testing.assert_allclose(
                                ours[1], theirs[1], rtol=8e-6, atol=8e-5, err_msg=f"{case}"
                            )


@pytest.mark.parametrize("order", (1, 2, 3.5, math.inf, -math.inf))
def test_norms_gradients_and_logaddexp(order):
    array, mask = np.array([[1.0, -2, 3], [4, 5, 6]]), np.array([[True, False, True], [False] * 3])
    found = []
    for library in (lamina, torch):
        x, selected = library.tensor(array, requires_grad=True), library.tensor(mask)
        total = library.masked.norm(x, order, 1, mask=selected)
        total[0].backward()
        both = library.masked.logaddexp(x, x, input_mask=selected, other_mask=~selected)
        found.append([total.detach().numpy(), x.grad.numpy(), both.detach().numpy()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "uint8", "int16", "int64", "complex64"]
)
@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "cumsum",
        "prod",
        "cumprod",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "logsumexp",
        "norm",
        "mean",
        "var",
        "median",
    ],
)
def test_the_result_of_no_elements(name, dtype):
    def identity(library):
        try:
            found = library.masked._reduction_identity(
                f"masked.{name}", library.ones(2, dtype=getattr(library, dtype))
            )
        except (NotImplementedError, RuntimeError, TypeError):
            return "refused"
        return found if found is None else (str(found.dtype).split(".")[1], str(found.tolist()))

    wanted = identity(torch)
    if wanted != "refused":
        assert identity(lamina) == wanted


def test_the_result_of_no_elements_depends_on_a_norms_order():
    assert lamina.masked._reduction_identity("norm", lamina.ones(2), -math.inf).item() == math.inf
    with pytest.raises(lamina.ir.errors.ArgumentError, match="there is no reduction 'nosuch'"):
        lamina.masked._reduction_identity("nosuch", lamina.ones(2))


@pytest.mark.parametrize("layout", ("sparse_coo", "sparse_csr"))
@pytest.mark.parametrize("name", ("sum", "prod", "amax", "amin", "mean"))
def test_sparse_tensors_and_masks(name, layout):
    numbers = np.random.default_rng(4)
    array = numbers.standard_normal((3, 4)) * (numbers.random((3, 4)) > 0.4)
    mask = numbers.random((3, 4)) > 0.4
    mask[1] = False
    dense, selected = lamina.tensor(array), lamina.tensor(mask)
    kind = getattr(lamina, layout)
    sparse, chosen = dense.to_sparse(layout=kind), selected.to_sparse(layout=kind)
    for dim in (0, 1, -1, (0, 1)):
        theirs = getattr(torch.masked, name)(torch.tensor(array), dim, keepdim=True, mask=torch.tensor(mask))
        whole = getattr(lamina.masked, name)(dense, dim, keepdim=True, mask=chosen)
        np.testing.assert_allclose(whole.numpy(), theirs.numpy(), rtol=1e-14)  # twelve terms at most
        for each in (selected, chosen):
            found = getattr(lamina.masked, name)(sparse, dim, keepdim=True, mask=each)
            assert found.layout == kind
            # PyTorch's own leave out trailing rows without an element; here their places are empty
            known = np.where(mask.any(dim, keepdims=True), theirs.numpy(), 0)
            np.testing.assert_allclose(found.to_dense().numpy(), known, rtol=1e-14)
