"""Programs that derive from Tensor, and that answer calls by `__torch_function__`."""

import io

from tensor_programs import program, raised


def _plain(t):
    class Plain(t.Tensor):
        pass

    return Plain


def _logging(t, log):
    class Logging(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    return Logging


@program
def results_have_the_class(t):
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(_plain(t))
    y = t.ones(2, 2)
    functional = t.nn.functional
    made = [
        x + 1, 1 + x, x + y, y + x, x - 1, 1 - x, x @ y, y @ x, x**2, -x, abs(x), x > 1, x == y,
        x[0], x[:, None],
        x.sum(), t.sum(x), t.add(y, x), x.exp(), t.exp(x), x.view(4), x.reshape(4), x.t(), x.T, x.mT,
        x.detach(), x.clone(), x.data, x.to(t.float64), x.double(), x.long(), x.float(), x.contiguous(),
        functional.relu(x), functional.softmax(x, dim=0), functional.linear(y, x), functional.mse_loss(x, y),
        t.stack([x, y]), t.cat([y, x]), t.where(x > 2, x, y), t.einsum("ij,jk->ik", x, y), x.mean(0),
        x.max(), x.argmax(), t.zeros_like(x), t.ones_like(x), x.new_ones(2), x.new_tensor([1.0]),
        x.masked_fill(x > 2, 0.0),
        functional.layer_norm(x, (2,)), functional.dropout(x, 0.5, False), x.expand(2, 2, 2), x.flatten(),
        functional.cross_entropy(x, t.tensor([0, 1])), t.linalg.norm(x), t.linalg.inv(x), t.clamp(x, 0, 2),
        x.unsqueeze(0), x.index_select(0, t.tensor([1])), x.gather(1, t.tensor([[0], [1]])),
        x.cumsum(0), x.std(),
    ]  # fmt: skip
    return made


@program
def tuples_have_the_class(t):
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(_plain(t))
    most = x.max(0)
    return (
        list(most),
        most.values,
        list(x.sort()),
        x.unbind(),
        x.split(1),
        x.chunk(2),
        list(x),
        t.topk(x, 1)[0],
        x.nonzero(as_tuple=True),
    )


@program
def what_stays_plain(t):
    x = t.tensor([1.0, 2.0]).as_subclass(_plain(t))
    y = x.requires_grad_()
    (x * 2).sum().backward()
    return (
        x.shape,
        x.dim(),
        x.tolist(),
        x[0].item(),
        x.numpy(force=True).tolist(),
        len(x),
        bool(x[0] > 0),
        float(x[0].detach()),
        y is x,
        x.size(0),
        x.numel(),
    )


@program
def in_place(t):
    x = t.tensor([1.0, 2.0]).as_subclass(_plain(t))
    y = x.add_(1)
    y += 1
    x[0] = 5
    x.fill_diagonal_(0) if x.dim() > 1 else None
    z = t.zeros(2)
    w = z.add_(x)
    return y is x, x, w, z, x.zero_(), x.copy_(t.ones(2))


@program
def gradients(t):
    kind = _plain(t)
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x.as_subclass(kind)
    z = (y * y).sum()
    z.backward()
    leaf = t.tensor([1.0, 2.0]).as_subclass(kind).requires_grad_()
    (g,) = t.autograd.grad((leaf**2).sum(), leaf)
    return x.grad.tolist(), z, y.is_leaf, g.tolist(), leaf.is_leaf


@program
def ways_to_make_one(t):
    kind = _plain(t)
    base = t.tensor([1.0, 2.0])
    a = base.as_subclass(kind)
    b = t.Tensor._make_subclass(kind, base)
    c = t.Tensor._make_subclass(kind, base, True)
    base[0] = 7
    return (
        a,
        b,
        c,
        kind([1.0, 2.0]),
        kind(2, 3).shape,
        isinstance(a, t.Tensor),
        raised(base.as_subclass, int),
        kind(base),
    )


@program
def attributes_and_constructors(t):
    class Named(t.Tensor):
        @staticmethod
        def __new__(cls, data, name):
            return t.Tensor._make_subclass(cls, data)

        def __init__(self, data, name):
            self.name_of = name

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs)
            names = [x.name_of for x in args if hasattr(x, "name_of")]
            if isinstance(found, cls) and names:
                found.name_of = "+".join(names)
            return found

    x, y = Named(t.ones(2), "x"), Named(t.zeros(2), "y")
    return (x + y).name_of, (x * 2).name_of, t.exp(y).name_of, x + y


@program
def what_is_heard(t):
    log = []
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(_logging(t, log))
    y = t.ones(2, 2)
    x + 1
    t.exp(x)
    x.relu()
    t.cat([y, x])
    t.nn.functional.linear(y, x)
    t.nn.functional.softmax(x, dim=1)
    x @ y
    x[0]
    x[0] = 1
    x.add_(1)
    t.where(x > 0, x, y)
    x.clone().detach()
    return log


