"""Programs that tracing once got wrong, by the fault: each was found by `fuzz` and made small.

A text is a module's: state, a traced `f`, and `calls`, which yields the arguments of each call and changes
things in between (see `fuzz`; its prelude stands before each).
"""

CASES = {
    "a tensor in a list that is an argument": """
@trace
def f(x, held):
    return held[0] * x
def calls():
    x = lamina.tensor([1.0, 2.0, 3.0])
    yield (x, [x]), {}
    yield (x, [x]), {}
    yield (x, [x + 1]), {}
""",
    "a generator is dropped inside of try": """
def both(t):
    try:
        yield t + 1
        yield t * 2
    finally:
        log.append("closed")
@trace
def f(x):
    steps = both(x)
    y = next(steps)
    log.append("dropping")
    steps = None
    log.append("dropped")
    return y
def calls():
    yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
    yield (lamina.tensor([2.0, 2.0, 3.0]),), {}
""",
    "a generator is left by break": """
def both(t):
    try:
        yield t + 1
        yield t * 2
    finally:
        log.append("closed")
@trace
def f(x):
    for y in both(x):
        if y.sum() > 0:
            break
    return y
def calls():
    yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
    yield (lamina.tensor([-2.0, -2.0, -3.0]),), {}
    yield (lamina.tensor([2.0, 2.0, 3.0]),), {}
""",
    "a generator is closed by the end of the function": """
def both(t):
    try:
        k = yield t + 1
        log.append(k)
        yield t * 2
    finally:
        log.append("closed")
@trace
def f(x):
    steps = both(x)
    y = next(steps)
    return y
def calls():
    yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
    yield (lamina.tensor([2.0, 2.0, 3.0]),), {}
""",
    "a number of NumPy's in an attribute is counted up": """
@trace
def f(obj):
    obj.x += 1
    return obj.x
def calls():
    obj = types.SimpleNamespace(x=np.float64(0))
    for _ in range(4):
        yield (obj,), {}
""",
    "a number of NumPy's is read and added": """
class Pair(typing.NamedTuple):
    first: float
pair = Pair(1)
@trace
def f(n):
    n += pair.first
    return (n,)
def calls():
    global pair
    yield (np.float64(0),), {}
    yield (np.float64(0),), {}
    pair = Pair(2)
    yield (np.float64(1),), {}
""",
    "a traced function changes the learning rate of its own step": """
p = lamina.tensor(1.0, requires_grad=True)
opt = optim.SGD([p], lr=0.5, momentum=0.5)
@trace
def f():
    opt.param_groups[0]['lr'] *= 0.5
    opt.zero_grad()
    (p * p).sum().backward()
    opt.step()
def calls():
    for _ in range(8):
        yield (), {}
""",
    "an attribute of a module is written": """
shelf = types.ModuleType('shelf')
shelf.rate = 1.0
@trace
def f(x):
    shelf.calls = getattr(shelf, 'calls', 0) + 1
    return x * shelf.rate
def calls():
    x = lamina.tensor([1.0, 2.0, 3.0])
    yield (x,), {}
    yield (x,), {}
    shelf.rate = 2.0
    yield (x,), {}
""",
    "a detached alias of a captured tensor requires gradients": """
w = lamina.tensor([1.0, 2.0, 3.0])
@trace
def f():
    t = w.detach().float().requires_grad_()
    return t / 3
def calls():
    yield (), {}
    yield (), {}
    w.add_(1)
    yield (), {}
""",
    "a gradient is dropped after a question of it": """
p = lamina.tensor([1.0, 1.0, 0.5], requires_grad=True)
@trace
def f():
    total = p.grad.sum().item()
    p.grad = None
    return total
def calls():
    for by in (1.0, 1.0, 2.0, 1.0):
        p.grad = lamina.full((3,), by)
        yield (), {}
""",
    "a backward pass, then another forward": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(lamina.tensor([1.0, 2.0, 3.0]))
    def forward(self, t):
        return t * self.weight
net = Net()
@trace
def f(x, *rest):
    net(x).sum().backward()
    return net(x + 1)
def calls():
    x = lamina.tensor([1.0, 2.0, 3.0])
    yield (x,), {}
    yield (x, 1), {}
    yield (x, 1), {}
    net.weight.data.add_(1)
    yield (x, 1), {}
""",
    "gradients are zeroed in the function that makes them": """
p = lamina.tensor([1.0, 1.0, 0.5], requires_grad=True)
opt = optim.SGD([p], lr=0.5, momentum=0.5)
@trace
def f(x):
    (p * x).sum().backward()
    log.append(float(p.grad.sum()))
    opt.zero_grad()
def calls():
    x = lamina.tensor([1.0, 2.0, 3.0])
    p.grad = lamina.ones(3)
    yield (x,), {}
    yield (x,), {}
    p.grad = lamina.ones(3)
    yield (x,), {}
""",
    "the kind of an iterator": """
kinds = [list, tuple]
@trace
def f(x):
    made = kinds[0]([1, 2])
    return type(iter(made)).__name__, x + next(iter(made))
def calls():
    x = lamina.tensor([1.0, 2.0, 3.0])
    yield (x,), {}
    yield (x,), {}
    kinds.reverse()
    yield (x,), {}
""",
    "a write through data into a tensor that is not contiguous": """
@trace
def f(x):
    x.data.sub_(1)
def calls():
    x = lamina.arange(6.0).reshape(3, 2).t()
    yield (x,), {}
    yield (x,), {}
    y = lamina.arange(6.0)[::2]
    yield (y,), {}
    yield (y,), {}
""",
    "a generator is suspended where the function raises": """
def both(t):
    try:
        k = yield t
        log.append(k)
        yield t + 1
    finally:
        log.append("closed")
@trace
def f(x):
    steps = both(x)
    y = next(steps)
    log.append(float(y.sum()))
    return nothing
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([3.0, 2.0]),), {}
""",
    "a generator is suspended where a loop raises": """
