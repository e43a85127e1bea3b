"""NumPy arrays from outside: what becomes a tensor is an input, and who reads one sees what it holds."""

import math
import operator

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim


def drawn(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def network():
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


net = network()
held = {"batch": None}


class Buffer:
    pass


buffer = Buffer()


def act(obs):
    with lamina.no_grad():
        return net(lamina.from_numpy(obs).float().unsqueeze(0)).argmax(1).item()


def of_dtype(obs):
    return net(lamina.as_tensor(obs, dtype=lamina.float32)).detach()


def copied(obs):
    return lamina.tensor(obs), lamina.tensor(obs, dtype=lamina.float64)


def from_a_dict(obs):
    held["batch"] = obs
    return lamina.as_tensor(held["batch"]) * 2


def twice(obs):
    x = lamina.from_numpy(obs)
    return x + lamina.from_numpy(obs) * x


def with_gradient(obs):
    x = lamina.tensor(obs).requires_grad_()
    net(x).sum().backward()
    return x.grad * 1


def of_an_object(obs):
    return lamina.as_tensor(buffer.kept) + lamina.as_tensor(obs)


SERVED = [act, of_dtype, copied, from_a_dict, twice, with_gradient, of_an_object]


def same(wanted, found):
    if isinstance(wanted, tuple):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    if isinstance(wanted, lamina.Tensor):
        return wanted.dtype is found.dtype and lamina.allclose(wanted, found, atol=1e-6)
    return wanted == found


@pytest.mark.parametrize("function", SERVED, ids=lambda f: f.__name__)
def test_arrays_that_become_tensors_are_inputs(function):
    traced = jit.trace(function)
    for seed in range(10):
        buffer.kept = drawn(seed + 100, 4)
        net.zero_grad()
        wanted = function(drawn(seed, 4))
        net.zero_grad()
        assert same(wanted, traced(drawn(seed, 4)))
    assert traced.counts()["served"] >= 6, traced.explain()


def test_a_step_on_a_batch_of_arrays():
    told = []
    for trace in (lambda f: f, jit.trace):
        model = network()
        optimizer = optim.Adam(model.parameters())

        def step(batch, model=model, optimizer=optimizer):
            x, at = lamina.as_tensor(batch["obs"], dtype=lamina.float32), lamina.from_numpy(batch["action"])
            value = model(x).gather(1, at[:, None]).squeeze(1)
            loss = (value - lamina.from_numpy(batch["reward"]).float()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        step = trace(step)
        batches = [{"obs": drawn(n, 6, 4, dtype=np.float64), "reward": drawn(n + 50, 6),
                    "action": np.arange(6) * n % 3} for n in range(12)]  # fmt: skip
        told.append([step(batch) for batch in batches])
    assert np.allclose(*told, rtol=1e-4) and step.counts()["served"] >= 7, step.explain()


def returned(obs):
    return lamina.from_numpy(obs)


def written(obs):
    return lamina.from_numpy(obs).add_(1).sum()


def written_copy(obs):
    return lamina.tensor(obs).add_(1)


def view_returned(obs):
    return lamina.as_tensor(obs)[1:]


def kept(obs):
    buffer.kept = lamina.from_numpy(obs)
    return buffer.kept * 2


@pytest.mark.parametrize(
    "function", [returned, written, written_copy, view_returned, kept], ids=lambda f: f.__name__
)
def test_memory_is_shared_as_plainly(function):
    """What the tensor over an array shows, and what a write to one leaves in the other; of a copy nothing."""
    told = []
    for call in (function, jit.trace(function)):
        found = []
        for seed in range(6):
            obs = drawn(seed, 4)
            result = call(obs)
            found.append((result.tolist(), obs.tolist()))
            obs += 1
            found.append(result.tolist())
            if isinstance(getattr(buffer, "kept", None), lamina.Tensor) and function is kept:
                found.append(buffer.kept.tolist())
        told.append(found)
    assert told[0] == told[1]


def test_arrays_of_other_types_and_layouts():
    traced = jit.trace(lambda a: lamina.as_tensor(a) * 2)
    base = np.arange(24.0).reshape(4, 6)
    readonly = base.copy()
    readonly.flags.writeable = False
    kinds = [
        base, base.astype("f4"), base.T, base[::2], base[:, ::2], base.astype(int), base.astype(bool),
        base[:2], base.astype(">f8"), np.float32(3), np.array(5.0), base[:0], np.arange(24, dtype="u2"),
        base.astype("f2"), base.view(np.matrix), base.astype(complex),
    ]  # fmt: skip
    for _ in range(3):
        for kind in kinds:
            told = []
            for call in (lambda a: lamina.as_tensor(a) * 2, traced):
                try:
                    told.append(str(call(kind + 0 if isinstance(kind, np.ndarray) else kind)))
                except Exception as error:
                    told.append((type(error), str(error)))
            assert told[0] == told[1]
    with pytest.warns(UserWarning, match="not writable"):
        assert traced(readonly).tolist() == (base * 2).tolist()


def test_an_array_that_is_a_written_tensors_memory():
    told = []
    for trace in (lambda f: f, jit.trace):
        array = np.zeros(3, np.float32)
        x = lamina.from_numpy(array)

        def step(x, array):
            before = lamina.as_tensor(array) * 1
            x.add_(1)
            return before + lamina.as_tensor(array)

        step, found = trace(step), []
        for number in range(8):
            shared = array if number % 2 else np.ones(3, np.float32)
            found.append(step(x, shared).tolist())
        told.append((found, array.tolist()))
    assert told[0] == told[1]


def test_contents_that_are_read_after_a_write():
    told = []
    for trace in (lambda f: f, jit.trace):
        array = np.zeros(3, np.float32)
        x = lamina.from_numpy(array)

        def step(x, array):
            x.add_(1)
            return x * float(array[0])

        step = trace(step)
        told.append([step(x, array).tolist() for _ in range(6)])
    assert told[0] == told[1]


READS = {
    "item": lambda a: float(a[0]),
    "slice": lambda a: a[1:3].tolist(),
    "sum": lambda a: float(a.sum()),
    "shape": lambda a: a.shape,
    "len": len,
    "tolist": lambda a: a.tolist(),
    "text": str,
    "repr": repr,
    "format": lambda a: f"{a}",
    "percent": lambda a: "%s|%s" % (a, 1),  # noqa: UP031 - the way is what is tested
    "iterated": lambda a: [float(v) for v in a],
    "unpacked": lambda a: [*a][0].item(),
    "starred": lambda a: max(*a).item(),
    "sorted": lambda a: sorted(a)[0].item(),
    "compared": lambda a: bool((a > 0).all()),
    "equal": lambda a: (a == a[0]).tolist(),
    "any": lambda a: bool(a.any()),
    "in": lambda a: 0.0 in a,
    "added": lambda a: (a + 1).tolist(),
    "from the right": lambda a: (2 * a).tolist(),
    "negated": lambda a: (-a).tolist(),
    "matmul": lambda a: float(a @ a),
    "ufunc": lambda a: np.exp(a).tolist(),
    "stacked": lambda a: np.stack([a, a]).tolist(),
    "concatenated": lambda a: np.concatenate([a, a]).tolist(),
    "max": lambda a: max(a).item(),
    "builtin sum": lambda a: float(sum(a)),
    "numpy sum": lambda a: float(np.sum(a)),
    "where": lambda a: np.where(a > 0)[0].tolist(),
    "argmax": lambda a: int(a.argmax()),
    "bytes": lambda a: a.tobytes(),
    "copied": lambda a: a.copy().tolist(),
    "listed": lambda a: [v.item() for v in list(a)],
    "tupled": lambda a: tuple(a)[0].item(),
    "flat": lambda a: [v.item() for v in a.flat],
    "T": lambda a: a.T.tolist(),
    "real": lambda a: a.real.tolist(),
    "astype": lambda a: a.astype(int).tolist(),
    "reshaped": lambda a: a.reshape(2, 2).tolist(),
    "zip": lambda a: [float(x * y) for x, y in zip(a, a)],
    "enumerated": lambda a: [n * float(v) for n, v in enumerate(a)],
    "map": lambda a: [*map(float, a)],
    "filter": lambda a: [v.item() for v in filter(None, a)],
    "reversed": lambda a: [v.item() for v in reversed(a)],
    "operator": lambda a: operator.getitem(a, 0).item(),
    "math": lambda a: math.floor(a[0]),
    "isclose": lambda a: bool(np.isclose(a, 0).any()),
    "asarray": lambda a: np.asarray(a).tolist(),
    "array": lambda a: np.array([a, a]).tolist(),
    "list of it": lambda a: str([a]),
    "in a dict": lambda a: str({"a": a}),
    "joined": lambda a: ",".join(map(str, a)),
    "round": lambda a: np.round(a, 1).tolist(),
    "index": lambda a: [10, 20, 30][int(a[0] > 0)],
    "fancy": lambda a: a[[0, 2]].tolist(),
    "masked": lambda a: a[a > 0].tolist(),
    "pointer": lambda a: a.nbytes,
    "dtype": lambda a: str(a.dtype),
    "tensor of a part": lambda a: lamina.tensor(a[:2]).tolist(),
    "tensor of a list": lambda a: lamina.tensor(np.array([a, a])).tolist(),
    "tensor times": lambda a: (lamina.ones(4) * lamina.tensor(a.tolist())).tolist(),
    "stack of tensors": lambda a: lamina.stack([lamina.as_tensor(a)] * 2).tolist(),
    "clip": lambda a: np.clip(a, 0, 1).tolist(),
    "match": lambda a: [float(p) for p, *_ in [a]],
    "condition": lambda a: 1 if a[0] > 0 else 2,
    "mean": lambda a: round(float(a.mean()), 3),
    "dot": lambda a: float(np.dot(a, a)),
    "linalg": lambda a: float(np.linalg.norm(a)),
    "memory": lambda a: memoryview(a)[0],
    "hash": lambda a: hash(a.tobytes()),
    "both": lambda a: (lamina.from_numpy(a) * float(a[1])).tolist(),
    "asserted": lambda a: np.testing.assert_array_equal(a, a),
}


@pytest.mark.parametrize("name", READS)
def test_what_reads_an_array_sees_what_it_holds(name):
    """Of one type and shape each time: an argument, a member, an item; now and then one holds the same."""
    read = READS[name]

    def function(a, x):
        first = lamina.as_tensor(a)
        return x + first.sum(), read(a), read(buffer.other), read(held["batch"])

    told = []
    for call in (function, jit.trace(function)):
        found = []
        for seed in (1, 2, 3, 3, 4, 5, 6, 6, 1, 7, 8, 9):
            buffer.other, held["batch"] = drawn(seed + 20, 4), drawn(seed // 2, 4)
            x, *rest = call(drawn(seed, 4), lamina.ones(1))
            found.append((round(x.item(), 4), *rest))
        told.append(found)
    assert str(told[0]) == str(told[1])
