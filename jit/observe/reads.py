"""What C code may call on what it is given, as data: functions, and the special methods they ask for.

A function of C that a recording may call runs Python of the user's by these methods alone, of these objects;
where it stands in no line, it runs none.  `tests/jit/test_what_c_reads.py` holds the table against CPython by
proxies that count what is asked of them, and the recorder against that.  Seen on 3.11.7, 3.12.1 and 3.13.0.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from ...ir.locks import cached_property

Methods = frozenset[str]


def asks(*names: str) -> Methods:
    """Special methods, spelled without their underscores."""
    return frozenset(f"__{name}__" for name in names)


NOTHING: Methods = frozenset()
ITERABLE = asks("iter", "getitem", "len", "length_hint")
MAPPING = asks("iter", "getitem", "len") | {"keys", "items"}
WHOLE = asks("index")
NUMBER = asks("float", "index")
COMPLEX = asks("complex", "float", "index")
CUT = asks("int", "index", "trunc")
SUM = asks("add", "radd")
TRUTH = asks("bool", "len")
FLAG = TRUTH | WHOLE  # which of them hangs on the version
EQUAL = asks("eq")
SOUGHT = asks("eq", "repr")  # whose text stands in the error where it isn't found
KEY = asks("hash", "eq")
ORDER = asks("lt", "gt")
COMPARED = asks("lt", "gt", "le", "ge", "eq")
TEXT = asks("str", "repr")
FORMAT = asks("str", "repr", "format")
BUFFER = asks("buffer")  # from 3.12 on
CALLED = asks("call")


@dataclass(frozen=True)
class Reads:
    """What functions ask of their arguments by position, the last line for all that follow.

    functions: "home: names; home: names", where a home is a module, or a class of builtins ("list|tuple").
    inside: of what an argument holds, where it is a container.  named: of arguments given by name.
    """

    functions: str
    of: tuple[Methods, ...] = ()
    inside: tuple[Methods, ...] = ()
    named: dict[str, Methods] = field(default_factory=dict)

    @cached_property
    def names(self) -> frozenset[str]:
        """The functions by their full names: `math.cos`, `builtins.list.index`."""
        groups = [group.partition(":") for group in self.functions.split(";")]
        return frozenset(
            f"{home if home in _MODULES else f'builtins.{home}'}.{name}"
            for homes, _, names in groups
            for home in homes.strip().split("|")
            for name in names.split()
        )


_MODULES = frozenset((
    "_bisect", "_functools", "_heapq", "_operator", "_sre", "_struct", "binascii", "builtins", "cmath",
    "collections", "itertools", "math", "nt", "posix", "zlib",
))  # fmt: skip


def _by_operator(name: str, inside: Methods = NOTHING) -> tuple[Reads, Reads]:
    """An operator and its in-place form: Python's own rules, the left operand first."""
    plain = name.strip("_")
    both = (inside,) if inside else ()
    return (
        Reads(f"_operator: {name}", (asks(plain), asks(f"r{plain}")), both),
        Reads(f"_operator: i{plain}", (asks(plain, f"i{plain}"), asks(f"r{plain}")), both),
    )