def both(t):
    try:
        k = yield t
        log.append(k)
        yield t + 1
    finally:
        log.append("closed")
@trace
def f(x):
    for y in both(x):
        log.append(float(y.sum()))
        raise ValueError('v')
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([3.0, 2.0]),), {}
""",
    "a generator is suspended where an exception is caught": """
def both(t):
    try:
        k = yield t
        log.append(k)
        yield t + 1
    finally:
        log.append("closed")
@trace
def f(x):
    try:
        steps = both(x)
        next(steps)
        raise KeyError
    except KeyError:
        log.append("caught")
    return x + 1
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([3.0, 2.0]),), {}
""",
    "a generator expression over a generator is left by any": """
def both(t):
    try:
        k = yield t
        log.append(k)
        yield t + 1
    finally:
        log.append("closed")
@trace
def f(x):
    return any(k is not None for k in both(x)), x + 1
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([3.0, 2.0]),), {}
""",
    "a generator is left by zip": """
def both(t):
    try:
        k = yield t
        log.append(k)
        yield t + 1
    finally:
        log.append("closed")
@trace
def f(x):
    for a, b in zip(both(x), [1]):
        log.append(b)
    return a + 1
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([3.0, 2.0]),), {}
""",
    "a slot that was never set is read": """
class Slotted:
    __slots__ = ("x", "y")
slotted = Slotted()
@trace
def f(t):
    if t.sum() > 0:
        t = t + slotted.y
    return t
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    slotted.y = 3
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([-1.0, -2.0]),), {}
""",
    "a generator is left by break after a question": """
def both(t):
    try:
        k = yield t
        log.append(k)
    finally:
        log.append("closed")
@trace
def f(x):
    if x.sum() > 0:
        for y in both(x):
            log.append(float(y.sum()))
            break
    steps = both(x + 1)
    y = next(steps)
    if y.sum() > 0:
        log.append("more")
    return y
