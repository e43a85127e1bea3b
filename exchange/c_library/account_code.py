"""What a library tells of itself, as LLVM text: its arrays, sizes, codes and level, and shapes at sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ...ir.dims import Dim
from .interface import Interface, Port


def account(interface: Interface) -> Iterator[str]:
    """The tables and functions."""
    inputs, outputs = len(interface.inputs), len(interface.outputs)
    yield constant("lamina_ranks", "i64", [len(port.shape) for port in interface.ports])
    firsts = [0, *accumulate(len(port.shape) for port in interface.ports)][:-1]
    yield constant("lamina_first_dims", "i64", firsts)
    yield _shape(interface, "input", 0, inputs)
    yield _shape(interface, "output", inputs, outputs)
    yield _workspace(interface)
    yield from _described(interface)


def constant(name: str, kind: str, values: Sequence[object]) -> str:
    """A table that is only read."""
    items = ", ".join(f"{kind} {value}" for value in values)
    body = f"[{items}]" if values else "zeroinitializer"
    return f"@{name} = internal constant [{len(values)} x {kind}] {body}, align 8"


def _workspace(interface: Interface) -> str:
    code, ports = interface.code, len(interface.ports)
    dims = sum(len(port.shape) for port in interface.ports)
    given = "icmp ne ptr %sizes, null" if interface.sizes else "icmp eq i32 0, 0"
    return f"""
define i64 @{interface.name}_workspace(ptr %sizes) nounwind {{
entry:
  %dims = alloca [{max(dims, 1)} x i64], align 8
  %nbytes = alloca [{max(ports, 1)} x i64], align 8
  %level = call i32 @lamina_level()
  %runs = icmp ne i32 %level, 0
  br i1 %runs, label %look, label %no.cpu
no.cpu:
  ret i64 {-code("CPU")}
look:
  %given = {given}
  br i1 %given, label %measure, label %null
null:
  ret i64 {-code("NULL")}
measure:
  %measured = call i32 @lamina_measure(ptr %sizes, ptr %dims, ptr %nbytes)
  %sized = icmp eq i32 %measured, 0
  br i1 %sized, label %count, label %refused
refused:
  %wide = zext i32 %measured to i64
  %negative = sub i64 0, %wide
  ret i64 %negative
count:
  %both = call {{i64, i64}} @lamina_need(ptr %sizes, ptr %nbytes, i32 %level)
  %need = extractvalue {{i64, i64}} %both, 0
  %countable = icmp sge i64 %need, 0
  %answer = select i1 %countable, i64 %need, i64 {-code("SIZE")}
  ret i64 %answer
}}"""


def _shape(interface: Interface, what: str, first: int, count: int) -> str:
    code, ports = interface.code, len(interface.ports)
    dims = sum(len(port.shape) for port in interface.ports)
    given = "icmp ne ptr %sizes, null" if interface.sizes else "icmp eq i32 0, 0"
    return f"""
define i32 @{interface.name}_{what}_shape(i32 %number, ptr %sizes, ptr %shape) nounwind {{
entry:
  %dims = alloca [{max(dims, 1)} x i64], align 8
  %nbytes = alloca [{max(ports, 1)} x i64], align 8
  %known = icmp ult i32 %number, {count}
  br i1 %known, label %look, label %unknown
unknown:
  ret i32 {code("ARGUMENT")}
look:
  %given = {given}
  %into = icmp ne ptr %shape, null
  %both = and i1 %given, %into
  br i1 %both, label %measure, label %null
null:
  ret i32 {code("NULL")}
measure:
  %measured = call i32 @lamina_measure(ptr %sizes, ptr %dims, ptr %nbytes)
  %sized = icmp eq i32 %measured, 0
  br i1 %sized, label %copy, label %refused
refused:
  ret i32 %measured
copy:
  %port = add i32 %number, {first}
  %rank.at = getelementptr i64, ptr @lamina_ranks, i32 %port
  %rank = load i64, ptr %rank.at, align 8
  %first.at = getelementptr i64, ptr @lamina_first_dims, i32 %port
  %first = load i64, ptr %first.at, align 8
  %from = getelementptr i64, ptr %dims, i64 %first
  %bytes = mul i64 %rank, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %shape, ptr %from, i64 %bytes, i1 false)
  ret i32 0
}}"""


class _Texts:
    """Constants of C strings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, words: str) -> str:
        data = words.encode(errors="backslashreplace") + b"\0"
        body = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data)
        self.lines.append(f'@lamina_text{len(self.lines)} = internal constant [{len(data)} x i8] c"{body}"')
        return f"ptr @lamina_text{len(self.lines) - 1}"


def _described(interface: Interface) -> Iterator[str]:
    """The tables of arrays, sizes, levels and codes, and the functions that give what is in them."""
    texts = _Texts()
    shapes = list[str]()

    def described(port: Port) -> str:
        dims = [-1 if isinstance(n, Dim) else n for n in port.shape]
        shapes.append(constant(f"lamina_shape{len(shapes)}", "i64", dims))
        fields = (
            texts.of(port.label), texts.of(port.dtype), f"ptr @lamina_shape{len(shapes) - 1}",
            f"i32 {len(dims)}", f"i32 {port.element}",
        )  # fmt: skip
        return f"{{ {', '.join(fields)} }}"

    array, size = "{ ptr, ptr, ptr, i32, i32 }", "{ ptr, i64, i64 }"
    ranges = [f"{{ {texts.of(s.label)}, i64 {s.low}, i64 {s.high} }}" for s in interface.sizes]
    tables = [
        ("input", array, [described(port) for port in interface.inputs]),
        ("output", array, [described(port) for port in interface.outputs]),
        ("size", size, ranges),
    ]
    for name, kind, rows in tables:
        yield constant(f"lamina_{name}s", kind, rows)
        yield f"""
define ptr @{interface.name}_{name}(i32 %number) nounwind {{
  %known = icmp ult i32 %number, {len(rows)}
  %at = getelementptr {kind}, ptr @lamina_{name}s, i32 %number
  %answer = select i1 %known, ptr %at, ptr null
  ret ptr %answer
}}"""
    codes = [texts.of(code.text).removeprefix("ptr ") for code in interface.codes]
    unknown = texts.of("this is no code of this library's")
    yield constant("lamina_codes", "ptr", codes)
    yield f"""
define ptr @{interface.name}_error(i32 %code) nounwind {{
  %known = icmp ult i32 %code, {len(codes)}
  %index = select i1 %known, i32 %code, i32 0
  %at = getelementptr ptr, ptr @lamina_codes, i32 %index
  %told = load ptr, ptr %at, align 8
  %answer = select i1 %known, ptr %told, {unknown}
  ret ptr %answer
}}"""
    levels = [texts.of(level).removeprefix("ptr ") for level in interface.levels]
    yield constant("lamina_level_names", "ptr", ["null", *levels])
    yield f"""
define ptr @{interface.name}_level() nounwind {{
  %level = call i32 @lamina_level()
  %at = getelementptr ptr, ptr @lamina_level_names, i32 %level
  %name = load ptr, ptr %at, align 8
  ret ptr %name
}}"""
    yield from texts.lines
    yield from shapes
