"""A run that is made anew, natively, changed nothing before: what changes something happens once."""

import contextvars
import io
import os
import random
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim

THREADS, ERRORS = lamina.get_num_threads(), np.geterr()


class Dying:
    def __del__(self):
        pass


def world():
    """What the statements may change; made alike each time."""
    lamina.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    w = SimpleNamespace()
    w.x = lamina.arange(1.0, 4.0)
    w.p = lamina.arange(1.0, 4.0).requires_grad_()
    w.y = w.p * 2  # no leaf
    w.called = []
    w.hook = lambda grad: w.called.append("hook")
    w.net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    w.opt = optim.SGD(w.net.parameters(), lr=0.1, momentum=0.9)
    w.schedule = optim.lr_scheduler.StepLR(w.opt, 1)
    w.numbers, w.table, w.chosen = [3, 1, 2], {"a": 1}, {1, 2}
    w.array, w.bytes = np.arange(3.0), bytearray(b"abc")
    w.iterator, w.out = iter(range(9)), io.StringIO()
    w.variable = contextvars.ContextVar("variable", default=0)
    w.generator = (i for i in range(9))
    w.random = random.Random(0)
    return w


# What each statement changes, and how that is seen; `m` is the world.
STATEMENTS = [
    ("m.x.requires_grad_()", "(m.x.requires_grad, (m.x * 2).requires_grad)"),
    ("m.x.requires_grad = True", "(m.x.requires_grad, (m.x * 2).requires_grad)"),
    ("m.p.requires_grad_(False)", "(m.p.requires_grad, (m.p * 2).requires_grad)"),
    ("m.p.requires_grad = False", "m.p.requires_grad"),
    ("m.net.requires_grad_(False)", "[p.requires_grad for p in m.net.parameters()]"),
    ("m.net[0].weight.requires_grad_(False)", "m.net(m.x.expand(2, 3)).grad_fn is None"),
    ("m.p.register_hook(m.hook)", "len(m.called)"),
    ("m.y.register_hook(m.hook)", "len(m.called)"),
    ("m.p.register_post_accumulate_grad_hook(m.hook)", "len(m.called)"),
    ("m.y.retain_grad()", "m.y.retains_grad"),
    ("m.p.grad = lamina.ones(3)", "m.p.grad"),
    ("m.x.grad = lamina.ones(3)", "m.x.grad"),
    ("m.p.data = lamina.zeros(3)", "m.p.detach().clone()"),
    ("m.p.data.add_(1)", "m.p.detach().clone()"),
    ("m.x.data = lamina.zeros(5)", "m.x.shape"),
    ("m.x.add_(1)", "m.x.clone()"),
    ("m.x[0] = 7", "m.x.clone()"),
    ("m.x.unsqueeze_(0)", "m.x.shape"),
    ("m.x.resize_(2)", "m.x.shape"),
    ("m.x.set_(lamina.zeros(5))", "m.x.shape"),
    ("m.x.detach_()", "m.x.requires_grad"),
    ("m.y.detach_()", "m.y.requires_grad"),
    ("lamina.no_grad().__enter__()", "lamina.is_grad_enabled()"),
    ("lamina.set_grad_enabled(False)", "(m.p * 2).requires_grad"),
    ("lamina.set_default_dtype(lamina.float64)", "lamina.ones(1).dtype"),
    ("lamina.set_default_device('cpu')", "lamina.get_default_device()"),
    ("lamina.set_default_device('meta')", "lamina.ones(1).device.type"),
    ("lamina.autograd.set_detect_anomaly(True)", "lamina.is_anomaly_enabled()"),
    ("lamina.set_autocast_enabled('cpu', True)", "lamina.is_autocast_enabled('cpu')"),
    ("lamina.use_deterministic_algorithms(True)", "lamina.are_deterministic_algorithms_enabled()"),
    ("lamina.set_float32_matmul_precision('high')", "lamina.get_float32_matmul_precision()"),
    ("lamina.set_num_threads(1)", "lamina.get_num_threads()"),
    ("np.seterr(all='raise')", "np.geterr()"),
    ("np.set_printoptions(precision=2)", "repr(m.array / 3)"),
    ("random.seed(5)", "random.getstate()[1][0]"),
    ("os.environ['LAMINA_TEST_WORD'] = 'a'", "os.environ.get('LAMINA_TEST_WORD')"),
    ("sys.path.append('nowhere')", "len(sys.path)"),
    ("warnings.simplefilter('error')", "warnings.filters[0][0]"),
    ("lamina.set_printoptions(precision=2)", "repr(m.x / 3)"),
    ("lamina.manual_seed(5)", "lamina.initial_seed()"),
    ("lamina.rand(1)", "lamina.get_rng_state()"),
    ("random.random()", "random.getstate()[1][-1]"),
    ("np.random.rand()", "np.random.get_state()[2]"),
    ("m.random.random()", "m.random.getstate()[1][-1]"),
    ("random.shuffle(m.numbers)", "[*m.numbers]"),
    ("m.y.sum().backward()", "m.p.grad"),
    ("m.net(m.x.expand(2, 3))", "m.net[1].running_mean.clone(), m.net[1].num_batches_tracked.clone()"),
    ("m.net.eval()", "m.net[1].training"),
    ("m.net[1].training = False", "m.net[1].training"),
    ("m.net.register_forward_hook(lambda *a: None)", "len(m.net._forward_hooks)"),
    ("m.net.register_buffer('b', m.x)", "[*m.net._buffers]"),
    ("m.net.append(nn.ReLU())", "len(m.net)"),
    ("m.net[0].weight = nn.Parameter(lamina.zeros(3, 3))", "m.net[0].weight.sum().detach()"),
    ("m.net.zero_grad()", "[p.grad for p in m.net.parameters()]"),
    ("m.net.double()", "m.net[0].weight.dtype"),
    (
        "m.net.load_state_dict({k: v + 1 for k, v in m.net.state_dict().items()})",
        "m.net[0].bias.sum().detach()",
    ),
    ("nn.init.ones_(m.net[0].weight)", "m.net[0].weight.sum().detach()"),
    ("m.opt.param_groups[0]['lr'] *= 2", "m.opt.param_groups[0]['lr']"),
    ("m.schedule.step()", "m.opt.param_groups[0]['lr'], m.schedule.last_epoch"),
    ("m.opt.add_param_group({'params': [m.p]})", "len(m.opt.param_groups)"),
    ("m.opt.state[m.p]['n'] = 1", "len(m.opt.state)"),
    ("m.numbers.append(1)", "[*m.numbers]"),
    ("m.numbers.sort()", "[*m.numbers]"),
    ("m.table['b'] = 2", "{**m.table}"),
    ("m.chosen.add(5)", "sorted(m.chosen)"),
    ("m.new = getattr(m, 'new', 0) + 1", "getattr(m, 'new', 0)"),
    ("m.array[0] += 1", "m.array.tolist()"),
    ("m.bytes.append(1)", "bytes(m.bytes)"),
    ("next(m.iterator)", "m.iterator.__reduce__()[2]"),
    ("next(m.generator)", "m.generator.gi_frame.f_lasti"),
    ("m.out.write('a')", "m.out.getvalue()"),
    ("print('a', file=m.out)", "m.out.getvalue()"),
    ("m.variable.set(m.variable.get() + 1)", "m.variable.get()"),
]
CAUSES = ["sys._getframe()", "Dying()"]


