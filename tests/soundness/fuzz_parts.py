"""What random programs are made of: what is read, done and returned, and what changes between calls.

Templates are Python text with placeholders, which `fuzz` fills in:

    <T> <N> <B> <S> <L> <D> <E> <F>   an expression: tensor, number, bool, string, list of numbers, dict of
                                      numbers, anything, function of one tensor
    <t> <n> <l>                       a local variable that holds one; <mt> <mn> one that may be assigned
    <newT> <newN> ...                 a new local variable;  <newN:1> can be met again as <1>
    <BODY>                            a block of statements
    <V> <I> <K> <W> <X>               a number, a small index, a key, a word, a tensor, as literals

Numbers are small multiples of 1/4 wherever Python looks at them, so that no branch hangs on rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PRELUDE = '''\
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, os, random
import types, typing
import numpy as np
import lamina
from lamina import nn, optim
Tensor = lamina.Tensor
log = []
def keep(t):
    return t.clamp(-16, 16).round() if t.is_floating_point() else t.clamp(-16, 16)
def row(t):
    return t[0] if t.ndim else t
def tensors(r):
    held = r.values() if isinstance(r, dict) else r if isinstance(r, (list, tuple)) else [r]
    return [v for v in held if isinstance(v, Tensor) and v.is_floating_point()]
def touch(r):
    """Write to what a call returned."""
    for v in tensors(r):
        with lamina.no_grad(), contextlib.suppress(RuntimeError):
            v.add_(1)
    if isinstance(r, list):
        r.append(0)
def back(r):
    """Differentiate what a call returned."""
    for v in tensors(r):
        if v.requires_grad:
            with contextlib.suppress(RuntimeError):
                v.sum().backward(retain_graph=True)
def drop(o, name):
    with contextlib.suppress(AttributeError):
        delattr(o, name)
'''


@dataclass(frozen=True)
class Part:
    """Some state of a program's module: its text, expressions by type that read it, statements that use it,
    and statements that change it between calls.
    """

    name: str
    text: str
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    does: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


LITERALS = {
    "V": (
        "1", "1.0", "True", "0", "0.0", "-0.0", "False", "2", "3", "2.0", "0.5", "-1", "-1.0", "-2.5", "4",
        "float('nan')", "float('inf')", "None", "lamina.tensor(2.0)", "np.float64(0.5)", "10**20",
    ),
    "I": (
        "0", "1", "2", "3",
    ),
    "K": (
        "'a'", "'b'", "'c'",
    ),
    "W": (
        "'relu'", "'a'", "'b'", "''", "'x'",
    ),
    "X": (
        "lamina.tensor([1.0, -2.0, 3.0])", "lamina.tensor([0.5, 0.0, -1.0])",
        "lamina.tensor([2.0, 2.0, 2.0])", "lamina.tensor([[1.0, -2.0, 0.5], [2.0, 0.0, -1.0]])",
        "lamina.tensor(2.0)", "lamina.tensor([1, -2, 3])",
        "lamina.tensor([0.5, 1.0, -3.0], dtype=lamina.float64)",
        "lamina.tensor([-1.0, 2.0, 1.0], requires_grad=True)",
        "lamina.tensor([[1.0], [2.0]]).expand(2, 3)", "lamina.arange(6.0).reshape(3, 2).t()",
        "lamina.tensor([float('nan'), 1.0, -0.0])", "lamina.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[::2]",
        "lamina.zeros(3)", "lamina.tensor([-3.0, -2.0, -1.0])",
    ),
}  # fmt: skip

# Expressions of every program, by type.
READS = {
    "T": (
        "<t>", "<t>", "<t>", "<t>", "<t>", "<t>", "<T> + <N>", "<T> * <N>", "<N> - <T>", "<T> + <T>",
        "<T> - <T>", "keep(<T> * <T>)", "<T>.relu()", "-<T>", "<T>.abs()", "<T>.clone()", "<T>.sum()",
        "<T>.amax()", "row(<T>)", "row(<t>)", "<t>[..., :1]", "<T>.detach()", "<T>.contiguous()",
        "<t>.unsqueeze(0)", "lamina.where(<T> > 0, <T>, <T>)", "lamina.maximum(<T>, <T>)",
        "lamina.zeros(3)", "lamina.ones_like(<T>)", "lamina.full((3,), <N>)",
        "lamina.tensor([<N>, <N>, <N>])", "lamina.arange(3)", "<T>.float()", "<T>.double()",
        "<T>.to(lamina.int64)", "(<T> if <B> else <T>)", "<F>(<T>)", "lamina.randint(0, 4, (3,))",
        "nn.functional.relu(<T>)", "nn.functional.dropout(<T>.float(), 0.5)",
        "functools.reduce(operator.add, [<T>, <T>])", "sum([<T>, <T>])", "lamina.stack([<t>, <t>])[0]",
        "lamina.cat([<t>.reshape(-1), <t>.reshape(-1)])[:3]", "<t>.data", "lamina.tensor(<L>).sum()",
        "<t> ** 2", "<T> == <T>", "lamina.maximum(<T>, lamina.tensor(<N>))",
        "sorted([<t>, <t>], key=lambda v: float(v.sum()))[0]",
        "max(<t>, <t>, key=lambda v: float(v.sum()))", "(lambda v: v + <N>)(<T>)", "<T>.mul(<N>)",
        "<T>.view_as(<T>)",
    ),
    "N": (
        "<I>", "<V>", "<n>", "<n>", "<n>", "<N> + <N>", "<N> - <N>", "(<N> * <N>) % 17", "max(<N>, <N>)",
        "abs(<N>)", "float(<N>)", "int(<N>)", "round(<N>)", "sum(<L>)", "len(<L>)", "<T>.ndim",
        "<T>.numel()", "len(<T>.shape)", "int(<T>.sum())", "<T>.sum().item()", "float(<T>.amax())",
        "math.floor(<N>)", "math.sqrt(abs(<N>))", "(<N> if <B> else <N>)", "len(<S>)",
        "min(<L>, default=0)", "<N> % 3", "<N> // 2", "-<N>", "<N> / 2", "divmod(<N>, 3)[1]",
        "<D>.get(<K>, 1)", "sum(1 for v in <L> if v)", "functools.reduce(operator.add, <L>, 0)",
        "math.isnan(<N>)", "sum(<D>.values())", "pow(2, <I>)", "<t>.shape[-1]", "(<B>) + 1",
        "next(iter(<L>), 0)", "<N> ** 2 % 11", "(<n> or 2)", "<L>.count(<N>)",
        "operator.itemgetter(0)([<N>])", "<n> & 3", "<t>.tolist()[0]",
    ),
    "B": (
        "<N> > <N>", "<N> == <N>", "<N> <= <N>", "<N> is None", "not <B>", "<B> and <B>", "<B> or <B>",
        "bool(<L>)", "<N> in <L>", "<K> in <D>", "isinstance(<E>, (int, float))",
        "isinstance(<E>, Tensor)", "<E> is <E>", "bool(<T>.sum() > 0)", "bool((<T> > 0).any())",
        "<t> is <t>", "<T>.requires_grad", "<t>.dtype == lamina.float32", "<t>.is_contiguous()",
        "lamina.is_grad_enabled()", "callable(<E>)", "any(v > 1 for v in <L>)", "all(v for v in <L>)",
        "<S> == <S>", "<L> == <L>", "<D> == <D>", "<S>.startswith('r')", "hasattr(<E>, 'x')",
        "lamina.get_default_dtype() == lamina.float32", "<t>.data_ptr() == <t>.data_ptr()", "0 < <N> < 3",
        "type(<E>) is float", "<t>.shape == <t>.shape", "<t>._is_view()", "<L> is not <L>", "<N> != <N>",
    ),
    "S": (
        "<W>", "<K>", "str(<N>)", "f'{<n>}'", "f'{<n>!r:>4}'", "f'{float(<n>):.2f}'", "'%s' % <N>",
        "'%s:%s' % (<S>, <N>)", "'{}-{k}'.format(<N>, k=<S>)", "'-'.join(<D>)", "<S>.upper()", "<S> + <S>",
        "type(<E>).__name__", "repr(<L>)", "<S>.replace('a', 'b')", "'yes' if <B> else 'no'", "repr(<N>)",
        "str(<D>)", "str(tuple(<t>.shape))", "<S>[::-1]", "str(<t>.dtype)", "type(iter(<L>)).__name__",
        "type(zip(<L>)).__name__", "' '.join(str(v) for v in <L>)",
    ),
    "L": (
        "[<N>, <N>]", "[v + 1 for v in <L>]", "sorted(<L>)", "sorted(<L>, key=lambda v: -v)",
        "list(range(<I>))", "list(<D>.values())", "<L>[::-1]", "list(map(float, <L>))", "[*<L>, <N>]",
        "list(filter(None, <L>))", "[v for v in <L> if v != <N>]", "list(reversed(<L>))",
        "[a * b for a, b in zip(<L>, <L>)]", "<L>[1:]", "[i for i, v in enumerate(<L>) if v]",
        "list(itertools.chain(<L>, <L>))", "list({v: 1 for v in <L>})",
        "list(map(lambda v: v + <N>, <L>))", "list(itertools.accumulate(<L>))", "[*map(int, <L>)]",
        "list(dict.fromkeys(<L>))", "list(rest)", "list(options.values())",
    ),
    "D": (
        "{'a': <N>}", "{**<D>}", "dict(<D>, a=<N>)", "{k: v for k, v in <D>.items()}",
        "dict(zip('ab', <L>))", "{k: v for k, v in <D>.items() if v}", "dict(sorted(<D>.items()))",
        "<D> | {'b': <N>}", "options", "dict(options)",
    ),
    "E": (
        "<T>", "<N>", "<S>", "<L>", "<D>", "None", "<t>", "obj", "rest", "held", "(<N>, <T>)", "<B>",
        "options",
    ),
    "F": (
        "keep", "row", "(lambda v: v * <N>)", "(lambda v, k=<N>: v + k)",
        "functools.partial(operator.mul, <N>)", "operator.neg", "lamina.relu",
        "(lambda v: v if <B> else -v)",
    ),
}  # fmt: skip

# Statements of every program.
DOES = (
    "<newT> = <T>", "<newT> = <T>", "<newT> = <T>", "<mt> = <T>", "<mt> = <T>", "<newN> = <N>",
    "<mn> = <N>", "<newL> = <L>", "<newD> = <D>", "<newT>, <newN> = <T>, <N>", "<newF> = <F>",
    "<mn> += <N>", "<mt> = <mt> + <T>", "if <B>:\n    <BODY>", "if <B>:\n    <BODY>\nelse:\n    <BODY>",
    "if <T>.sum() > <N>:\n    <BODY>\nelse:\n    <BODY>", "if <T>.sum() > 0:\n    <BODY>",
    "if (<T> > <N>).any():\n    <BODY>\nelif <B>:\n    <BODY>\nelse:\n    <BODY>",
    "for <newN> in <L>:\n    <BODY>", "for <newN>, <newN> in enumerate(<L>):\n    <BODY>",
    "for <newS>, <newN> in <D>.items():\n    <BODY>", "for <newN>, <newN> in zip(<L>, <L>):\n    <BODY>",
    "for <newN> in range(<I>):\n    <BODY>", "for <newS> in <D>:\n    <BODY>",
    "for <newS> in sorted(<D>):\n    <BODY>",
    "for <newN:1> in <L>:\n    if <1> == <N>:\n        break\n    <BODY>\nelse:\n    <BODY>",
    "for <newN:1> in <L>:\n    if not <1>:\n        continue\n    <BODY>",
    "<newN:1> = 0\nwhile <1> < 3 and <B>:\n    <1> += 1\n    <BODY>",
    "<newN:1> = 0\nwhile <mt:2>.sum() < <N> and <1> < 3:\n    <1> += 1\n    <2> = <2> + 1",
    "try:\n    <BODY>\nexcept (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as "
    "error:\n    log.append(type(error).__name__)",
    "try:\n    <BODY>\nexcept (LookupError, ValueError):\n    <BODY>\nelse:\n    <BODY>\nfinally:\n    "
    "<BODY>",
    "try:\n    <BODY>\nfinally:\n    log.append(<N>)", "if <B>:\n    raise ValueError(<S>)",
    "assert <B>, <S>", "if <B>:\n    return <T>", "if <T>.sum() > <N>:\n    return <E>",
    "with lamina.no_grad():\n    <BODY>", "with lamina.enable_grad():\n    <BODY>",
    "with contextlib.suppress(LookupError, TypeError):\n    <BODY>", "print(<S>, <N>)",
    "print(f'{<n>}', end=';')", "print(<L>, sep='')", "log.append(<N>)", "log.append(<S>)",
    "log.append(<t>)", "log[:] = log[-3:]", "x.add_(1)", "y.mul_(2)", "<t>.add_(<N>)", "<t>.add_(<N>)",
    "<t>.mul_(-1)", "<t> += <N>", "<t>[..., :1] = <N>", "row(<t>).zero_()", "<t>.clamp_(-4, 4)",
    "<t>.copy_(row(<T>))", "<t>.data.sub_(1)", "<mt> = <mt>.add_(1)", "<t>.neg_()", "<t>.relu_()",
    "<t>[<t> > 1] = 1", "def <newF>(v, k=<N>):\n    return v + k",
    "def <newF>(v):\n    log.append(<N>)\n    return v - <t>",
    "<newN:1> = <N>\ndef <newF:2>(v):\n    nonlocal <1>\n    <1> += 1\n    return v + <1>\n<newT> = "
    "<2>(<T>) + <2>(<T>)",
    "def <newX:1>(k):\n    return <N> if k < 1 else <1>(k - 1) + k\n<newN> = <1>(<I>)",
    "<newN:1>, *<newL> = [<N>, *<L>]", "<newL:1> = <L>\n<1>.append(<N>)", "<newD:1> = <D>\n<1>['b'] = <N>",
    "<newL:1> = []\nfor v in <L>:\n    <1>.append(v * 2)", "<newN> = obj.x", "obj.x = <N>", "obj.x += 1",
    "<newN> = getattr(obj, 'x', <N>)", "setattr(obj, <K>, <N>)", "<newT> = held[<I>]",
    "for v in held:\n    v.add_(1)", "<newT> = sum(held)", "held.append(<T>)", "held[0] = <T>",
    "<newN> = options.get(<K>, <N>)", "<newN> = sum(rest)",
    "<newT> = keep(<T>) if isinstance(<E>, int) else <T>",
    "<newT:1> = <T>.detach().float().requires_grad_()\n(<1> * <T>.detach()).sum().backward()\n<newT> = "
    "<1>.grad",
    "<newN> = (lambda *a, **k: len(a) + len(k))(*<L>, **<D>)", "<newT> = [<t>, <t>][<B>]",
    "lamina.manual_seed(<I>)", "<newL> = [(yield_ := v) + 1 for v in <L>]",
    "match <N>:\n    case 0:\n        <BODY>\n    case 1 | 2.0:\n        <BODY>\n    case _:\n        "
    "<BODY>",
    "match <E>:\n    case {'a': k}:\n        log.append(k)\n    case [k, *_]:\n        log.append(k)\n    "
    "case int():\n        <BODY>\n    case _:\n        pass",
    "<newX:1> = iter(<L>)\nlog.append(next(<1>, None))\nlog.extend(<1>)", "del log[:<I>]",
    "<newN> = log.pop() if log else <N>", "<newL> = [v for v in (lambda: (k * 2 for k in <L>))()]",
    "<newT>: Tensor = <T>", "pass", "<newT> = <F>(<F>(<T>))",
)  # fmt: skip

RETURNS = (
    "return <T>", "return <T>", "return <t>", "return <T>, <N>", "return {'t': <T>, 'n': <N>, 's': <S>}",
    "return [<t>, <t>, <E>]", "return <L>, <t>", "return x", "return <t>, x, y", "return x[..., :1], <T>",
    "return <D>, <T>", "return log[-1:], <T>", "return obj, <T>", "return <T>.float().exp()",
    "return <T>.float().sigmoid(), <N>", "return <T> / 3", "return (<t>, (<t>, <N>)), held", "return held",
    "return <T>.float().softmax(-1) if <T>.ndim else <T>", "return <T>.float().mean(), <T>",
    "return None", "return <B>, <T>", "return <S>, <T>",
    "return <E>, <E>", "return options, rest, <T>", "return {<t>: <N>}", "return <t>.data, <t>",
)  # fmt: skip

# What happens to arguments, modes, results and the library between calls; r is the last result.
CHANGES = (
    "x = <X>", "x = <X>", "y = <X>", "y = x", "y = x", "y = x.clone()", "y = x[..., :]", "x = y",
    "y = x[..., :1]", "y = x.t()", "y = x.detach()", "x = x.clone()", "x = x.detach().double()",
    "x = x.detach().clone().requires_grad_()", "y = y.detach().clone().requires_grad_()", "x, y = y, x",
    "y = x.view(x.shape)", "x = x.detach().long()", "n = <V>", "n = <V>", "n = <V>", "rest = (<V>,)",
    "rest = ()", "rest = (<V>, <V>)", "options = {'a': <V>}", "options = {'b': <V>, 'a': <V>}",
    "options = {}", "options = dict(reversed(options.items()))", "obj = types.SimpleNamespace(x=<V>)",
    "obj.x = <V>", "obj.y = <V>", "drop(obj, 'x')", "obj = copy.copy(obj)", "obj = None", "held = [x]",
    "held = [x, x]", "held = [x, y]", "held = (y, x)", "held = [v.clone() for v in held]", "held = []",
    "held = [x, x[..., :1]]", "touch(r)", "touch(r)", "back(r)", "back(r)", "log.clear()",
    "log.append(<V>)", "log = []", "log = list(log)", "lamina.set_default_dtype(lamina.float64)",
    "lamina.set_default_dtype(lamina.float32)", "lamina.set_grad_enabled(False)",
    "lamina.set_grad_enabled(True)", "keep = lambda t: t.clamp(-8, 8)", "keep = row", "row = lambda t: t",
    "x.grad = None", "x = r if isinstance(r, Tensor) else x", "y = tensors(r)[0] if tensors(r) else y",
    "x = x.detach()[..., None].squeeze(-1)", "lamina.manual_seed(1)",
    "with maybe, lamina.no_grad(): x.mul_(-1)", "with maybe, lamina.no_grad(): y.add_(1)",
    "x = x.detach(); x.numpy()[...] = 1", "obj = x",
    "x = lamina.tensor([1.0, -2.0, 3.0]); y = lamina.tensor([2.0, 1.0, 0.0])", "Tensor = int",
    "Tensor = lamina.Tensor",
)  # fmt: skip