def calls():
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([-1.0, -2.0]),), {}
    yield (lamina.tensor([1.0, 2.0]),), {}
    yield (lamina.tensor([-0.5, 0.0]),), {}
""",
    "a sum of a parameter is made an integer": """
p = lamina.tensor([1.0, 2.5, -1.0], requires_grad=True)
@trace
def f():
    return p.sum().to(lamina.int64)
def calls():
    yield (), {}
    yield (), {}
    p.data.add_(1)
    yield (), {}
""",
    "a buffer is assigned, then the library reads the module": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(lamina.ones(2))
        self.register_buffer("seen", lamina.zeros(3))
net = Net()
@trace
def f(x):
    net.seen = nn.functional.dropout(x.float()).detach()
    return net.get_parameter("weight").sum()
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0, 3.0]),), {}
""",
    "a function that keeps changing is asked if it is another": """
def double(t):
    return t * 2
def negate(t):
    return -t
act = double
@trace
def f(x):
    global act
    act = negate if act is double else double
    return act(x)
def calls():
    for _ in range(12):
        yield (lamina.tensor([0.5, 2.0, 3.0]),), {}
""",
    "a gradient is the memory of its parameter": """
p = lamina.tensor([1.0, 2.0], requires_grad=True)
p.grad = p.detach()
@trace
def f(x):
    p.grad.mul_(x)
    return p * 3
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "a cached property is dropped between calls": """
class Held:
    @functools.cached_property
    def cached(self):
        log.append("computed")
        return 2.0
held = Held()
@trace
def f(x, word):
    log.append(word)
    return x * held.cached
def calls():
    for step in range(8):
        if step in (2, 5):
            vars(held).pop("cached")
        yield (lamina.tensor([0.5, 2.0]), "called" if step else "first"), {}
""",
    "an attribute is deleted where __getattr__ computes it": """
class Held:
    def __getattr__(self, name):
        log.append(name)
        return 3.0
held = Held()
held.size = 2.0
@trace
def f(x):
    log.append("called")
    return x * held.size
def calls():
    for step in range(8):
        if step == 2:
            del held.size
        if step == 4:
            held.size = 2.0
        if step == 6:
            del held.size
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "a buffer is the memory of a parameter, detached": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", lamina.zeros(2))
net = Net()
p = lamina.tensor([1.0, 2.0], requires_grad=True)
@trace
def f(x):
    net.eval()
    net.seen = p.detach()
    return p - x
def calls():
    for _ in range(6):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "a slot is emptied where __getattr__ computes it": """
class Held:
    __slots__ = ("size",)
    def __getattr__(self, name):
        log.append(name)
        return 3.0
held = Held()
held.size = 2.0
@trace
def f(x):
    log.append("called")
    return x * held.size
def calls():
    for step in range(8):
        if step in (2, 6):
            del held.size
        if step == 4:
            held.size = 2.0
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "an item goes which a factory would make": """
import collections
def factory():
    log.append("made")
    return 3.0
table = collections.defaultdict(factory, size=2.0)
@trace
def f(x, k):
    log.append(k)
    return x * table["size"]
def calls():
    for step in range(10):
        if step in (2, 6):
            del table["size"]
        if step == 4:
            table["size"] = 2.0
        yield (lamina.tensor([0.5, 2.0]), "one" if step else "two"), {}
""",
    "an item goes which __missing__ would make": """
class Table(dict):
    def __missing__(self, key):
        log.append(key)
        return 3.0
table = Table(size=2.0)
@trace
def f(x, k):
    log.append(k)
    return x * table["size"]
def calls():
    for step in range(10):
        if step in (2, 6):
            del table["size"]
        if step == 4:
            table["size"] = 2.0
        yield (lamina.tensor([0.5, 2.0]), "one" if step else "two"), {}