@program
def subclasses_first(t):
    log = []

    class A(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(("A", [k.__name__ for k in types]))
            return super().__torch_function__(func, types, args, kwargs)

    class B(A):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(("B", [k.__name__ for k in types]))
            return super().__torch_function__(func, types, args, kwargs)

    class C(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(("C", [k.__name__ for k in types]))
            return NotImplemented

    x, y, z = (t.ones(2).as_subclass(k) for k in (A, B, C))
    return t.add(x, y), t.add(y, x), raised(t.add, z, x), raised(t.exp, z), [*log]


@program
def no_answers(t):
    class Silent(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl

    x = t.ones(2).as_subclass(Silent)
    p = t.nn.Parameter(t.ones(2))

    class Own(t.nn.Parameter):
        pass

    q = Own(t.ones(2))
    with t._C.DisableTorchFunctionSubclass():
        y = t.ones(2).as_subclass(_plain(t)) + 1
    return x, x + 1, t.exp(x), p + 1, q, q + 1, isinstance(q, t.nn.Parameter), y


def _duck(t, handled):
    class Diagonal:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(k, (t.Tensor, cls)) for k in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    return Diagonal


@program
def duck_arrays(t):
    handled = {}
    diagonal = _duck(t, handled)
    handled[t.mean] = lambda x: float(x.value) / x.n
    handled[t.add] = lambda x, y: ("add", type(x).__name__, type(y).__name__)
    handled[t.matmul] = lambda x, y: ("matmul", type(x).__name__)
    handled[t.cat] = lambda xs, dim=0: ("cat", len(xs), dim)
    handled[t.nn.functional.softmax] = lambda x, dim=None, **_: ("softmax", dim)
    handled[t.nn.functional.gelu] = lambda x, **_: ("gelu",)
    handled[t.einsum] = lambda s, *xs: ("einsum", s, len(xs))
    d = diagonal(4, 2)
    return (
        t.nn.functional.softmax(d, dim=1), t.mean(d), t.add(d, t.ones(2)), t.add(t.ones(2), d),
        t.matmul(d, d),
        t.cat([t.ones(2), d], dim=1), t.nn.functional.gelu(d), t.einsum("i,i", d, t.ones(2)),
        raised(t.exp, d),
        raised(t.sub, d, 1), raised(t.nn.functional.layer_norm, d, (2,)),
    )  # fmt: skip


@program
def what_objects_do_not_answer(t):
    handled = {}
    d, x, y = _duck(t, handled)(2, 3.0), t.ones(2), t.ones(2).as_subclass(_plain(t))

    class Everything(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "heard"

    with Everything():
        made = [t.tensor([1.0]), t.as_tensor(x), t.sparse_coo_tensor([[0]], [1.0], (2,))]
        plain = [t.finfo(t.float32).bits, t.Generator().initial_seed(), t.is_tensor(x)]
        t.manual_seed(3)
        t.set_printoptions(profile="default")
    return (
        [t.is_tensor(v) for v in (d, y, 3)], t.typename(d).rpartition(".")[2],
        t.as_tensor(y) is y, raised(t.tensor, d), raised(t.from_numpy, d), raised(t.manual_seed, d),
        raised(t.sparse_coo_tensor, d, d), raised(t.vmap(lambda v: v), d),
        raised(t.save, d, io.BytesIO()), made, plain,
    )  # fmt: skip


@program
def asking_about_overrides(t):
    o = t.overrides
    d, x = _duck(t, {})(1, 2), t.ones(2)
    y = x.as_subclass(_plain(t))

    def own(a, b=1):
        if o.has_torch_function((a,)):
            return o.handle_torch_function(own, (a,), a, b=b)
        return "plain"

    class Answers:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, len(args), kwargs

    return (
        [o.is_tensor_like(v) for v in (x, y, d, 3)], [o.has_torch_function((v,)) for v in (x, y, d, 3)],
        own(x), own(Answers(), b=4), raised(own, d), o.resolve_name(t.add),
        o.resolve_name(t.nn.functional.relu),
        o.resolve_name(t.Tensor.add_),
        o.is_tensor_method_or_property(t.Tensor.add_),
    )  # fmt: skip


@program
def modes_hear_all(t):
    log = []

    class Mode(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = t.ones(2)
    with Mode():
        y = x + 1
        t.exp(y)
        t.zeros(3)
        x.sum()
        t.cat([x, y])
        t.nn.functional.relu(x)
    x + 1
    return log, y


@program
def modes_change_results(t):
    class Doubling(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 2 if isinstance(found, t.Tensor) else found

    class Adding(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found + 1 if isinstance(found, t.Tensor) else found

    x = t.tensor([1.0, 2.0])
    with Doubling():
        a = x.exp()
        with Adding():
            b = x.abs()
    with Adding(), Doubling():
        c = x.abs()
    return a, b, c


@program
def a_mode_gives_factories_a_dtype(t):
    class Factories(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func in (t.ones, t.zeros, t.full):
                kwargs["dtype"] = t.float64
            return func(*args, **kwargs)

    with Factories():
        return t.ones(2), t.zeros(2, 3), t.full((2,), 7), t.tensor([1.0])


@program
def texts(t):
    x = t.tensor([1.0, 2.0]).as_subclass(_plain(t))
    return repr(x), str(x.requires_grad_()), repr(t.nn.Parameter(t.ones(2))), f"{x[0]}"[:5]
