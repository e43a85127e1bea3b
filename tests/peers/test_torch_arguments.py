"""Arguments by PyTorch's names: what PyTorch takes by keyword is taken here."""

import inspect
import pickle
import warnings
from collections import defaultdict

import numpy as np
import pytest

import lamina
from lamina.ir.op import COMPOSITES, OF_NUMPY, REGISTRY
from lamina.runtime.overriding import OPEN

torch = pytest.importorskip("torch", reason="compares with PyTorch")

MAKING = "dtype=t.float32, layout=t.strided, device='cpu', pin_memory=False, requires_grad=False"
LIKE = f"{MAKING}, memory_format=t.preserve_format"
MADE = [
    "t.ones(2,",
    "t.zeros(2,",
    "t.empty(2,",
    "t.full((2,), 1.0,",
    "t.arange(3,",
    "t.linspace(0, 1, 3,",
    "t.logspace(0, 1, 3,",
    "t.eye(2,",
    "t.rand(2,",
    "t.randn(2,",
    "t.randint(3, (2,),",
    "t.randperm(3,",
    "x.new_ones(2,",
    "x.new_zeros(2,",
    "x.new_empty(2,",
    "x.new_full((2,), 1.0,",
    "t.normal(0.0, 1.0, (2,),",
]
MADE_LIKE = [
    "t.ones_like(x,",
    "t.zeros_like(x,",
    "t.empty_like(x,",
    "t.full_like(x, 2.0,",
    "t.rand_like(x,",
    "t.randn_like(x,",
    "t.randint_like(x, 3,",
]
CALLS = [
    "t.pow(x, exponent=2)",
    "t.pow(input=x, exponent=x)",
    "t.pow(2.0, exponent=x)",
    "x.pow(exponent=2)",
    "x.clone().pow_(exponent=2)",
    "t.heaviside(x, values=x)",
    "x.heaviside(values=x)",
    "t.complex(real=x, imag=x)",
    "t.complex(x, imag=x)",
    "t.smm(x.to_sparse(), mat2=x.t()).to_dense()",
    *(f"{call} {MAKING})" for call in MADE),
    *(f"{call} {LIKE})" for call in MADE_LIKE),
    "x.new_ones(size=(2,))",
    "x.new_zeros(size=(2,))",
    "x.new_empty(size=(2,))",
    "t.arange(end=3)",
    "t.arange(start=1, end=3)",
    "x.split(split_size=1, dim=0)",
    "x.tile(dims=(2, 1))",
    "x.swapaxes(axis0=0, axis1=1)",
    "x.swapdims(dim0=0, dim1=1)",
    "t.hsplit(x, sections=3)",
    "t.hsplit(x, indices=(1,))",
    "x.vsplit(sections=2)",
    "t.dsplit(x[None], sections=3)",
    "t.tensor_split(x, sections=2)",
    "x.tensor_split(indices=(1,), dim=1)",
    "t.svd(x, some=True, compute_uv=False)",
    "t.result_type(tensor=x, other=x)",
    "t.result_type(scalar=1.5, tensor=i)",
    "t.result_type(scalar1=1, scalar2=2.5)",
    "t.isin(element=1, test_elements=x)",
    "t.isin(elements=x, test_element=1)",
    "t.promote_types(type1=t.float32, type2=t.float64)",
    "x.expand(size=(4, 2, 3))",
    "x.view(size=(6,))",
    "x.repeat(repeats=(1, 1))",
    "x.permute(dims=(1, 0))",
    "x.reshape(shape=(6,))",
    "t.where(condition=x > 0, input=x, other=x)",
    "t.cat(tensors=(x, x), dim=0)",
    "x.view(dtype=t.int32)",
    "x.unflatten(dim=0, sizes=(1, 2))",
    # by NumPy's names, of functions that are ops in a row
    "t.max(x, axis=0)",
    "x.min(axis=1, keepdims=True)",
    "t.max(x1=x, x2=-x)",
    "x.median(axis=0)",
    "t.diff(a=x, axis=0)",
    "t.argsort(x, axis=0)",
    "t.aminmax(x, axis=0, keepdims=True)",
    "x.chunk(2, axis=1)",
    "x.unbind(axis=1)",
    "x.select(axis=1, index=2)",
    "x.narrow(axis=1, start=0, length=2)",
    "t.var_mean(x, axis=0, keepdims=True)",
    "x.quantile(0.5, axis=0)",
    "x.repeat_interleave(2, axis=0)",
    "t.tensor_split(x, 2, axis=1)",
    "t.trapezoid(x, axis=0)",
    "t.fft.fft(x, axis=0)",
    "t.linalg.norm(x, axis=1, keepdims=True)",
    # linalg's
    "t.linalg.norm(input=x, ord=1, dtype=t.float64)",
    "t.linalg.norm(x, dtype=t.float64)",
    "t.linalg.matrix_norm(x, 1, dtype=t.float64)",
    "t.linalg.matrix_norm(x, dtype=t.float64)",
    "t.linalg.norm(x + 0j, dtype=t.complex128, out=t.empty((), dtype=t.float64))",
    "t.linalg.vector_norm(x=x, dim=0)",
    "t.linalg.matrix_rank(x @ x.T, 0.01, True)",
    "t.linalg.pinv(t.eye(2), 0.01, True)",
    "t.linalg.inv(A=t.eye(2))",
    "t.linalg.det(A=t.eye(2))",
    "t.linalg.lstsq(input=t.eye(2), b=x)[0]",
    "t.linalg.tensorsolve(input=t.eye(2), other=x[:, 0])",
    "t.linalg.eigvalsh(t.eye(2) + t.ones(2, 2).tril(), 'u')",
    "t.linalg.svdvals(t.eye(2), driver=None)",
    "t.cholesky_solve(input=x, input2=t.eye(2))",
]