""",
    "a generator is suspended where a call raises after a context manager ended": """
@contextlib.contextmanager
def noted(name):
    yield name
def both(t):
    try:
        yield t
    finally:
        log.append("closed")
@trace
def f(x):
    with noted("one"):
        pass
    left = both(x)
    log.append(float(next(left).sum()))
    return log.missing
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "a generator is suspended where an error follows __getattr__": """
def both(t):
    try:
        yield t
    finally:
        log.append("closed")
class Dynamic:
    def __getattr__(self, name):
        return None
dynamic = Dynamic()
@trace
def f(x):
    left = both(x)
    log.append(float(next(left).sum()))
    return dynamic.scale(x)
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "a dictionary is read on after what refuses the run": """
w = lamina.tensor(1.0, requires_grad=True)
table = {"w": w, "m": 3}
w = w.detach()
@trace
def f(x):
    total = w * x
    for name, value in table.items():
        total = total + value
    return total
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "an error is thrown into a generator, then a call raises": """
def inner():
    try:
        yield 2
    except ValueError:
        yield 3
def both(t):
    try:
        yield t
    finally:
        log.append("closed")
@trace
def f(x):
    first = inner()
    next(first)
    log.append(first.throw(ValueError))
    left = both(x)
    log.append(float(next(left).sum()))
    return log.missing
def calls():
    for _ in range(4):
        yield (lamina.tensor([0.5, 2.0]),), {}
""",
    "an int grows until Python refuses to write it in decimal": """
table = {"k": 2 ** (1 << 12), "kept": 3 ** 9000}
class Config:
    pass
config = Config()
@trace
def f(x, n):
    table["k"] = table["k"] * table["k"]
    config.last = {table["kept"]: table["k"] + n, "n": n}
    return x + n % 7
def calls():
    for k in range(8):
        if k == 5:
            table["kept"] += 1
        yield (lamina.tensor([0.5, 2.0]), 10 ** 5000 + k), {}
""",
    "variables die in their order where a function returns": """
class Spoken:
    def __init__(self, n):
        self.n = n
    def __del__(self):
        log.append(self.n)
@trace
def f(x):
    log.append("begins")
    b, a, c = Spoken("b"), Spoken("a"), Spoken("c")
    d = lambda: a
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "an argument dies where the callee deletes it": """
class Spoken:
    def __del__(self):
        log.append("died")
def given(o, *rest, named=None):
    o = named = None
    log.append("given")
@trace
def f(x):
    log.append("begins")
    given(Spoken(), named=Spoken())
    log.append("between")
    given(*[Spoken()])
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "an argument of a frame that runs when it is refused dies in time": """
class Spoken:
    def __del__(self):
        log.append("died")
spoken = []
def given(o):
    log.append("given")
    spoken.clear()
    del o
    log.append("deleted")
@trace
def f(x):
    given(spoken[0])
    return x * len(log)
def calls():
    for _ in range(3):
        spoken.append(Spoken())
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "what a list held that the run copied dies in time": """
class Spoken:
    def __del__(self):
        log.append("died")
spoken = [Spoken()]
@trace
def f(x):
    held = [*spoken]
    spoken.append(Spoken())
    spoken.pop(0)
    held = None
    log.append("between")
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a class gets a __del__ whose objects a replay drops": """
class Quiet:
    pass
held = [Quiet(), Quiet(), Quiet(), Quiet()]
@trace
def f(x):
    held[:] = held[1:]
    return x * len(log)
def calls():
    for n in range(4):
        if n == 2:
            Quiet.__del__ = lambda self: log.append("died")
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a class gets a __del__ whose objects a replay would make": """
class Quiet:
    n = 1
@trace
def f(x):
    return x * Quiet().n + len(log)
def calls():
    for n in range(4):
        if n == 2:
            Quiet.__del__ = lambda self: log.append("died")
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a generator from outside is closed when its global is written": """
def steps(n):
    try:
        yield n
        yield n + 1
    finally:
        log.append("closed")
