"""What a C library offers: its arrays, its sizes, its codes, and the names that C knows them by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.errors import ArgumentError
from ...ir.graph import Value
from ...ir.kernel.affine import Extent
from ...ir.kernel.types import NUMPY
from ...jit.artifact import LEVELS, MOST, Need, Sizes

# By element type: what C has for it.  Half floats are their bits.
C_TYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "bool": "bool", "i64": "int64_t",
    "i32": "int32_t", "i16": "int16_t", "i8": "int8_t", "u8": "uint8_t",
}  # fmt: skip
# What is no name of a variable, in C or C++, or is a macro of compilers and headers.
TAKEN = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires restrict return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true
    try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
    xor_eq linux unix errno stdin stdout stderr EOF NULL I assert int8_t int16_t int32_t int64_t uint8_t
    uint16_t size_t inputs outputs sizes""".split()
)

LONGEST = 100  # characters of a library's name


@dataclass(frozen=True)
class Code:
    """What a function of the library returns.  name: behind the library's own.  text: for a reader."""

    name: str
    text: str


@dataclass(frozen=True)
class Port:
    """An array that a caller gives.  label: as the user knows it; name: as C does."""

    label: str
    name: str
    dtype: str
    shape: tuple[Extent, ...]

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return NUMPY[self.dtype].itemsize

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]


@dataclass(frozen=True)
class SizeRange:
    """A size that changes.  symbol: as formulas name it."""

    symbol: str
    label: str
    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.label} from {self.low} {'on' if self.high == MOST else f'to {self.high}'}"


@dataclass(frozen=True)
class Interface:
    """What a library offers.

    name: what its symbols begin with.  levels: of the CPU, the best first.  beside: whether weights lie in a
    file of their own.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[SizeRange, ...]
    needs: tuple[Need, ...]
    levels: tuple[str, ...]
    beside: bool

    @property
    def constants(self) -> str:
        """What macros and codes begin with."""
        return constants_prefix(self.name)

    @property
    def ports(self) -> tuple[Port, ...]:
        return (*self.inputs, *self.outputs)

    def words(self, dim: Extent) -> str:
        """A size as the user names it."""
        known = {size.symbol: size.label for size in self.sizes}
        return re.sub(r"\bd\d+\b", lambda found: known[found[0]], str(dim))

    @property
    def codes(self) -> tuple[Code, ...]:
        """What functions return, from 0 on."""
        ranges = "; ".join(map(str, self.sizes))
        needs = "; ".join(need.words for need in self.needs)
        return (
            Code("OK", "done"),
            Code("NULL", "a pointer is NULL"),
            Code("MISALIGNED", "an array does not begin at a multiple of its element, or a workspace of 64"),
            Code("SIZE", f"a size is out of range{ranges and f': {ranges}'}"),
            Code("CONSTRAINT", f"these sizes do not fit{needs and f': the model takes such that {needs}'}"),
            Code("WORKSPACE", f"the workspace is smaller than {self.name}_workspace says"),
            Code("OVERLAP", "an output or the workspace overlaps another array"),
            Code("INDEX", "an index among the inputs' values is out of range"),
            Code("MEMORY", "there is too little memory"),
            Code("CPU", f"the CPU is none of {', '.join(self.levels)}"),
            Code("WEIGHTS", f"{self.name}_load comes first: the weights are in a file of their own"),
            Code("FILE", "the file of weights can't be opened"),
            Code("DAMAGED", "the file of weights is not the one that was written with the library"),
            Code("THREADS", "there are fewer threads to be had"),
            Code("ARGUMENT", "there is no input, output or number of threads of this number"),
        )

    def code(self, name: str) -> int:
        return [code.name for code in self.codes].index(name)


def interface_of(
    name: str,
    inputs: Iterable[tuple[str, Value]],
    outputs: Iterable[tuple[str, Value]],
    sizes: Sizes | None,
    levels: Sequence[str],
    beside: bool,
) -> Interface:
    """The interface of arrays by their labels."""
    taken, own = {*TAKEN, f"{name}_run"}, f"{constants_prefix(name)}_"
    ranges = tuple(
        SizeRange(symbol, said.name, _identifier(said.name, taken, own), said.low, said.high)
        for symbol, said in (sizes.ranges.items() if sizes else ())
    )
    given, made = (
        tuple(Port(label, _identifier(label, taken, own), v.dtype.short, v.shape) for label, v in ports)
        for ports in (inputs, outputs)
    )
    return Interface(name, given, made, ranges, tuple(sizes.needs) if sizes else (), tuple(levels), beside)


def _identifier(label: str, taken: set[str], own: str) -> str:
    """A name that C takes, not yet taken: `table['a']` is table_a.  own: how the library's macros begin."""
    plain = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_") or "x"
    plain = f"x{plain}" if plain[0].isdigit() else plain
    is_macro = len(plain) > 1 and plain == plain.upper() or plain.startswith(own)  # as INT64_MAX
    number, name = 2, f"{plain}_" if is_macro or plain in TAKEN else plain
    while name in taken:
        number, name = number + 1, f"{plain}_{number}"
    taken.add(name)
    return name


def library_name(said: str | None, stem: str) -> str:
    """What the symbols of a library begin with: what is said, or a file's name.  Raises ArgumentError."""
    name = said
    if name is None:
        plain = re.sub(r"\W+", "_", stem.removeprefix("lib"), flags=re.ASCII).strip("_") or "model"
        name = (f"m{plain}" if plain[0].isdigit() else plain)[:LONGEST]
    inner = name == "lamina" or name.startswith(tuple(map(level_prefix, LEVELS)))
    if inner or re.fullmatch(rf"[A-Za-z]\w{{0,{LONGEST - 1}}}", name, re.ASCII) is None:
        raise ArgumentError(
            f"export(name): a name in C begins with a letter, which letters, digits and _ follow: {name!r}",
            f"of up to {LONGEST} characters",
            "and lamina, alone or with a level of CPU, is what the library's inner names begin with",
        )
    return name


def constants_prefix(name: str) -> str:
    """What a library's macros and codes begin with: no other library's, whose name differs in capitals alone.

    digits -> DIGITS, Digits -> Digits, DIGITS -> kDIGITS, and, as nothing else is to be that,
    kDIGITS -> kkDIGITS.
    """
    if name == name.lower():
        return name.upper()
    return f"k{name}" if re.fullmatch("k*[A-Z0-9_]+", name) else name


def level_prefix(level: str) -> str:
    """What the inner names of a level's code begin with."""
    return f"lamina_{level.replace('-', '_')}"


def output_labels(tree: Any) -> dict[int, str]:
    """What results are known as, by number, in the structure that a function returned."""
    found: dict[int, str] = {}
    for path, at in _leaves(tree, ""):
        found.setdefault(at, path.removeprefix("_") or "output")
    return {at: f"output{path}" if path[0].isdigit() else path for at, path in found.items()}


def output_leaves(tree: Any) -> list[int]:
    """Which result each tensor is in the structure that a function returned."""
    return [at for _, at in _leaves(tree, "")]


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(tree, int):
        yield path, tree
        return
    kind, *rest = tree
    if kind == "value":  # a number that is the same at each call
        return
    for key, item in rest if kind == "dict" else enumerate(rest):
        yield from _leaves(item, f"{path}_{key}")