def as_said(found, shape_only):
    if isinstance(found, (tuple, list)):
        return [as_said(each, shape_only) for each in found]
    if hasattr(found, "tolist"):
        return str(found.dtype).split(".")[-1], tuple(found.shape), None if shape_only else found.tolist()
    return str(found).split(".")[-1]


@pytest.mark.parametrize("call", CALLS)
def test_calls_by_names(call):
    random = any(name in call for name in ("rand", "normal", "empty"))
    said = []
    for t in (torch, lamina):
        x, i = t.tensor([[1.0, 2, 3], [4, 5, 6]]), t.tensor([0, 1])
        said.append(as_said(eval(call, {"t": t, "x": x, "i": i}), random or "svd" in call))
    assert said[0] == said[1]


# Arguments that schemas have and PyTorch's functions in Python don't, and prototypes.
NOT_TAKEN = {
    "layout",
    "pin_memory",
    "memory_format",
    "cudnn_enabled",
    "cudnn_enable",
    "train",
    "implicit",
    "out_dtype",
    "dims_self",
    "dims_other",
    "generator",
}
APART = {
    "embedding": "nn.functional's",
    "sort": "a list's, of TorchScript",
    "select": "TorchScript's list",
    "save": "TorchScript's",
    "split": "first argument: tensor, and TorchScript's strings",
    "seed": "a generator's",
    "manual_seed": "a generator's",
    "initial_seed": "a generator's",
    "set_grad_enabled": "TorchScript's",
    "broadcast_shapes": "TorchScript's",
    "device": "TorchScript's",
    "tensor": "TorchScript's",
    "as_tensor": "TorchScript's",
    "backward": "TorchScript's",
    "Size": "TorchScript's",
    "Generator": "TorchScript's",
    "polar": "numbers of TorchScript's",
    "add": "numbers of TorchScript's",
    "sub": "numbers of TorchScript's",
    "div": "numbers of TorchScript's",
    "ldexp": "numbers of TorchScript's",
    "einsum": "positional",
    "tensordot": "a and b in Python",
    "to": "overloads of its first argument",
    "view": "tried above",
    "isin": "tried above",
    "hsplit": "tried above",
    "vsplit": "tried above",
    "dsplit": "tried above",
    "tensor_split": "tried above",
    "result_type": "tried above",
    "cholesky_inverse": "L in Python",
    "cholesky_solve": "B and L in Python",
    "lu_solve": "b in Python",
    "orgqr": "tau in Python",
    "ormqr": "tau in Python",
    "smm": "mat in Python",
    "unsafe_split": "tensor in Python",
    "atleast_1d": "any number of tensors",
    "atleast_2d": "any number of tensors",
    "atleast_3d": "any number of tensors",
    "normal": "mean and std in Python",
}


def parameters(function, name):
    function = COMPOSITES[name].function if name in COMPOSITES else inspect.unwrap(function)
    if name in REGISTRY and name not in COMPOSITES:
        function = REGISTRY[name].bind
    found = inspect.signature(function).parameters
    return None if any(p.kind is p.VAR_KEYWORD for p in found.values()) else set(found)