gen = steps(2.0)
@trace
def f(x):
    global gen
    gen = steps(next(gen))
    log.append("written")
    return x * len(log)
def calls():
    for _ in range(4):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "what was yielded dies before the generator goes on": """
class Spoken:
    def __del__(self):
        log.append("died")
def steps():
    log.append("begins")
    yield Spoken()
    log.append("goes on")
@trace
def f(x):
    for o in steps():
        o = None
        log.append("looked at")
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a suspended generator is closed with the list that holds it": """
def steps(n):
    try:
        yield n
        yield n + 1
    finally:
        log.append("closed")
def used(held, by):
    held = held[0] if by else None
    log.append("used")
    return 2
@trace
def f(x):
    held = [steps(1)]
    log.append(next(held[0]))
    held = None
    log.append("dropped")
    table = {"a": (steps(3),)}
    log.append(next(table["a"][0]))
    del table["a"]
    log.append("deleted")
    made = steps(5)
    log.append(next(made))
    inner = lambda: made
    inner = made = None
    log.append("unbound")
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a suspended generator that was an argument is closed in the callee": """
def steps(n):
    try:
        yield n
        yield n + 1
    finally:
        log.append("closed")
def used(o, *, named):
    log.append((next(o), next(named)))
    o = None
    log.append("one")
    named = None
    log.append("two")
    return 2
@trace
def f(x):
    return x * used(steps(1), named=steps(2))
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "an error that is kept keeps the variables of its frames": """
class Spoken:
    def __init__(self, n):
        self.n = n
    def __del__(self):
        log.append(self.n)
errors = []
def failing(n):
    held, other = Spoken(n), Spoken(-n)
    try:
        raise ValueError(n)
    except ValueError as error:
        errors.append(error)
    log.append("kept")
@trace
def f(x):
    log.append("begins")
    failing(1)
    log.append("returned")
    errors.clear()
    log.append("cleared")
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "what guards found at a call dies in time": """
class Spoken:
    def __del__(self):
        log.append("died")
@trace
def f(x, held):
    log.append(held.o.n * int(id(held) > 0))
    held.o = None
    log.append("written")
    return x * len(log)
def calls():
    for _ in range(4):
        held = types.SimpleNamespace(o=Spoken())
        held.o.n = 1
        yield (lamina.tensor([1.0, 2.0, 3.0]), held), {}
""",
    "a tensor is let go of to which there is a finalizer": """
import weakref
held = types.SimpleNamespace(t=None)
@trace
def f(x):
    y = held.t * 2
    held.t = None
    log.append("written")
    return y * len(log)
def calls():
    for _ in range(4):
        held.t = lamina.tensor([1.0, 2.0])
        weakref.finalize(held.t, log.append, "died").atexit = False
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "a buffer that the run assigned is read as a whole": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", lamina.zeros(()))
        self.factor = 2.0
net = Net()
@trace
def f(x):
    net.seen = x.detach()
    net.factor = net.state_dict()
    return net.seen
def calls():
    x = lamina.tensor(1.0)
    yield (x,), {}
    yield (x,), {}
    yield (x,), {}
""",
    "a list that holds itself is looked for": """
held = []
@trace
def f(x):
    log.append(held in [1, held])
    return x * len({1: held}.values())
def calls():
    held.append(held)
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
    "an error that is kept keeps the frames that called the one it was caught in": """
class Spoken:
    def __del__(self):
        log.append("died")
errors = []
def failing():
    try:
        raise ValueError
    except ValueError as error:
        errors.append(error)
def between():
    o = Spoken()
    failing()
@trace
def f(x):
    log.append("begins")
    between()
    log.append("returned")
    errors.clear()
    log.append("cleared")
    return x * len(log)
def calls():
    for _ in range(3):
        yield (lamina.tensor([1.0, 2.0, 3.0]),), {}
""",
}
