"""Further parts of state for random programs: objects whose lives show, orders of tables, numbers that go on.

See `fuzz_parts`.  A program of the kind "lives" has at least one of them.  Lists that hold what tells of its
death are changed in place: a recording holds on to a list that it captured (docs/architecture.md).
"""

from __future__ import annotations

from fuzz_parts import Part

LIVES = (
    Part(
        "deaths",
        """\
import gc, weakref
class Spoken:
    def __init__(self, n):
        self.n = n
    def __del__(self):
        log.append(('died', self.n))
class Quiet:
    def __init__(self, n=1):
        self.n = n
@contextlib.contextmanager
def holding(n):
    mine = Spoken(n)
    try:
        yield mine
    finally:
        log.append('left')
def stepping(n):
    mine = Spoken(n)
    try:
        yield mine.n
        yield n
    finally:
        log.append('closed')
spoken = [Spoken(1), None, Quiet(2)]
place = Quiet()
place.o = Quiet(3)
ref = weakref.ref(place.o)
alive = weakref.WeakSet([place])
weakly = weakref.WeakValueDictionary(a=place.o)
gen = stepping(1)
""",
        {
            "N": (
                "len(spoken)", "place.n", "(0 if ref() is None else 1)", "len(alive)", "len(weakly)",
                "getattr(place.o, 'n', 0)", "Spoken(<N>).n", "Quiet(<N>).n",
                "next(gen, 0)", "sum(getattr(s, 'n', 0) for s in spoken)",
                "[Quiet(<N>) for _ in range(2)][0].n",
            ),
            "B": (
                "ref() is None", "ref() is place.o", "spoken[0] is None", "place in alive", "'a' in weakly",
                "isinstance(place.o, Spoken)", "hasattr(place, 'o')",
            ),
            "L": ("[getattr(s, 'n', 0) for s in spoken]", "[o.n for o in (place, *filter(None, spoken))]"),
            "E": ("spoken", "place", "place.o", "ref"),
        },
        (
            "spoken.append(Spoken(<N>))", "spoken.append(Quiet(<N>))", "spoken.pop()", "spoken.clear()",
            "spoken[0] = None", "spoken[0] = Quiet(<N>)", "del spoken[:1]", "del spoken[:-2]",
            "spoken[:] = [*spoken, Quiet(<N>)][-3:]", "place.o = Spoken(<N>)", "place.o = Quiet(<N>)",
            "place.o = None", "del place.o", "ref = weakref.ref(place)",
            "if place.o is not None:\n    ref = weakref.ref(place.o)", "alive.add(Quiet(<N>))",
            "alive.discard(place)", "weakly['b'] = place", "weakly.pop('a', None)",
            "<newX:1> = Spoken(<N>)\nlog.append(<1>.n)", "<newX:1> = Quiet(<N>)\n<1>.me = <1>",
            "<newX:1> = weakref.ref(Quiet(<N>))\nlog.append(<1>() is None)",
            "<newX:1> = Quiet(<N>)\n<newX:2> = weakref.ref(<1>)\ndel <1>\nlog.append(<2>() is None)",
            "with holding(<N>) as k:\n    <BODY>", "with holding(<N>):\n    <BODY>", "gen = stepping(<N>)",
            "gen.close()", "log.append(next(gen, None))", "gen = None", "for k in stepping(<N>):\n    <BODY>",
            "for k in stepping(<N>):\n    break", "<newX:1> = stepping(<N>)\nlog.append(next(<1>))",
            "try:\n    raise ValueError(Spoken(<N>))\nexcept ValueError as k:\n    log.append(len(k.args))",
            "try:\n    <BODY>\nfinally:\n    del spoken[2:]", "gc.collect()",
            "weakref.finalize(place.o, log.append, 'final') if place.o is not None else None",
            "spoken[:], place.o = [place.o], None", "place, spoken[:] = Quiet(<N>), [place]",
            "<newN> = (lambda o: o.n)(Spoken(<N>))", "place.t = <T>", "log[:] = log[-6:]",
            "<newX:1> = [Spoken(k) for k in range(2)]\n<1>.pop(0)\nlog.append('between')",
            "def <newF:1>(v, o=Spoken(<N>)):\n    return v + o.n\n<newT> = <1>(<T>)",
            "def <newF:1>(v, o, *rest):\n    o = None\n    log.append('inside')\n    return v\n"
            "<newT> = <1>(<T>, Spoken(<N>), Quiet(<N>), Spoken(<N>))",
            "def <newF:1>(v, o):\n    <BODY>\n    spoken.clear()\n    del o\n    log.append('deleted')\n"
            "    return v\n<newT> = <1>(<T>, [*spoken, None][0])",
            "<newX:1> = [stepping(<N>)]\nlog.append(next(<1>[0]))\n<1>.clear()\nlog.append('cleared')",
            "<newX:1> = {'a': (stepping(<N>),)}\nlog.append(next(<1>['a'][0]))\n<1> = None\n<BODY>",
            "try:\n    raise ValueError(<N>)\nexcept ValueError as k:\n    place.error = k",
            "place.error = None\nlog.append('let go')",
            "with contextlib.ExitStack() as k:\n    k.enter_context(holding(<N>))\n    <BODY>",
            "<newX:1> = (o for o in [Spoken(<N>), Quiet(<N>)])\nlog.append(next(<1>).n)",
            "log.append([o.n for o in (Spoken(<N>), Spoken(<N>))])\nlog.append('gone')",
            "<newX:1> = {1: Spoken(<N>)}\n<1>[1] = None\nlog.append('over')",
            "<newX:1>, <newX:2> = Spoken(<N>), Spoken(<N>)",
            "for k in map(Spoken, range(3)):\n    log.append(k.n)",
            "<newX:1> = sorted([Spoken(2), Spoken(1)], key=lambda o: o.n)\n<1> = log.append('sorted')",
            "def <newF:1>():\n    try:\n        yield <N>\n    finally:\n        log.append('ended')\n"
            "<newX:2> = lambda o: (next(o), log.append('called'))\n<2>(<1>())\nlog.append('after')",
        ),
        (
            "spoken[:] = [Spoken(<V>)]", "spoken[:] = [Quiet(<V>)]",
            "spoken.append(Spoken(<V>))", "spoken.clear()",
            "spoken.append(None)", "place = Quiet(<V>)", "place.o = Spoken(<V>)", "place.o = Quiet(<V>)",
            "place.o = place", "place.o = spoken", "drop(place, 'o')", "place.o = None",
            "ref = weakref.ref(place)", "ref = weakref.ref(Quiet())", "gen = stepping(<V>)",
            "gen = stepping(<V>); next(gen)", "gen = iter([<V>, <V>])", "alive = weakref.WeakSet([place])",
            "weakly = weakref.WeakValueDictionary(a=place)", "drop(Spoken, '__del__')",
            "Quiet.__del__ = lambda self: log.append('quietly')", "drop(Quiet, '__del__')",
            "weakref.finalize(place, log.append, 'place')", "spoken.append(place)", "gc.collect()",
            "kept = place.o", "obj = place", "keep = lambda v, o=Spoken(<V>): v",
        ),
    ),
    Part(
        "orders",
        """\
class Key:
    def __init__(self, name):
        self.name = name
    def __hash__(self):
        return len(self.name)
    def __eq__(self, to):
        return isinstance(to, Key) and self.name == to.name
    def __lt__(self, to):
        return self.name < to.name
marks = {3, 1, 2}
order = {'a': 1, 'b': 2.0, 'c': 3}
latest = collections.OrderedDict(a=1, b=2)
keyed = {Key('a'): 1, Key('b'): 2}
pairs = {(1, 2): 1, (2, 1): 2}
frozen = frozenset((1, 8, 16))
""",
        {
            "N": (
                "sum(i * k for i, k in enumerate(marks, 1))", "next(iter(marks), 0)", "len(marks)",
                "max(marks, default=0)", "order[next(iter(order))]", "next(reversed(order.values()), 0)",
                "list(order.values())[-1]", "keyed.get(Key(<K>), 0)", "len(keyed)",
                "pairs.get((<I>, <I>), 0)",
                "next(iter(latest.values()), 0)", "sum(i * k for i, k in enumerate(frozen, 1))",
                "[*order.values()].index(<N>)", "len(order.keys() & latest.keys())",
                "min(keyed).name.count('a')",
            ),
            "B": (
                "<I> in marks", "<N> in marks", "Key(<K>) in keyed", "marks == {1, 2, 3}", "<K> in order",
                "marks <= frozen", "list(order) == sorted(order)", "order == latest", "frozen & marks",
                "marks.isdisjoint(frozen)", "Key(<K>) == Key(<K>)", "[*marks] == [1, 2, 3]",
            ),
            "L": (
                "list(marks)", "sorted(marks)", "list(order.values())", "[*latest.values()]",
                "list(keyed.values())",
                "[k for k in frozen]", "sorted(order.values(), key=str)", "list(marks | frozen)",
                "[k.name.count('b') for k in keyed]", "list(pairs.values())",
            ),
            "S": ("'-'.join(order)", "str(sorted(marks))", "''.join(k.name for k in keyed)",
            "''.join(latest)"),
            "E": ("order", "marks", "latest", "frozen", "set(marks)"),
            "D": ("order", "latest", "dict(sorted(order.items()))"),
        },
        (
            "marks.add(<I>)", "marks.add(int(<N>))", "marks.discard(<I>)", "marks.remove(<I>)", "marks.pop()",
            "marks |= {8, 16, <I>}", "marks -= {<I>}", "marks &= {1, 2, 8}", "marks ^= {<I>, 8}",
            "marks = {k + 8 for k in marks}", "marks.clear()", "marks.update(range(<I>))",
            "frozen = frozen | {<I>}",
            "for k in range(20, 40):\n    marks.add(k)\nfor k in range(20, 40):\n    marks.discard(k)",
            "order.pop(<K>, None)", "order[<K>] = order.pop(<K>, <N>)", "del order['a']", "order.popitem()",
            "order['a'], order['b'] = order['b'], order['a']", "order[<K>] = <N>",
            "order = {**order, 'a': <N>}",
            "latest.move_to_end('a', last=<B>)", "latest.popitem(last=False)", "latest[<K>] = <N>",
            "keyed[Key(<K>)] = <N>", "keyed.pop(Key(<K>), None)", "del keyed[Key('a')]",
            "pairs[<I>, <I>] = <N>",
            "for <newN> in marks:\n    <BODY>", "for <newN> in frozen:\n    <BODY>",
            "for <newS> in order:\n    <BODY>",
            "for <newS>, <newN> in latest.items():\n    <BODY>",
            "<newX:1> = {<N>, <N>, 3}\nlog.append(sorted(<1>, key=str))",
            "<newX:1> = set(marks)\n<1>.add(<I>)\nlog.extend(<1>)",
            "<newL> = [v for v in marks if v > 1]", "<newX:1>, *<newL> = marks", "log.append(marks.copy())",
            "log.append(next(iter(order), None))", "log.append(list(marks)[:2])",
            "order.setdefault(<K>, <N>)",
        ),
        (
            "marks = {1, 2, 3}", "marks = {3, 2, 1}", "marks = {8, 16, 0}", "marks = {16, 8, 0}",
            "marks.add(<I>)",
            "marks.add(5)", "marks = set(marks)", "marks = {*range(30)} - {*range(3, 30)}",
            "frozen = frozenset((16, 8, 1))",
            "order = {'c': 3, 'a': 1, 'b': 2.0}", "order['a'] = order.pop('a', 1)",
            "order = dict(reversed(order.items()))",
            "order = collections.OrderedDict(order)", "latest.move_to_end('a')",
            "latest = collections.OrderedDict(b=1, a=<V>)",
            "keyed[Key('c')] = <V>", "keyed = {Key('b'): 2, Key('a'): 1}", "Key.__hash__ = lambda self: 1",
            "Key.__eq__ = lambda self, to: True", "next(iter(keyed)).name = 'c'",
            "pairs = dict(reversed(pairs.items()))",
            "pairs[1, 2] = <V>", "order.clear(); order.update(a=<V>, c=<V>)", "del order['b']",
            "marks.discard(1)",
        ),
    ),
    Part(
        "going on",
        """\
step = 0
pace = 0.5
best = 4.0
stats = {'mean': 0.0, 'n': 0, 'last': 0}
window = collections.deque([1.0], maxlen=3)
@dataclasses.dataclass
class Progress:
    step: int = 0
    rates: list = dataclasses.field(default_factory=list)
    @property
    def share(self):
        return self.step / 4
class Phase(enum.IntEnum):
    WARM = 1
    MAIN = 2
def pace_at(k, warm=4):
    return k / warm if k < warm else max(0.25, 1 - (k - warm) / 8)
progress = Progress()
phase = Phase.WARM
where = collections.namedtuple('Where', 'epoch batch')(0, 0)
""",
        {
            "N": (
                "step", "step", "pace", "best", "min(step, 3)", "max(pace, 0.25)", "round(pace, 1)",
                "round(pace)",
                "divmod(step, 3)[1]", "divmod(step, 3)[0]", "math.floor(pace)", "math.ceil(pace)",
                "math.trunc(pace)",
                "round(math.cos(step) * 4) / 4", "math.isqrt(step)", "step ** 2 % 7", "step // 2",
                "-step", "int(pace * 4)",
                "float(step)", "abs(pace - 1)", "(step > 2) + 1", "sum(window)", "stats['n']",
                "stats['mean']",
                "step if step < 5 else 5", "math.gcd(step, 6)", "progress.share", "progress.step",
                "phase * 2",
                "phase.value", "where.batch", "sum(where)", "pace_at(step)", "min(1.0, step / 4)",
                "step & 3", "step << 1",
                "max(window)", "sorted([step, 2, 3])[1]", "int(f'{step}')", "len(str(step))",
                "math.copysign(2, -step)",
                "(step or 7)", "step % 3 and pace", "bool(step)", "math.fmod(step, 3)",
                "2.0 ** -min(step, 4)",
                "<t>.float().sum().item()", "<T>.float().max().item()", "int(<T>.argmax())",
            ),
            "B": (
                "step % 3 == 0", "step > 2", "pace < best", "0 < step <= 3", "step == 4",
                "math.isfinite(pace)",
                "phase is Phase.MAIN", "phase > 1", "step in (1, 2, 3)", "stats['n'] >= 3",
                "pace_at(step) > 0.5",
                "math.isclose(pace, 0.5)", "step != best", "not step", "len(window) == 3",
                "progress.step % 2",
            ),
            "S": (
                "f'{step}/{len(window)}'", "f'{pace:.2f}'", "'%d %.1f' % (step, pace)",
                "format(pace, 'g')", "str(step)",
                "f'{step:03d}'", "'#' * (step % 4)", "f'{best:>6.1f}|{phase.name}'", "repr(pace)",
                "'{:+.1e}'.format(pace)",
            ),
            "T": ("<T> * pace", "<T> + step", "lamina.full((3,), float(step))", "<T> * pace_at(step)",
            "lamina.tensor(pace)"),
            "L": ("list(window)", "[step, pace]", "list(range(step % 4))", "list(where)", "progress.rates"),
            "D": ("stats", "where._asdict()"),
            "E": ("stats", "progress", "where", "phase", "(step, pace)", "window"),
        },
        (
            "step += 1", "step += 1", "step += 1", "pace *= 0.5", "pace = max(pace / 2, 0.25)",
            "pace += 0.25",
            "step, pace = step + 1, pace + 0.25", "stats['n'] += 1", "stats['last'] = <N>",
            "best = min(best, <N>)",
            "stats['mean'] += (<N> - stats['mean']) / 4", "window.append(<N>)", "window.append(step)",
            "if step % 3 == 0:\n    <BODY>", "if <N> < best:\n    best = <N>\n    <BODY>",
            "progress.step += 1",
            "progress.rates.append(progress.share)", "del progress.rates[:-3]",
            "log.append(f'{step} {pace:.2f}')",
            "print(step, f'{pace:.1f}')", "stats['last'] = <t>.float().sum().item()", "best = max(best, <N>)",
            "best = <T>.float().sum().item()", "where = where._replace(batch=where.batch + 1)",
            "where = where._replace(epoch=step // 3, batch=step % 3)",
            "phase = Phase.MAIN if step > 2 else Phase.WARM",
            "log.append({'step': step, 'pace': (pace, [best])})", "log.append((step, pace))",
            "log[:] = log[-4:]",
            "while step % 4:\n    step += 1", "for <newN> in range(step % 4):\n    <BODY>",
            "<newN:1>, <newN:2> = divmod(step, 3)", "print(<t>.float().sum().item())",
            "log.append(round(<T>.float().mean().item(), 2))", "stats.update(last=step, n=stats['n'] + 1)",
            "match step:\n    case 0 | 1:\n        <BODY>\n    case k if k > 3:\n        log.append(k)\n"
            "    case _:\n        <BODY>",
        ),
        (
            "step = <V>", "step = 0", "step += 1", "pace = <V>", "pace = 0.5", "step = float(step)",
            "step = 10 ** 20",
            "best = math.inf", "best = <V>", "stats = dict(stats)", "stats['n'] = <V>", "window.clear()",
            "window.append(<V>)", "window = collections.deque([1, 2], maxlen=2)", "progress.step = <V>",
            "progress = Progress()", "phase = Phase.MAIN", "phase = 2", "where = where._replace(batch=<V>)",
            "where = (1, 2)", "pace_at.__defaults__ = (2,)", "pace_at = lambda k: 0.5", "step = True",
            "step = lamina.tensor(2)", "obj = progress", "n = step", "n = pace",
        ),
    ),
    Part(
        "drawing",
        """\
import random
dice = random.Random(5)
numpys = np.random.default_rng(5)
""",
        {
            "N": (
                "dice.random()", "dice.uniform(0, 2)", "dice.randrange(4)", "numpys.random()",
                "numpys.normal()", "round(dice.uniform(0, 4))", "min(dice.random(), 0.5)",
                "numpys.beta(0.4, 0.4)",
            ),
            "B": ("dice.random() < 0.5", "numpys.random() > 0.3", "dice.randint(0, 2) == 1"),
            "T": ("<T> * dice.random()", "<T> + numpys.normal()", "<T>[<T> > 0].sum()",
                  "<T>[<T> > 1].mean()"),
        },
        (
            "if dice.random() < 0.5:\n    <BODY>", "log.append(dice.random())", "n = dice.randrange(3)",
            "places = <t> > 0\n<t>[places] = <t>[places]", "print(f'{numpys.random():.3f}')",
            "<t>.requires_grad_()",
            "x.requires_grad_()\n(x * <N>).sum().backward()\nlog.append(x.grad.clone())",
            "kept = <T>\nplaces = kept > 0.5\nkept[places] = (kept * <N>)[places]\nlog.append(kept.sum())",
        ),
        (
            "log.append(dice.random())", "log.append(float(numpys.random()))", "dice.seed(3)",
            "dice = random.Random(2)", "numpys = np.random.default_rng(1)", "dice = numpys", "dice.random()",
        ),
    ),
)  # fmt: skip