def as_at_first():
    """The state of the process that the statements change, as it was."""
    lamina.set_default_device(None)
    lamina.autograd.set_detect_anomaly(False)
    lamina.set_autocast_enabled("cpu", False)
    lamina.use_deterministic_algorithms(False)
    lamina.set_float32_matmul_precision("highest")
    lamina.set_num_threads(THREADS)
    np.seterr(**ERRORS)
    np.set_printoptions(precision=8)
    os.environ.pop("LAMINA_TEST_WORD", None)
    sys.path[:] = [path for path in sys.path if path != "nowhere"]
    lamina.set_grad_enabled(True)
    lamina.set_default_dtype(lamina.float32)
    lamina.set_printoptions(profile="default")


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(("statement", "seen"), STATEMENTS, ids=[s for s, _ in STATEMENTS])
def test_what_changes_something_happens_once(statement, seen, cause):
    text = f"def f(m):\n    before = {seen}\n    {statement}\n    {cause}\n    return before, {seen}"
    ends = []
    for decorate in (lambda f: f, jit.trace):
        scope = {**globals()}
        exec(text, scope)
        m, f = world(), decorate(scope["f"])
        context = contextvars.copy_context()
        try:
            told = [context.run(_outcome, f, m) for _ in range(3)]
            told.append(context.run(_outcome, eval, seen, {**globals(), "m": m}))
        finally:
            as_at_first()
        (m.p * 1).sum().backward() if m.p.requires_grad else None
        m.y.sum().backward() if m.y.requires_grad and "m.y.sum" not in statement else None
        ends.append(repr((told, len(m.called))))
    assert ends[1] == ends[0]


def _outcome(f, *args):
    """What a call gives, or the class of what it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*args)
    except Exception as error:
        return type(error).__name__