def test_names_of_schemas():
    schemas = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten" and name[0] != "_" and name[-1] != "_" and "name" not in schema.overload_name:
            schemas[name].append(schema)
    lacking, seen = defaultdict(set), 0
    for name, forms in schemas.items():
        for theirs, ours in ((torch, lamina), (torch.Tensor, lamina.Tensor)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function = getattr(ours, name, None)
                if name in APART or function is None or not callable(getattr(theirs, name, None)):
                    continue
            known = parameters(function, name)
            for argument in [
                a for form in forms for a in form.arguments if known is not None and not a.is_out
            ]:
                if argument.name == "self" and theirs is torch.Tensor or argument.name in NOT_TAKEN:
                    continue
                seen += 1
                asked = "input" if argument.name == "self" else argument.name
                if asked not in known and OF_NUMPY.get(asked) not in known:
                    lacking[name].add(asked)
    assert seen > 1500 and not lacking, dict(lacking)


# ---- lists of tensors --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("mul", {"scalar": 0.5}),
        ("mul", {"other": "ys"}),
        ("add", {"scalars": [1.0, 2.0]}),
        ("add", {"other": "ys", "alpha": 2}),
        ("pow", {"exponent": [2, 3]}),
        ("clamp_max", {"scalar": 0.9}),
        ("lerp", {"tensors1": "ys", "weight": 0.25}),
        ("lerp", {"weights": "ys", "tensors1": "ys"}),
        ("addcmul", {"tensor1": "ys", "tensor2": "ys", "value": 0.5}),
        ("addcdiv", {"scalars": [0.5, 2.0], "tensor2": "ys", "tensor1": "ys"}),
    ],
)
def test_foreach_takes_what_stands_beside_the_list_by_name(name, named):
    xs, ys = [np.array([0.5, 2.0]), np.array([[1.5]])], [np.array([3.0, 0.25]), np.array([[0.75]])]

    def found(library, form):
        lists = {"ys": [library.tensor(y) for y in ys]}
        said = {k: lists[v] if isinstance(v, str) else v for k, v in named.items()}
        mine = [library.tensor(x) for x in xs]
        made = getattr(library, f"_foreach_{name}{form}")(mine, **said)
        return [x.tolist() for x in (mine if form else made)]

    for form in ("", "_"):
        for mine, theirs in zip(found(lamina, form), found(torch, form), strict=True):
            np.testing.assert_allclose(
                mine, theirs, rtol=4 * np.finfo(np.float64).eps
            )  # two or three roundings


def test_squeeze_takes_its_dims_one_by_one():
    for dims in ((0, 1), (0, -1), ((0, 3),), (2, 0)):
        mine, theirs = (t.ones(1, 1, 2, 1).squeeze(*dims) for t in (lamina, torch))
        assert tuple(mine.shape) == tuple(theirs.shape), dims


IMAGE = np.arange(32.0, dtype="float32").reshape(1, 2, 4, 4)
OF_INTS = {
    "conv2d": lambda t, x, i: t.nn.functional.conv2d(x, t.ones(2, 1, 2, 2), None, i(2), i(1), i(1), i(2)),
    "conv_transpose2d": lambda t, x, i: t.nn.functional.conv_transpose2d(x, t.ones(2, 1, 2, 2), stride=i(2)),
    "avg_pool2d": lambda t, x, i: t.nn.functional.avg_pool2d(x, i(2)),
    "max_pool2d": lambda t, x, i: t.nn.functional.max_pool2d(x, (i(2), i(2)), i(1)),
    "adaptive_avg_pool2d": lambda t, x, i: t.nn.functional.adaptive_avg_pool2d(x, (i(2), None)),
    "adaptive_max_pool2d": lambda t, x, i: t.nn.functional.adaptive_max_pool2d(x, (i(2), i(3))),
    "interpolate": lambda t, x, i: t.nn.functional.interpolate(x, size=(i(3), i(5))),
    "interpolate to one": lambda t, x, i: t.nn.functional.interpolate(x, i(3), mode="bilinear"),
    "linspace": lambda t, x, i: t.linspace(0, 3, i(4)),
    "logspace": lambda t, x, i: t.logspace(0, 2, i(3)),
    "resize_": lambda t, x, i: x.clone().resize_(i(3), i(2)),
    "stft": lambda t, x, i: t.stft(x[0, 0].flatten(), i(4), i(2), window=t.ones(4), return_complex=True).real,
}


