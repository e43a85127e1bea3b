"""The parts of state that random programs are made of: see `fuzz_parts`."""

from __future__ import annotations

from fuzz_parts import Part

PARTS = (
    Part(
        "numbers",
        """\
scale = 2.0
count = 0
flag = True
name = 'relu'
shape = (3,)
""",
        {
            "N": ("scale", "count", "scale", "shape[0]",),
            "B": ("flag", "flag", "name == 'relu'", "count > 2", "'scale' in globals()",),
            "S": ("name",),
            "T": ("<T> * scale", "lamina.ones(shape)",),
            "E": ("flag", "shape",),
        },
        (
            "count += 1", "scale = <N>", "flag = not flag", "name = <S>", "count += <N>",
            "scale, count = count, scale", "if count % 3 == 2:\n    <BODY>",
            "for <newN> in shape:\n    <BODY>", "globals()['count'] = <N>",
        ),
        (
            "scale = <V>", "scale = <V>", "flag = False", "flag = True", "flag = <V>", "count = <V>",
            "name = <W>", "G.pop('scale', None)", "G['scale'] = <V>", "shape = (1,)", "shape = [3]",
            "shape = (3,)",
        ),
    ),
    Part(
        "lists",
        """\
items = [1, 2.0, -1]
nested = [[1, 2], [0.5]]
""",
        {
            "N": (
                "items[0]", "items[-1]", "len(items)", "sum(items)", "nested[0][1]",
                "max(items, default=0)", "items.index(<N>)",
            ),
            "L": (
                "items", "nested[0]", "items[1:]", "[v for k in nested for v in k]", "items.copy()",
                "items + nested[1]",
            ),
            "B": (
                "<N> in items", "items == [1, 2, -1]", "items is nested[0]", "items",
                "isinstance(items, list)",
            ),
            "E": ("items", "nested",),
        },
        (
            "items.append(<N>)", "items[0] = <N>", "items[:] = <L>[:3]", "items.pop()",
            "items.insert(0, <N>)", "items.reverse()", "items.sort(key=lambda v: -v)",
            "nested[0].append(<N>)", "del items[0]", "items += [<N>]", "items = [*items, <N>][-4:]",
            "items.remove(<N>)", "items.clear()", "items.extend(<L>[:2])", "items = items[:4]",
            "nested[<I>] = <L>", "del nested[0][2:]", "<newL:1> = items\n<1>.append(<N>)",
            "for <newL:1> in nested:\n    log.append(len(<1>))", "(items, nested[0])[<B>].append(<N>)",
            "items[1:2] = <L>[:2]", "items[0], items[-1] = items[-1], items[0]",
        ),
        (
            "items = list(items)", "items.append(<V>)", "items[:1] = [<V>]", "items.reverse()",
            "items = [<V>, <V>]", "nested[0] = items", "items = []", "nested = copy.deepcopy(nested)",
            "items = tuple(items)", "del items[3:]", "nested[0] = nested[-1]", "nested[1] = [<V>, <V>]",
            "items = nested[0]",
        ),
    ),
    Part(
        "dicts",
        """\
table = {'a': 1, 'b': 2.0}
config = {'deep': {'k': [1, 2]}, 'lr': 0.5}
""",
        {
            "N": (
                "table['a']", "table.get('c', 0)", "len(table)", "config['deep']['k'][0]", "config['lr']",
                "table[<K>]", "config.get('momentum', 0)",
            ),
            "D": ("table", "table.copy()",),
            "L": ("list(table.values())", "config['deep']['k']",),
            "B": ("<S> in table", "'c' in table", "'lr' not in config", "table == {'b': 2, 'a': 1}",),
            "S": (
                "'-'.join(table)", "next(iter(table), '')", "str(list(table.items()))",
                "max(table, key=table.get)",
            ),
            "E": ("table", "list(table.items())", "config['deep']",),
        },
        (
            "table['c'] = <N>", "table.setdefault('c', <N>)", "table.update(a=<N>)",
            "table.pop('b', None)", "del table['a']", "table = {**table, 'b': <N>}",
            "config['deep']['k'].append(<N>)", "config['lr'] *= 0.5", "config['lr'] = <N>",
            "table[<K>] = <N>", "table.popitem()", "table.clear()", "table |= {'a': <N>}",
            "for <newS:1> in list(table):\n    table[<1>] = <N>", "del config['deep']['k'][3:]",
            "config['deep'] = {'k': <L>}", "table[<K>] += 1", "config.setdefault('seen', []).append(<N>)",
            "table['a'], table['b'] = <N>, <N>",
        ),
        (
            "table = dict(reversed(table.items()))", "table = dict(table)", "table['c'] = <V>",
            "table.pop('c', None)", "table['a'] = table.pop('a', 1)", "config['deep'] = {'k': [1, 2]}",
            "config['lr'] = <V>", "table['a'] = <V>", "table = {'a': <V>, 'b': <V>}",
            "config = copy.deepcopy(config)", "table = collections.OrderedDict(table)",
            "config['deep']['k'] = [<V>, <V>]", "table = {'b': 2.0, 'a': 1}", "config.pop('seen', None)",
            "config['seen'] = log",
        ),
    ),
    Part(
        "collections",
        """\
queue = collections.deque([1, 2], maxlen=4)
tally = collections.Counter()
groups = collections.defaultdict(list)
seen = {1, 2}
pairs = collections.ChainMap({'a': 1}, {'b': 2})
""",
        {
            "N": (
                "queue[0]", "len(queue)", "tally['f']", "len(seen)", "sum(tally.values())", "pairs['a']",
                "len(groups[<I>])", "max(seen, default=0)",
            ),
            "B": ("<I> in seen", "<I> in queue", "<I> in groups", "{1} <= seen", "queue",),
            "L": ("list(queue)", "sorted(seen)", "groups[<I>]",),
            "E": ("queue", "seen", "tally", "groups", "frozenset(seen)",),
        },
        (
            "queue.append(<N>)", "queue.popleft()", "queue.rotate(1)", "tally['f'] += 1",
            "tally.update(['f', 'g'])", "groups[<I>].append(<N>)", "seen.add(<N>)", "seen.discard(<N>)",
            "seen |= {<I>}", "for <newN> in queue:\n    <BODY>", "pairs['a'] = <N>",
            "seen = seen & {1, 2, 3}", "for <newN> in sorted(seen):\n    <BODY>",
        ),
        (
            "queue.append(<V>)", "queue = collections.deque(queue, maxlen=4)", "tally.clear()",
            "groups.pop(0, None)", "seen = set(seen)", "seen = {1}", "seen = {2, 1}", "seen.add(<I>)",
            "queue.clear()", "groups.default_factory = None", "groups.default_factory = list",
            "pairs = pairs.new_child({'a': <V>})", "queue.rotate(1)",
        ),
    ),
    Part(
        "objects",
        """\
class Plain:
    shared = 2
    def __init__(self, x, y=1):
        self.x = x
        self.y = y
        self.t = lamina.tensor([1.0, 0.5, -1.0])
    def bump(self, by=1):
        self.x += by
        return self
    def scaled(self, t):
        return t * self.x + self.shared
    @property
    def twice(self):
        return self.x * 2
    @twice.setter
    def twice(self, to):
        self.x = to / 2
    @classmethod
    def make(cls, x):
        return cls(x, cls.shared)
    @staticmethod
    def half(v):
        return v / 2
plain = Plain(2.0)
other = Plain(1)
""",
        {
            "N": (
                "plain.x", "plain.y", "plain.shared", "other.x", "plain.twice", "Plain.shared",
                "Plain.half(<N>)", "getattr(plain, 'z', 0)", "plain.bump(<N>).x", "len(vars(plain))",
            ),
            "T": (
                "plain.t", "other.t", "plain.scaled(<T>)", "Plain.scaled(other, <T>)",
                "Plain.make(<N>).scaled(<T>)",
            ),
            "F": ("plain.scaled", "Plain.half", "other.scaled",),
            "B": (
                "hasattr(plain, 'z')", "plain is other", "isinstance(plain, Plain)", "plain.t is other.t",
                "plain == other", "'x' in vars(plain)",
            ),
            "E": ("plain", "other", "plain.scaled.__name__",),
            "D": ("dict(a=plain.x)",),
        },
        (
            "plain.x = <N>", "plain.x += 1", "plain.bump()", "other.y = <N>", "plain.t = <T>",
            "plain.t.add_(1)", "plain.z = <N>", "Plain.shared = <N>", "plain.twice = <N>",
            "setattr(plain, 'x', <N>)", "plain.y, other.y = other.y, plain.y", "del plain.z",
            "<newX:1> = Plain(<N>)\n<1>.x += 1\n<newN> = <1>.twice", "plain = other", "other.t = plain.t",
            "plain.__dict__['x'] = <N>", "plain, other = other, plain",
            "for <newX:1> in (plain, other):\n    <1>.x = <N>", "Plain.made = plain",
        ),
        (
            "plain.x = <V>", "plain.x = <V>", "plain.__dict__['x'] = <V>", "Plain.shared = <V>",
            "plain.shared = <V>", "drop(plain, 'shared')", "Plain.scaled = lambda self, t: t - self.x",
            "plain.scaled = lambda t: t", "drop(plain, 'scaled')", "plain, other = other, plain",
            "plain = copy.copy(plain)", "Plain.twice = property(lambda self: self.x * 3)", "Plain.y = 7",
            "drop(plain, 'y')", "other.t = plain.t", "plain.t.add_(1)", "plain.t = plain.t.clone()",
            "Plain.__getattr__ = lambda self, name: 5", "drop(Plain, '__getattr__')",
            "Plain.half = staticmethod(lambda v: v * 4)", "plain = Plain(<V>)", "plain.z = <V>",
            "drop(plain, 'z')", "Plain.z = <V>", "drop(Plain, 'z')",
            "Plain.__eq__ = lambda self, to: True", "plain = other", "Plain.scaled.__defaults__ = None",
            "Plain.bump.__defaults__ = (2,)",
            "Plain.__setattr__ = lambda self, name, to: object.__setattr__(self, name, 2)",
            "drop(Plain, '__setattr__')", "obj = plain", "plain.t = x",
        ),
    ),
    Part(
        "inheritance",
        """\
class Base:
    unit = 1
    def value(self, t):
        return t + self.unit
class Middle(Base):
    def value(self, t):
        return super().value(t) * 2
class Mixin:
    def value(self, t):
        return -super().value(t)
class Derived(Mixin, Middle):
    def __init__(self):
        self.calls = 0
    def __call__(self, t):
        self.calls += 1
        return self.value(t)
    def __str__(self):
        return f"derived {self.calls}"
thing = Derived()
""",
        {
            "N": ("thing.unit", "thing.calls", "len(Derived.__mro__)",),
            "T": (
                "thing(<T>)", "thing.value(<T>)", "Middle.value(thing, <T>)",
                "super(Derived, thing).value(<T>)",
            ),
            "F": ("thing", "thing.value",),
            "B": (
                "isinstance(thing, Middle)", "issubclass(Derived, Base)", "type(thing) is Derived",
                "'unit' in vars(Middle)",
            ),
            "S": ("str(thing)", "f'{thing}'", "type(thing).__name__",),
            "E": ("thing",),
        },
        (
            "thing.calls = <N>", "Base.unit = <N>", "Middle.unit = <N>", "thing.unit = <N>",
            "thing = Derived()", "del thing.unit", "<newN> = vars(Middle).get('unit', <N>)",
        ),
        (
            "Base.unit = <V>", "Middle.unit = <V>", "drop(Middle, 'unit')", "thing.unit = <V>",
            "drop(thing, 'unit')", "Derived.__bases__ = (Middle,)", "Derived.__bases__ = (Mixin, Middle)",
            "Base.value = lambda self, t: t * self.unit", "Middle.value = Base.value",
            "drop(Middle, 'value')", "thing = Derived()", "thing.calls = <V>",
            "Mixin.value = lambda self, t: super(Mixin, self).value(t)",
            "Derived.unit = property(lambda self: 4)", "drop(Derived, 'unit')",
            "Derived.__call__ = lambda self, t: t",
        ),
    ),
    Part(
        "slots",
        """\
class Slotted:
    __slots__ = ("x", "t", "y")
    def __init__(self, x):
        self.x = x
        self.t = lamina.tensor([0.5, 0.5, 1.0])
    def __repr__(self):
        return f"Slotted({self.x})"
class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, o, kind=None):
        return self if o is None else o.__dict__.get(self.name, 0)
    def __set__(self, o, to):
        log.append(self.name)
        o.__dict__[self.name] = to
class Checked:
    size = Typed()
    @functools.cached_property
    def cached(self):
        log.append("computed")
        return self.size + 1
slotted = Slotted(1.5)
checked = Checked()
checked.size = 3
""",
        {
            "N": ("slotted.x", "slotted.y", "getattr(slotted, 'y', 1)", "checked.size", "checked.cached",),
            "T": ("slotted.t",),
            "B": ("hasattr(slotted, 'y')", "'cached' in vars(checked)",),
            "S": ("repr(slotted)", "f'{slotted!r}'",),
            "E": ("slotted", "checked",),
        },
        (
            "slotted.x = <N>", "slotted.x += 1", "slotted.y = <N>", "del slotted.y", "slotted.t = <T>",
            "checked.size = <N>", "checked.size += 1", "slotted = Slotted(<N>)", "slotted.t.neg_()",
        ),
        (
            "slotted.x = <V>", "slotted.y = <V>", "drop(slotted, 'y')", "slotted = Slotted(<V>)",
            "slotted = copy.copy(slotted)", "slotted.t = <X>", "checked.size = <V>", "checked._size = <V>",
            "drop(checked, 'cached')", "checked.cached = <V>", "Checked.size = 5",
            "Typed.__get__ = lambda self, o, kind=None: 9", "checked = Checked()", "slotted.t.add_(1)",
            "drop(slotted, 'x')", "obj = slotted",
        ),
    ),
    Part(
        "dynamic",
        """\
class Dynamic:
    def __init__(self, **given):
        self.__dict__["given"] = given
    def __getattr__(self, name):
        try:
            return self.__dict__["given"][name]
        except KeyError:
            raise AttributeError(name) from None
    def __setattr__(self, name, to):
        self.given[name] = to
    def __delattr__(self, name):
        del self.given[name]
class Loud:
    hidden = 1
    def __getattribute__(self, name):
        if name == "x":
            log.append("read")
        return object.__getattribute__(self, name)
dynamic = Dynamic(x=1, y=2.0)
loud = Loud()
loud.x = 2
""",
        {
            "N": (
                "dynamic.x", "dynamic.y", "getattr(dynamic, 'z', 3)", "loud.x", "loud.hidden",
                "len(dynamic.given)",
            ),
            "B": ("hasattr(dynamic, 'z')", "hasattr(loud, 'x')",),
            "D": ("dynamic.given",),
            "E": ("dynamic", "loud",),
        },
        (
            "dynamic.x = <N>", "dynamic.z = <N>", "del dynamic.z", "dynamic.y += 1", "loud.x = <N>",
            "loud.x += 1",
        ),
        (
            "dynamic.x = <V>", "dynamic.given['z'] = <V>", "dynamic.given.pop('z', None)",
            "dynamic.__dict__['x'] = <V>", "dynamic.__dict__.pop('x', None)", "Dynamic.x = 4",
            "drop(Dynamic, 'x')", "dynamic = Dynamic(x=<V>, y=<V>)",
            "Dynamic.__getattr__ = lambda self, name: 7", "loud.x = <V>", "Loud.hidden = <V>",
            "Loud.__getattribute__ = object.__getattribute__",
            "dynamic.__dict__['given'] = dict(dynamic.given)", "obj = dynamic",
        ),
    ),
    Part(
        "protocols",
        """\
class Bag:
    def __init__(self, *held):
        self.held = list(held)
    def __len__(self):
        return len(self.held)
    def __getitem__(self, k):
        return self.held[k]
    def __setitem__(self, k, to):
        self.held[k] = to
    def __iter__(self):
        yield from self.held
    def __contains__(self, k):
        log.append("asked")
        return k in self.held
    def __eq__(self, to):
        return isinstance(to, Bag) and self.held == to.held
    def __hash__(self):
        return len(self.held)
    def __add__(self, to):
        return self.held[0] + to
    def __rmul__(self, to):
        return to * self.held[0]
    def __iadd__(self, to):
        self.held.append(to)
        return self
    def __lt__(self, to):
        return len(self) < len(to)
    def __enter__(self):
        self.held.append(0)
        return self
    def __exit__(self, *error):
        self.held.pop()
        return error[0] is ValueError
    def __str__(self):
        return "bag of " + ", ".join(map(str, self.held))
bag = Bag(1, 2.5)
bags = [bag, Bag(3)]
""",
        {
            "N": (
                "len(bag)", "bag[0]", "bag + <N>", "<N> * bag", "bag[-1]", "sum(bag)",
                "max(bag, default=0)",
            ),
            "T": ("bag + <T>", "<T> * bag[0]",),
            "B": ("bag", "<N> in bag", "bag == bags[1]", "bag < bags[1]", "bag in bags",),
            "L": ("list(bag)", "[*bag]", "bag.held", "sorted(bag)",),
            "S": ("str(bag)", "f'{bag}'",),
            "E": ("bag", "bags", "sorted(bags, key=len)",),
        },
        (
            "bag[0] = <N>", "bag += <N>", "for <newN> in bag:\n    <BODY>", "with bag as k:\n    <BODY>",
            "bag.held = <L>", "del bag.held[3:]", "with bag:\n    raise ValueError('swallowed')",
            "<newN:1>, *<newL> = bag", "bags[1] = Bag(<N>)", "bags.sort()",
        ),
        (
            "bag[0] = <V>", "bag.held = [<V>, <V>]", "bag.held = []", "bag = Bag(<V>, <V>)",
            "bag.held = list(bag.held)", "Bag.__len__ = lambda self: 1",
            "Bag.__bool__ = lambda self: False", "drop(Bag, '__bool__')",
            "Bag.__add__ = lambda self, to: to", "bags.reverse()", "bags[1] = bag",
            "bags = [Bag(*k) for k in bags]", "Bag.__contains__ = lambda self, k: True",
            "drop(Bag, '__contains__')", "Bag.__iter__ = lambda self: iter([1, 2])",
            "bag.__len__ = lambda: 9",
        ),
    ),
    Part(
        "data",
        """\
@dataclasses.dataclass
class Point:
    x: float = 1.0
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)
    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)
@dataclasses.dataclass(frozen=True, order=True)
class Fixed:
    rate: float = 0.5
    depth: int = 2
class Pair(typing.NamedTuple):
    first: float
    second: float = 2.0
class Color(enum.Enum):
    RED = 1
    BLUE = 2
point = Point()
fixed = Fixed()
pair = Pair(1)
color = Color.RED
space = types.SimpleNamespace(x=1, y=[1, 2])
""",
        {
            "N": (
                "point.x", "point.y", "fixed.rate", "fixed.depth", "pair.first", "pair[1]", "color.value",
                "space.x", "len(point.tags)", "point.moved(<N>).x", "sum(pair)",
            ),
            "B": (
                "color is Color.RED", "color == Color.BLUE", "point == Point()", "fixed == Fixed()",
                "fixed < Fixed(1.0)", "pair == (1, 2)", "isinstance(pair, tuple)",
            ),
            "L": ("list(pair)", "point.tags", "space.y", "[*pair]",),
            "S": ("color.name", "str(pair)", "repr(fixed)", "str(point)",),
            "D": ("pair._asdict()", "dataclasses.asdict(fixed)",),
            "E": ("point", "pair", "color", "space", "fixed",),
        },
        (
            "point.x = <N>", "point.tags.append(<N>)", "point = point.moved(<N>)",
            "pair = pair._replace(first=<N>)", "space.x = <N>", "space.y.append(<N>)",
            "color = Color.BLUE if <B> else Color.RED", "fixed = Fixed(<N>)",
            "fixed = dataclasses.replace(fixed, depth=<I>)",
            "match point:\n    case Point(x=1.0, y=k):\n        log.append(k)\n    case "
            "Point(x=k):\n        log.append(k)",
            "match color:\n    case Color.RED:\n        <BODY>\n    case Color.BLUE:\n        <BODY>",
            "<newN:1>, <newN:2> = pair", "del space.y[3:]",
            "match pair:\n    case (1, k):\n        log.append(k)\n    case (k, 2.0):\n        "
            "log.append(-k)",
        ),
        (
            "point.x = <V>", "point = Point()", "point = Point(<V>, <V>)", "fixed = Fixed(<V>)",
            "fixed = Fixed()", "object.__setattr__(fixed, 'rate', <V>)", "pair = Pair(<V>, <V>)",
            "pair = (1, 2.0)", "color = Color.BLUE", "color = Color.RED", "space.x = <V>",
            "space = copy.copy(space)", "point.tags = [<V>]", "point.tags = space.y",
            "Point.moved = lambda self, by: self", "Point.y = 3", "Point.__eq__ = object.__eq__",
            "obj = space", "obj = point",
        ),
    ),
    Part(
        "closures",
        """\
def make_counter(start):
    total = start
    history = []
    def count(by=1):
        nonlocal total
        total += by
        history.append(total)
        del history[:-3]
        return total
    return count
def make_scaler(factor):
    def scaler(t):
        return t * factor
    def change(to):
        nonlocal factor
        factor = to
    return scaler, change
counter = make_counter(0)
scaler, rescale = make_scaler(2.0)
""",
        {
            "N": (
                "counter()", "counter(<N>)", "make_counter(<N>)()", "counter.__closure__[1].cell_contents",
            ),
            "T": ("scaler(<T>)", "make_scaler(<N>)[0](<T>)",),
            "F": ("scaler",),
            "E": ("scaler.__name__",),
        },
        (
            "counter()", "rescale(<N>)", "counter(by=<N>)", "scaler, rescale = make_scaler(<N>)",
            "<newF:1>, k = make_scaler(<N>)\nk(<N>)\n<newT> = <1>(<T>)", "counter.calls = <N>",
            "counter = make_counter(<N>)",
        ),
        (
            "rescale(<V>)", "rescale(<V>)", "scaler.__closure__[0].cell_contents = <V>",
            "counter = make_counter(5)", "counter(3)", "counter.__defaults__ = (<V>,)",
            "scaler, rescale = make_scaler(<V>)", "counter.__closure__[1].cell_contents = <V>",
            "counter.__closure__[0].cell_contents = [<V>]", "rescale(lamina.tensor([1.0, 2.0, 0.5]))",
        ),
    ),
    Part(
        "functions",
        """\
def shift(t, by=1, *, times=2):
    return t * times + by
def double(t):
    return t * 2
def negate(t):
    return -t
def variadic(*args, **kwargs):
    return len(args) + sum(kwargs.values())
def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        log.append(function.__name__)
        return function(*args, **kwargs)
    return call
@logged
def minus(t):
    return t - 1
def fib(k):
    return k if k < 2 else fib(k - 1) + fib(k - 2)
act = double
acts = [double, negate]
by_name = {"double": double, "negate": negate}
part = functools.partial(shift, by=2)
""",
        {
            "N": (
                "variadic(<N>, <N>, a=<N>)", "variadic(*<L>)", "variadic(**<D>)", "fib(<I>)", "len(acts)",
                "part.keywords['by']", "shift.__defaults__[0]",
            ),
            "T": (
                "shift(<T>)", "shift(<T>, <N>, times=<N>)", "act(<T>)", "acts[0](<T>)",
                "by_name['double'](<T>)", "part(<T>)", "minus(<T>)", "shift(<T>, times=<N>)",
            ),
            "F": (
                "double", "negate", "act", "acts[-1]", "part", "minus", "shift",
                "by_name.get(<S>, double)",
            ),
            "B": ("act is double", "double in acts", "callable(act)",),
            "S": ("act.__name__", "minus.__name__",),
            "E": ("act", "acts", "part",),
        },
        (
            "act = negate if <B> else double", "acts.append(act)", "by_name['double'] = <F>",
            "for <newF:1> in acts:\n    <mt:2> = <1>(<2>)", "acts.reverse()",
            "part = functools.partial(shift, by=<N>)", "double.calls = getattr(double, 'calls', 0) + 1",
            "del acts[2:]", "acts.append(lambda v: v + 1)",
        ),
        (
            "act = negate", "act = double", "act = lambda t: t + 2", "shift.__defaults__ = (<V>,)",
            "shift.__kwdefaults__ = {'times': <V>}",
            "shift.__code__ = (lambda t, by=1, *, times=2: t + times - by).__code__", "acts.reverse()",
            "by_name['double'] = negate", "part = functools.partial(shift, by=<V>)",
            "part = functools.partial(negate)", "double, negate = negate, double", "minus = negate",
            "minus.__wrapped__ = negate", "double.__code__ = negate.__code__", "acts = [negate]",
            "acts = list(acts)", "fib = lambda k: k", "double.calls = <V>", "part.keywords['by'] = <V>",
            "shift = lambda t, *a, **k: t",
        ),
    ),
    Part(
        "generators",
        """\
def steps(n, by=1):
    for i in range(n):
        yield i * by
def walk(values):
    yield from values
    yield 1
def both(t):
    try:
        k = yield t + 1
        log.append(k)
        yield t * 2
    finally:
        log.append("closed")
class Countdown:
    def __init__(self, start):
        self.start = start
    def __iter__(self):
        k = self.start
        while k > 0:
            yield k
            k -= 1
endless = itertools.count()
down = Countdown(2)
stream = steps(40)
""",
        {
            "N": ("sum(steps(<I>))", "next(steps(2, <N>))", "sum(down)", "next(endless)", "next(stream, 0)",),
            "L": (
                "list(steps(<I>, <N>))", "[*walk(<L>)]", "list(down)", "list(walk(steps(<I>)))",
                "list(itertools.islice(stream, 2))",
            ),
            "T": ("sum(both(<T>))", "list(both(<T>))[-1]",),
            "B": ("any(k > 1 for k in steps(<I>))", "1 in down",),
            "E": ("list(zip(steps(2), down))",),
        },
        (
            "for <newN> in steps(<I>):\n    <BODY>", "for <newN> in down:\n    <BODY>",
            "<newX:1> = both(<T>)\n<newT> = next(<1>)\n<newT> = <1>.send(<N>)", "down.start = <I>",
            "for <newT:1> in both(<T>):\n    if <1>.sum() > 0:\n        break",
            "<newX:1> = both(<T>)\nnext(<1>)\n<1>.close()",
            "<newX:1> = walk(<L>)\nfor v in <1>:\n    log.append(v)\n    break\nlog.extend(<1>)",
        ),
        (
            "down.start = <I>", "down = Countdown(<I>)", "steps.__defaults__ = (<V>,)",
            "steps = lambda n, by=1: [1] * n", "next(endless)",
            "Countdown.__iter__ = lambda self: iter([2, 1])", "down = [2, 1]", "next(stream, 0)",
        ),
    ),
    Part(
        "managers",
        """\
depth = 0
@contextlib.contextmanager
def tracked(name):
    global depth
    log.append("in " + name)
    depth += 1
    try:
        yield depth
    finally:
        depth -= 1
        log.append("out " + name)
class Swallow:
    kinds = (ValueError,)
    def __enter__(self):
        return self
    def __exit__(self, kind, error, place):
        log.append(kind.__name__ if kind else "nothing")
        return kind is not None and issubclass(kind, self.kinds)
class Trouble(ValueError):
    def __init__(self, code):
        super().__init__(f"trouble {code}")
        self.code = code
def risky(v):
    if v > 1:
        raise Trouble(v)
    return v
swallow = Swallow()
""",
        {
            "N": ("depth", "risky(<N>)", "len(swallow.kinds)",),
            "E": ("swallow",),
        },
        (
            "with tracked(<S>) as <newN>:\n    <BODY>", "with swallow:\n    <BODY>",
            "with swallow, tracked('t'):\n    risky(<N>)",
            "try:\n    log.append(risky(<N>))\nexcept Trouble as error:\n    log.append(error.code)",
            "try:\n    risky(<N>)\nexcept ValueError as error:\n    log.append(str(error))\nelse:\n    "
            "<BODY>",
            "try:\n    try:\n        risky(<N>)\n    finally:\n        <BODY>\nexcept Exception as "
            "error:\n    log.append(error.args)",
            "raise Trouble(<N>) if <B> else KeyError(<S>)",
            "try:\n    raise KeyError(<S>) from Trouble(<N>)\nexcept KeyError as error:\n    "
            "log.append(str(error.__cause__))",
            "with contextlib.ExitStack() as stack:\n    stack.enter_context(tracked('s'))\n    "
            "stack.callback(log.append, <N>)\n    <BODY>",
            "for v in <L>:\n    try:\n        if v > 1:\n            break\n        log.append(v)\n    "
            "finally:\n        log.append('f')",
            "with tracked('r'):\n    if <B>:\n        return <T>",
        ),
        (
            "Swallow.kinds = (TypeError,)", "swallow.kinds = (ValueError, TypeError)", "depth = <I>",
            "risky = lambda v: v", "Trouble.__str__ = lambda self: 'other'", "drop(swallow, 'kinds')",
            "Swallow.__exit__ = lambda self, *error: False",
            "tracked = lambda name: contextlib.nullcontext(3)",
        ),
    ),
    Part(
        "modules",
        """\
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        with lamina.no_grad():
            self.lin.weight.copy_(lamina.tensor([[1.0, 0.0, -1.0], [0.5, 1.0, 0.0], [0.0, 0.0, 2.0]]))
            self.lin.bias.zero_()
        self.on = True
    def forward(self, t):
        return keep(self.lin(t + self.lin.bias)) if self.on else t + 1
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(lamina.tensor([1.0, -1.0, 0.5]))
        self.register_buffer("seen", lamina.zeros(3))
        self.factor = 2.0
        self.inner = Inner()
        self.layers = nn.ModuleList([nn.ReLU(), nn.Identity()])
        self.history = []
    def forward(self, t):
        t = self.inner(t.float() + 0.0)
        if self.training:
            self.seen.add_(1)
        for layer in self.layers:
            t = layer(t)
        return t * self.weight * self.factor
net = Net()
handles = []
def hook(module, args, result):
    log.append(type(module).__name__)
    return result + 1
""",
        {
            "N": (
                "net.factor", "len(net.layers)", "sum(1 for p in net.parameters())",
                "len(list(net.named_modules()))", "len(net.state_dict())",
            ),
            "T": (
                "net(<T>)", "net(<T>)", "net.weight", "net.seen", "net.inner(<T>.float())",
                "net.layers[0](<T>)", "net.get_parameter('weight')",
                "sum(p.sum() for p in net.parameters())",
            ),
            "F": ("net", "net.layers[0]",),
            "B": (
                "net.training", "net.inner.on", "net.weight.requires_grad", "hasattr(net, 'extra')",
                "net.weight.grad is None", "'seen' in net.state_dict()",
            ),
            "E": ("net.history", "[k for k, _ in net.named_parameters()]", "net.weight",),
        },
        (
            "net.factor = <N>", "net.factor += 1", "net.inner.on = <B>", "net.history.append(<N>)",
            "net.seen.add_(1)", "net.seen = <T>.detach()", "net.eval()", "net.train()",
            "net.weight.requires_grad_(<B>)", "with lamina.no_grad():\n    net.weight.add_(1)",
            "net.zero_grad()", "net(<T>).sum().backward()", "net.weight.data.neg_()",
            "for <newT> in net.parameters():\n    <BODY>",
            "for k, m in net.named_children():\n    log.append(k)", "net.note = <N>",
            "log.append(net.weight.grad)", "net.weight.grad = None",
        ),
        (
            "net.factor = <V>", "net.eval()", "net.train()", "net.weight.requires_grad_(False)",
            "net.weight.requires_grad_(True)", "net.weight.data.add_(1)",
            "net.weight = nn.Parameter(lamina.tensor([2.0, 1.0, 1.0]))", "net.inner = nn.ReLU()",
            "net.inner = Inner()", "handles.append(net.register_forward_hook(hook))",
            "handles.append(net.inner.register_forward_hook(hook))", "[h.remove() for h in handles]",
            "net.seen = net.seen.clone()", "net.seen.zero_()", "net.forward = lambda t: t",
            "drop(net, 'forward')", "Net.forward = lambda self, t: t * self.weight", "net.double()",
            "net.float()", "net.zero_grad()", "net.layers.append(nn.ReLU())",
            "net.layers[0] = nn.Identity()", "net.inner.on = False", "net.inner.on = True",
            "net.load_state_dict(net.state_dict())", "vars(net)['factor'] = <V>",
            "net.extra = nn.Identity()", "drop(net, 'extra')", "net = Net()", "net = copy.deepcopy(net)",
            "net.weight.grad = lamina.ones(3)", "nn.Module.__setattr__(net, 'factor', 3.0)",
            "net._buffers['seen'] = lamina.ones(3)",
            "net.inner.lin.weight.data.neg_()", "net.inner.eval()", "net.history = list(net.history)",
            "net.inner = net.layers[0]", "net.register_buffer('seen', lamina.ones(3), persistent=False)",
            "net.layers = nn.ModuleList(reversed(list(net.layers)))",
            "handles.append(net.register_forward_pre_hook(lambda m, a: (a[0] * 2,)))",
            "handles.append(net.weight.register_hook(lambda g: g * 2))",
        ),
    ),
    Part(
        "tensors",
        """\
w = lamina.tensor([1.0, -2.0, 0.5])
view = w[:1]
m = lamina.tensor([[1.0, 0.0, -1.0], [2.0, 0.5, 1.0]])
weights = [w, lamina.tensor([2.0, 1.0, 0.0])]
byname = {'w': w, 'm': m}
""",
        {
            "T": (
                "w", "w", "view", "m", "weights[0]", "weights[-1]", "byname['m']", "m[0]", "m[:, :1]",
                "sum(weights)", "m.t()[0, 0]",
            ),
            "N": ("len(weights)", "int(w.sum())", "w[0].item()",),
            "B": ("w is weights[0]", "w.requires_grad", "bool(w[0] > 0)", "w in [w]", "byname['w'] is w",),
            "E": ("weights", "byname", "w",),
        },
        (
            "w.add_(1)", "w.mul_(-1)", "w[0] = <N>", "view.add_(<N>)", "weights[0] = <T>",
            "byname['w'] = <T>", "weights.append(<t>)", "del weights[2:]", "w = w + 1", "m[0].copy_(w)",
            "m[:, 0] = <N>", "weights.reverse()", "for <newT> in weights:\n    <BODY>",
            "for <newS>, <newT> in byname.items():\n    <BODY>", "w.requires_grad_()",
            "w = w.detach().clone()", "byname['last'] = <T>", "view = w[1:2]", "w.data.add_(1)",
            "m.t()[0].zero_()", "weights[0] += <N>", "w, view = view, w", "w.grad = None", "m[0, 0] += 1",
            "weights = [v * 2 for v in weights][:2]", "w.copy_(row(<T>).detach())",
        ),
        (
            "w.data.add_(1)", "w = w.clone()", "w = <X>", "view = w[1:2]", "view = w[:1].clone()",
            "weights[0] = w", "byname['m'] = w", "w.requires_grad_()", "w = w.detach()",
            "w = w.detach().double()", "weights.reverse()", "w.detach()[0] = 5.0",
            "w.detach().numpy()[0] = 7", "weights = list(weights)", "weights.append(w)", "m = <X>",
            "m = m.t().contiguous().t()", "x = w", "y = view", "y = w", "w = x",
            "byname.pop('last', None)", "weights = [v.clone() for v in weights]",
            "byname = {'m': m, 'w': w}", "w.data = lamina.tensor([3.0, 1.0, -1.0])",
            "m.data = m.data.clone()", "held = weights", "w.grad = lamina.ones(3)", "weights[:] = [w, w]",
        ),
    ),
    Part(
        "training",
        """\
p = lamina.tensor([1.0, -1.0, 0.5], requires_grad=True)
q = lamina.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, -1.0]], requires_grad=True)
opt = optim.SGD([p, q], lr=0.5, momentum=0.5)
losses = []
epoch = 0
""",
        {
            "T": ("p", "q", "p * 1", "q.sum(0)", "p.detach()",),
            "N": ("epoch", "opt.param_groups[0]['lr']", "len(losses)",),
            "B": ("p.grad is None", "epoch > 2", "opt.param_groups[0]['lr'] < 0.4",),
            "E": ("losses",),
        },
        (
            "(p * <T>.detach()).sum().backward()\nopt.step()\nopt.zero_grad()",
            "(q * <T>.detach()).sum().backward()",
            "<newT:1> = (p * <T>.detach()).sum()\n<1>.backward()\nlosses.append(<1>.detach())\nopt.step()",
            "epoch += 1", "opt.param_groups[0]['lr'] *= 0.5", "losses.append(float(p.detach().sum()))",
            "opt.zero_grad()", "p.grad = None", "with lamina.no_grad():\n    p -= 0.5",
            "if p.grad is not None:\n    log.append(p.grad.sum().item())", "opt.step()",
            "<newT> = lamina.autograd.grad((p * <T>.detach()).sum(), p)[0]",
            "for <newX:1> in opt.param_groups:\n    <1>['lr'] = <N>", "p.requires_grad_(<B>)",
            "del losses[:-2]",
        ),
        (
            "opt.param_groups[0]['lr'] = <V>", "opt.param_groups[0]['momentum'] = 0.0", "p.grad = None",
            "p.grad = lamina.ones(3)", "p.data.add_(1)", "p.requires_grad_(False)",
            "p.requires_grad_(True)", "opt = optim.SGD([p], lr=0.25)",
            "opt = optim.SGD([p, q], lr=0.5, momentum=0.5, weight_decay=0.5)", "opt.state.clear()",
            "epoch = <V>", "opt.zero_grad()", "p = p.detach().clone().requires_grad_()",
            "opt.add_param_group({'params': [lamina.zeros(3, requires_grad=True)]})", "losses.clear()",
            "q.grad = q.detach()", "opt.load_state_dict(opt.state_dict())",
            "opt.param_groups[0]['params'].reverse()", "q.requires_grad_(False)",
            "p.register_hook(lambda g: g * 2) if p.requires_grad else None",
        ),
    ),
    Part(
        "outside",
        """\
class Registry:
    known = {}
    def __init_subclass__(cls):
        Registry.known[cls.__name__] = cls
class First(Registry):
    rate = 1.0
shelf = types.ModuleType('shelf')
shelf.rate = 0.5
shelf.act = operator.neg
big = np.array([1.0, 2.0, 3.0])
mapping = types.MappingProxyType({'a': 1})
text = 'alpha beta'
""",
        {
            "N": (
                "shelf.rate", "math.pi // 1", "int(os.environ.get('FUZZED', '1'))",
                "Registry.known['First'].rate", "big[0]", "random.randint(0, 3)", "mapping['a']",
                "len(text)", "text.count('a')", "float(big.sum())",
            ),
            "T": ("lamina.from_numpy(big)", "lamina.tensor(big)",),
            "F": ("shelf.act",),
            "B": (
                "'rate' in vars(shelf)", "'FUZZED' in os.environ", "hasattr(shelf, 'other')",
                "'alpha' in text",
            ),
            "S": ("text", "text.split()[0]", "os.environ.get('FUZZED', '')", "text.title()",),
            "L": ("[len(k) for k in text.split()]",),
            "E": ("big.shape", "shelf.act", "mapping",),
        },
        (
            "shelf.rate = <N>", "shelf.calls = getattr(shelf, 'calls', 0) + 1", "big[0] = 2.0",
            "text = <S>", "First.rate = <N>", "class Second(Registry):\n    rate = 2.0", "text += 'a'",
        ),
        (
            "shelf.rate = <V>", "shelf.act = operator.abs", "shelf.act = abs",
            "os.environ['FUZZED'] = '2'", "os.environ.pop('FUZZED', None)",
            "Registry.known['First'] = shelf", "First.rate = <V>", "big[0] = 5.0", "big = big.copy()",
            "mapping = types.MappingProxyType({'a': <V>})", "text = 'beta'",
            "shelf = types.SimpleNamespace(rate=<V>, act=operator.neg)", "drop(shelf, 'calls')",
            "shelf.other = <V>",
        ),
    ),
)  # fmt: skip
