"""The header of a C library, for C99 and C++."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir.dims import Dim
from ...ir.version import __version__
from .interface import Interface, Port


def text(interface: Interface) -> str:
    """The header."""
    name, upper = interface.name, interface.constants
    arrays = [
        *_listed("Inputs", interface.inputs, interface),
        *_listed("Outputs", interface.outputs, interface),
    ]
    sizes = f"the {len(interface.sizes)} sizes that change" if interface.sizes else "NULL: no size changes"
    parts = [
        f"/* {name}: a model as a C library, written by Lamina {__version__}.",
        " *",
        *(f" * {line}".rstrip() for line in arrays),
        " */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_constants(interface),
        f"""
/* What functions return. */
enum {{
{_codes(interface)}
}};

/* An array.  dtype: f64, f32, f16, bf16, i64, i32, i16, i8, u8 or bool.  shape: -1 for what changes. */
struct {name}_array {{
    const char *name;
    const char *dtype;
    const int64_t *shape;
    int32_t rank;
    int32_t element; /* bytes */
}};

/* A size that changes, and between what it lies. */
struct {name}_range {{
    const char *name;
    int64_t low;
    int64_t high;
}};

/* Run the model; {upper}_OK, or another code, upon which outputs hold nothing of use.
 *
 * inputs, outputs: pointers to dense arrays in C's order, each at a multiple of its element.  Outputs at
 * multiples of 64 bytes save a copy; they overlap nothing.  sizes: {sizes}.
 * workspace: bytes of memory at a multiple of 64, at least {name}_workspace(sizes), of which nothing is
 * kept; NULL for memory that is taken for this call.
 *
 * Any number of threads may call at once, each with a workspace and outputs of its own. */
int {name}_run(
    const void *const *inputs, void *const *outputs, const int64_t *sizes, void *workspace, size_t bytes);

/* The bytes of a workspace for these sizes, or a code as a negative number. */
int64_t {name}_workspace(const int64_t *sizes);

/* Write the shape of an input or output at these sizes, of as many numbers as its rank. */
int {name}_input_shape(int32_t number, const int64_t *sizes, int64_t *shape);
int {name}_output_shape(int32_t number, const int64_t *sizes, int64_t *shape);

/* An input, an output, a size that changes; NULL behind the last. */
const struct {name}_array *{name}_input(int32_t number);
const struct {name}_array *{name}_output(int32_t number);
const struct {name}_range *{name}_size(int32_t number);

/* A code in words. */
const char *{name}_error(int32_t code);

/* The level of CPU that the model runs on here; NULL for none. */
const char *{name}_level(void);

/* Let calls run on up to n threads, 1 to 256, the caller's own among them; one call at a time does, others
 * beside it run on their own.  At first there is 1.  Set 1 again before the library is unloaded; a child that
 * a fork made sets threads anew, before calls run beside that. */
int {name}_set_threads(int32_t n);""",
        *(_load(name) if interface.beside else []),
        *_call(interface),
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {upper}_H */",
        "",
    ]
    return "\n".join(parts)


def _load(name: str) -> Iterator[str]:
    yield f"""
/* Map the weights, a file that was written with the library; runs come after that.  It must not change while
 * the process lives. */
int {name}_load(const char *path);"""


def _words(text: str) -> str:
    """Fit to stand in a comment."""
    for marks in ("*/", "/*", "??"):  # two question marks begin a trigraph
        text = text.replace(marks, f"{marks[0]} {marks[1]}")
    return "".join(c if c.isprintable() else " " for c in text.replace("\\", "/"))


def _quoted(text: str) -> str:
    """Fit to stand in a string of C.

    What is not printed in ASCII is octal numbers of three digits, behind which any character may follow.
    """
    data = text.encode(errors="backslashreplace")
    escaped = (f"\\{chr(c)}" if c in b'"\\?' else chr(c) if 32 <= c < 127 else f"\\{c:03o}" for c in data)
    return "".join(escaped)


def _listed(title: str, ports: tuple[Port, ...], interface: Interface) -> Iterator[str]:
    yield f"{title}:"
    for port in ports:
        shape = ", ".join(interface.words(n) for n in port.shape)
        yield _words(
            f"  {port.name}: {port.dtype}[{shape}]" + ("" if port.name == port.label else f" ({port.label})")
        )


def _constants(interface: Interface) -> Iterator[str]:
    upper = interface.constants
    for what, ports in (("INPUT", interface.inputs), ("OUTPUT", interface.outputs)):
        yield f"#define {upper}_{what}S {len(ports)}"
        for n, port in enumerate(ports):
            start = f"#define {upper}_{what}{n}"
            yield f'{start}_NAME "{_quoted(port.label)}"'
            yield f'{start}_DTYPE "{port.dtype}"'
            yield f"{start}_RANK {len(port.shape)}"
            fixed = [int(extent) for extent in port.shape if not isinstance(extent, Dim)]
            for at, extent in enumerate(port.shape):
                if not isinstance(extent, Dim):
                    yield f"{start}_DIM{at} {extent}"
            if len(fixed) == len(port.shape):
                yield f"{start}_ELEMENTS {math.prod(fixed)}"
    yield f"#define {upper}_SIZES {len(interface.sizes)}"
    for n, size in enumerate(interface.sizes):
        start = f"#define {upper}_SIZE{n}"
        yield f'{start}_NAME "{_quoted(size.label)}"'
        yield f"{start}_LOW INT64_C({size.low})"
        yield f"{start}_HIGH INT64_C({size.high})"


def _codes(interface: Interface) -> str:
    upper = interface.constants
    return "\n".join(
        f"    {upper}_{code.name} = {n}, /* {_words(code.text)} */" for n, code in enumerate(interface.codes)
    )


def _call(interface: Interface) -> Iterator[str]:
    """The inline function of typed pointers."""
    name = interface.name
    arguments = [
        *(f"const {port.c_type} *{port.name}" for port in interface.inputs),
        *(f"{port.c_type} *{port.name}" for port in interface.outputs),
        *(f"int64_t {size.name}" for size in interface.sizes),
    ]
    given = ", ".join(port.name for port in interface.inputs) or "0"
    made = ", ".join(port.name for port in interface.outputs) or "0"
    yield ""
    yield f"/* {name}_run with memory that is taken for the call. */"
    yield f"static inline int {name}_call({', '.join(arguments) or 'void'}) {{"
    yield f"    const void *const inputs[] = {{{given}}};"
    yield f"    void *const outputs[] = {{{made}}};"
    if interface.sizes:
        yield f"    const int64_t sizes[] = {{{', '.join(size.name for size in interface.sizes)}}};"
    sizes = "sizes" if interface.sizes else "NULL"
    yield f"    return {name}_run(inputs, outputs, {sizes}, NULL, 0);"
    yield "}"