@pytest.mark.parametrize("number", (np.int64, np.int32, "tensor"))
@pytest.mark.parametrize("name", OF_INTS)
def test_ints_may_be_those_of_numpy_or_tensors(name, number):
    mine, theirs = (
        OF_INTS[name](t, t.tensor(IMAGE), t.tensor if number == "tensor" else number) for t in (lamina, torch)
    )
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-5)  # a dozen roundings


@pytest.mark.parametrize(
    "call",
    (
        lambda t, x, i: x.squeeze(i(0)),
        lambda t, x, i: x.max(i(1)).values,
        lambda t, x, i: t.min(x, i(2)).values,
        lambda t, x, i: t.nn.Conv2d(i(2), i(3), i(2), i(1), i(1))(x).detach() * 0,
        lambda t, x, i: t.nn.LayerNorm(i(4))(x).detach().round(decimals=3),
        lambda t, x, i: t.nn.ReflectionPad2d(i(1))(x),
    ),
)
def test_dims_and_sizes_may_be_those_of_numpy(call):
    mine, theirs = (call(t, t.tensor(IMAGE), np.int64) for t in (lamina, torch))
    np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_an_int_of_a_tensor_is_read_at_each_call():
    x, n = lamina.tensor(IMAGE), lamina.tensor(2)
    assert lamina.nn.functional.avg_pool2d(x, n).shape == (1, 2, 2, 2)
    n += 2
    assert lamina.nn.functional.avg_pool2d(x, n).shape == (1, 2, 1, 1)


@pytest.mark.parametrize("window", ((2560, None, 0), (2560, None, 2), (6, 3, 1)))
def test_a_mean_over_windows_larger_than_the_image(window):
    def asked(t):
        x = t.tensor(IMAGE, requires_grad=True)
        y = t.nn.functional.avg_pool2d(x, *window, ceil_mode=True)
        y.sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    for mine, theirs in zip(asked(lamina), asked(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)  # of sums of 32


def test_the_slopes_of_a_prelu_begin_anew():
    module = lamina.nn.PReLU(3, init=0.125)
    lamina.no_grad()(module.weight.fill_)(7)
    module.reset_parameters()
    assert module.weight.tolist() == torch.nn.PReLU(3, init=0.125).weight.tolist()


def test_lists_of_arrays_that_were_pickled():
    # their dtype is another object than NumPy's own
    array = pickle.loads(pickle.dumps(np.arange(3) + 2**40))
    for t in (torch, lamina):
        found = t.from_numpy(array).tolist()
        assert found == [2**40, 2**40 + 1, 2**40 + 2] and all(type(x) is int for x in found)


def test_foreach_takes_powers_of_a_number():
    """As optimizers take them of their betas."""
    for given in ({}, {"exponent": None}):
        found = []
        for library in (torch, lamina):
            steps = [library.tensor(3.0), library.tensor([1.0, 2.0])]
            function = library._foreach_pow
            made = function(0.9, exponent=steps) if given else function(0.9, steps)
            found.append([x.tolist() for x in made])
        assert found[0] == found[1]


class _Foreign:
    """An operand that knows what to do with tensors, and says nothing of itself."""

    def __radd__(self, other):
        return "added"

    def __rmatmul__(self, other):
        return "multiplied"

    def __gt__(self, other):
        return "greater"


@pytest.mark.parametrize("overridden", [False, True])
def test_operators_leave_foreign_operands_to_their_class(overridden):
    """Whether or not the process has met a class with __torch_function__, which edges ask from then on."""
    before = OPEN[:]
    OPEN[:] = ["classes"] if overridden else []
    try:
        _operators_leave_foreign_operands_to_their_class()
    finally:
        OPEN[:] = before


def _operators_leave_foreign_operands_to_their_class():
    for library in (torch, lamina):
        x = library.ones(2)
        assert (x + _Foreign(), x @ _Foreign(), x < _Foreign()) == ("added", "multiplied", "greater")
        assert x.__add__(object()) is x.__iadd__(object()) is x.__lt__(object()) is NotImplemented
        y = x
        y += _Foreign()
        assert y == "added"
        for foreign in (object(), None, "text", [1.0]):
            with pytest.raises(TypeError):
                x - foreign