TABLE: tuple[Reads, ...] = (
    # ---- numbers ----
    Reads("builtins: abs; _operator: abs", (asks("abs"),)),
    Reads("builtins: round", (asks("round"), WHOLE)),
    Reads("builtins: divmod", (asks("divmod"), asks("rdivmod"))),
    Reads("builtins: pow", (asks("pow"), asks("rpow"))),
    Reads("builtins: float", (NUMBER,)),
    Reads("builtins: complex", (COMPLEX, NUMBER)),
    Reads("builtins: int", (CUT, WHOLE), named={"base": WHOLE}),
    Reads("builtins: bin oct hex chr; _operator: index", (WHOLE,)),
    Reads("math: acos acosh asin asinh atan atan2 atanh cbrt copysign cos cosh degrees erf erfc exp exp2 "
          "expm1 fabs fma fmod frexp gamma hypot isclose isfinite isinf isnan ldexp lgamma log log10 log1p "
          "log2 modf nextafter pow radians remainder sin sinh sqrt tan tanh ulp", (NUMBER,),
          named={"rel_tol": NUMBER, "abs_tol": NUMBER}),
    Reads("math: comb factorial gcd isqrt lcm perm", (WHOLE,)),
    Reads("math: ceil", (asks("ceil", "float", "index"),)),
    Reads("math: floor", (asks("floor", "float", "index"),)),
    Reads("math: trunc", (asks("trunc"),)),
    Reads("math: dist fsum", (ITERABLE,), (NUMBER,)),
    Reads("math: prod", (ITERABLE,), (asks("mul", "rmul"),), {"start": asks("mul")}),
    Reads("math: sumprod", (ITERABLE,), (asks("mul", "rmul", "add", "radd"),)),
    Reads("cmath: acos acosh asin asinh atan atanh cos cosh exp isclose isfinite isinf isnan log log10 phase "
          "polar rect sin sinh sqrt tan tanh", (COMPLEX,)),
    # ---- what goes through an iterable ----
    Reads("builtins: list tuple; collections: deque", (ITERABLE,)),
    Reads("builtins: enumerate", (ITERABLE, WHOLE), named={"start": WHOLE}),
    Reads("builtins: zip", (ITERABLE,), named={"strict": TRUTH}),
    Reads("builtins: any all", (ITERABLE,), (TRUTH,)),
    Reads("builtins: sum", (ITERABLE, asks("add")), (SUM,), {"start": asks("add")}),
    Reads("builtins: min max", (ITERABLE | ORDER,), (ORDER | EQUAL,), {"key": CALLED}),  # items of tuples
    Reads("builtins: sorted", (ITERABLE,), (ORDER,), {"key": CALLED, "reverse": FLAG}),
    Reads("builtins: set frozenset", (ITERABLE,), (KEY,)),
    Reads("builtins: dict; collections: OrderedDict", (MAPPING,), (KEY | ITERABLE,)),
    Reads("collections: defaultdict", (NOTHING, MAPPING), (NOTHING, KEY | ITERABLE)),
    Reads("builtins: reversed", (asks("reversed", "len", "getitem"),)),
    Reads("builtins: map; itertools: takewhile dropwhile; _functools: reduce", (CALLED, ITERABLE)),
    Reads("builtins: filter; itertools: filterfalse", (CALLED, ITERABLE), (NOTHING, TRUTH)),
    Reads("itertools: starmap", (CALLED, ITERABLE), (NOTHING, ITERABLE)),
    Reads("itertools: compress", (ITERABLE,), (NOTHING, TRUTH)),
    Reads("itertools: accumulate", (ITERABLE, CALLED), (SUM,), {"func": CALLED, "initial": asks("add")}),
    Reads("itertools: groupby", (ITERABLE, CALLED), (EQUAL,), {"key": CALLED}),
    Reads("itertools: count", (asks("add"), asks("radd"))),
    Reads("itertools: chain zip_longest cycle pairwise", (ITERABLE,)),
    Reads("itertools: product", (ITERABLE,), named={"repeat": WHOLE}),
    Reads("itertools: combinations combinations_with_replacement permutations islice tee", (ITERABLE, WHOLE)),
    Reads("itertools: repeat", (NOTHING, WHOLE)),
    # ---- order ----
    Reads("_bisect: bisect_left bisect_right", (ITERABLE, ORDER, WHOLE), (ORDER, COMPARED), {"key": CALLED}),
    Reads("_bisect: insort_left insort_right", (ITERABLE | {"insert"}, ORDER, WHOLE), (ORDER, COMPARED)),
    Reads("_heapq: heappush heappushpop heapreplace _heapreplace_max", (NOTHING, ORDER), (ORDER, COMPARED)),
    Reads("_heapq: heappop heapify _heappop_max _heapify_max", inside=(ORDER,)),
    # ---- operators by name ----
    *(one for name in ("truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift")
      for one in _by_operator(name)),
    *(one for name in ("sub", "and_", "xor", "or_") for one in _by_operator(name, EQUAL)),
    Reads("_operator: mod imod", (NOTHING, TEXT | CUT), (NOTHING, TEXT)),  # of a text
    Reads("_operator: neg", (asks("neg"),)),
    Reads("_operator: pos", (asks("pos"),)),
    Reads("_operator: inv invert", (asks("invert"),)),
    Reads("_operator: mul", (asks("mul", "index"), asks("rmul", "index"))),  # a sequence times a number
    Reads("_operator: imul", (asks("mul", "imul"), asks("rmul", "index"))),
    Reads("_operator: add concat", (asks("add"), asks("radd") | BUFFER)),
    Reads("_operator: iadd iconcat", (asks("add", "iadd"), asks("radd") | ITERABLE | BUFFER)),
    Reads("_operator: ior", (NOTHING, MAPPING), (EQUAL, EQUAL | ITERABLE)),
    Reads("_operator: lt le gt ge", (COMPARED,), (COMPARED,)),
    Reads("_operator: eq ne", (asks("eq", "ne"),), (EQUAL,)),
    Reads("builtins: len; _operator: truth not_", (TRUTH,)),
    Reads("_operator: length_hint", (ITERABLE, WHOLE)),
    Reads("_operator: contains", (ITERABLE | asks("contains"), EQUAL | WHOLE | BUFFER), (EQUAL,)),
    Reads("_operator: countOf indexOf", (ITERABLE, EQUAL), (EQUAL,)),
    Reads("_operator: getitem", (asks("getitem"), KEY | WHOLE), (EQUAL,)),
    Reads("_operator: setitem", (asks("setitem"), KEY | WHOLE, NOTHING)),
    Reads("_operator: delitem", (asks("delitem"), KEY | WHOLE), (EQUAL,)),
    Reads("_operator: call", (CALLED, NOTHING)),
    Reads("_operator: _compare_digest", (BUFFER,)),
    # ---- sequences ----
    Reads("list|deque|tuple: __contains__ __eq__ __ne__ count", (NOTHING, EQUAL), (EQUAL,)),
    Reads("deque: __ne__", inside=(asks("ne"),)),
    Reads("deque: __add__", (NOTHING, ITERABLE | asks("class"))),
    Reads("list|deque: remove", (NOTHING, SOUGHT), (EQUAL,)),
    Reads("list|deque|tuple: index", (NOTHING, SOUGHT, WHOLE), (EQUAL, SOUGHT)),
    Reads("list|deque|tuple: __lt__ __le__ __gt__ __ge__", inside=(COMPARED,)),
    Reads("list|deque|tuple|str|bytes: __getitem__ __mul__ __rmul__; list|deque: __imul__ insert pop rotate",
          (NOTHING, WHOLE, NOTHING)),
    Reads("list|deque: extend extendleft __iadd__", (NOTHING, ITERABLE)),
    Reads("list: sort", inside=(ORDER,), named={"key": CALLED, "reverse": FLAG}),
    Reads("tuple: __hash__", inside=(asks("hash"),)),
    Reads("tuple: __repr__", inside=(asks("repr"),)),
    # ---- dictionaries and sets ----
    Reads("dict: __contains__ __getitem__ __delitem__ get setdefault pop; set|frozenset: __contains__ add "
          "discard remove", (NOTHING, KEY, NOTHING), (EQUAL, KEY, NOTHING)),
    Reads("dict: update __ior__", (NOTHING, MAPPING), (EQUAL, KEY | ITERABLE)),
    Reads("dict: __eq__ __ne__ __or__ __ror__; set|frozenset: __and__ __or__ __sub__ __xor__ __iand__ "
          "__ior__ __isub__ __ixor__ __eq__ __ne__ __le__ __ge__ __lt__ __gt__", inside=(EQUAL,)),
    Reads("set|frozenset: difference difference_update intersection intersection_update union update "
          "isdisjoint issubset issuperset symmetric_difference symmetric_difference_update",
          (NOTHING, ITERABLE), (EQUAL, KEY)),
    # ---- text and bytes ----
    Reads("builtins: str ascii", (TEXT,), (asks("repr"),)),
    Reads("str: __mod__", (NOTHING, TEXT | CUT), (NOTHING, TEXT)),
    Reads("str: format", (NOTHING, FORMAT), (NOTHING, FORMAT),
          {"a": FORMAT, "b": TEXT, "c": ITERABLE | FORMAT}),  # as tests/jit/counting_proxies.py names them
    Reads("str: format_map", (NOTHING, asks("getitem")), (NOTHING, EQUAL | FORMAT)),
    Reads("str: translate", (NOTHING, asks("getitem"))),
    Reads("str: join", (NOTHING, ITERABLE)),
    Reads("bytes: join", (NOTHING, ITERABLE), (NOTHING, BUFFER)),
    Reads("builtins: bytes bytearray", (ITERABLE | WHOLE | BUFFER | asks("bytes"),), (WHOLE,)),
    Reads("str|bytes: center expandtabs ljust rjust zfill; int|float: __round__", (NOTHING, WHOLE)),
    Reads("str: count endswith find index rfind rindex startswith split rsplit replace",
          (NOTHING, NOTHING, WHOLE), named={"maxsplit": WHOLE}),
    Reads("bytes: count endswith find index rfind rindex startswith split rsplit replace translate "
          "__contains__ hex __buffer__", (NOTHING, BUFFER | WHOLE | TRUTH)),
    Reads("bytes: __add__ strip lstrip rstrip partition rpartition removeprefix removesuffix",
          (NOTHING, BUFFER)),
    Reads("str|bytes: splitlines", (NOTHING, FLAG)),
    Reads("bytes|bytearray: maketrans", (BUFFER,)),
    Reads("int: to_bytes", (NOTHING, WHOLE), named={"length": WHOLE, "signed": TRUTH}),
    # ---- the rest ----
    Reads("posix|nt: fspath", (asks("fspath"),)),
    Reads("_sre: ascii_iscased unicode_iscased ascii_tolower unicode_tolower", (WHOLE,)),
    Reads("_struct: pack unpack iter_unpack unpack_from", (KEY, BUFFER | WHOLE)),
    Reads("binascii: a2b_hex unhexlify a2b_qp b2a_base64 b2a_hex hexlify b2a_qp b2a_uu crc32 crc_hqx",
          (BUFFER, FLAG)),
    Reads("zlib: adler32 crc32 compress", (BUFFER, WHOLE)),
    Reads("zlib: compressobj", (WHOLE,)),
)  # fmt: skip


@functools.cache
def reads(function: str, place: str, at: int | str) -> Methods:
    """What a function may ask of an argument ("of"), or of what it holds ("in"), by position or name."""
    found = NOTHING
    for line in TABLE:
        if function in line.names:
            by_place = line.of if place == "of" else line.inside
            if isinstance(at, str):
                found |= line.named.get(at, NOTHING)
            elif by_place:
                found |= by_place[min(at, len(by_place) - 1)]
    return found


@functools.cache
def asked_by(function: str, at: int) -> Methods | None:
    """What a function may ask of an argument by position; None of a function that stands in no line."""
    if not any(function in line.names for line in TABLE):
        return None
    return reads(function, "of", at)


def name_of(function: Any) -> str:
    """The name of a function or class as the table spells it; of a method bound to an object, its class's."""
    home = getattr(function, "__module__", None)
    return f"{home}.{getattr(function, '__name__', '')}"
