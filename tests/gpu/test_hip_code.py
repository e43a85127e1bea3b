"""Code objects of AMD's GPUs: what is read of them, what is refused; and HIP's table against AMD's header."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from made_cubin import pointers
from made_hsaco import MACHINES, described, hsaco, packed

from lamina.ir.errors import DeviceError
from lamina.passes.triton.target import Target
from lamina.runtime.cuda import hip
from lamina.runtime.cuda.hsaco import kernel
from lamina.runtime.cuda.launch import check_layout, layout

NO_TRITON = "Triton is not installed: the extra gpu has it"


# ---- what is read
@given(st.lists(st.tuples(st.integers(0, 64), st.integers(1, 4096)), max_size=40))
def test_arguments_are_read_back(gaps):
    places, end = [], 0
    for gap, size in gaps:
        places.append((end + gap, size))
        end += gap + size
    made = [described("other", pointers(3)), described("kernel", tuple(places)), described("kernel2", ())]
    found = kernel(hsaco(made), "kernel")
    assert found.arguments == tuple(places) and found.kernarg == end
    assert kernel(hsaco(made), "other").arguments == pointers(3)


def test_what_a_kernel_needs_is_read():
    needs = {
        "sgpr_count": 101, "vgpr_count": 512, "agpr_count": 256, "sgpr_spill_count": 2, "vgpr_spill_count": 3,
        "group_segment_fixed_size": 65536, "private_segment_fixed_size": 70000,
        "max_flat_workgroup_size": 1024,
    }  # fmt: skip
    for target in MACHINES:
        found = kernel(hsaco([described("k", pointers(1), **needs, wavefront_size=32)], target), "k")
        assert (found.target, found.lanes, found.threads) == (target, 32, 1024)
        assert (found.sgprs, found.vgprs, found.agprs, found.spills) == (101, 512, 256, 5)
        assert (found.group, found.private, found.kernarg) == (65536, 70000, 24)


def test_what_the_driver_adds_is_no_argument_of_a_launch():
    made = described("k", (*pointers(1), (24, 4), (28, 2)))
    for hidden, name in zip(made[".args"][-2:], ("hidden_block_count_x", "hidden_group_size_x"), strict=True):
        hidden[".value_kind"] = name
    assert kernel(hsaco([made]), "k").arguments == pointers(1) and kernel(hsaco([made]), "k").kernarg == 30


def test_other_notes_are_passed_by():
    others = struct.pack("<III", 4, 6, 32) + b"GNU\0" + b"abcdef\0\0"  # of that type, and of another owner
    others += struct.pack("<III", 7, 0, 33) + b"AMDGPU\0\0"
    assert kernel(hsaco([described("k", pointers(2))], others=others), "k").arguments == pointers(2)


# ---- what is refused
def test_an_unknown_kernel_is_named():
    data = hsaco([described("kernel", pointers(1))])
    for name in ("kerne", "kernel2", ""):
        with pytest.raises(DeviceError, match=f"the code object has no kernel {name}"):
            kernel(data, name)


def test_other_files_are_no_code_objects():
    data = hsaco([described("k", pointers(1))])
    for place, byte in ((0, 0), (4, 1), (5, 2), (18, 190), (58, 10)):  # magic, width, order, machine, entry
        with pytest.raises(DeviceError, match="a code object is a 64-bit ELF file for AMD's GPUs"):
            kernel(data[:place] + bytes([byte]) + data[place + 1 :], "k")
    with pytest.raises(DeviceError, match=r"for a GPU of number 0x30\n  known: gfx90a, gfx1100, gfx942"):
        kernel(hsaco([described("k", pointers(1))], "gfx906"), "k")
    for short in (b"", b"\x7fELF", data[:63]):
        with pytest.raises(DeviceError, match=f"these {len(short)} bytes end before"):
            kernel(short, "k")
    note = data.index(b"AMDGPU")
    with pytest.raises(DeviceError, match="a note that describes its kernels"):
        kernel(data[:note] + b"amdgpu" + data[note + 6 :], "k")


@pytest.mark.parametrize(
    "wrong",
    [
        {"vgpr_count": "many"}, {"vgpr_count": True}, {"kernarg_segment_size": -1}, {"wavefront_size": None},
        {"private_segment_fixed_size": 1 << 33}, {"args": [3]}, {"args": [{}]}, {"args": 7},
        {"args": [{".offset": 0, ".size": 8}]}, {"args": [{".offset": 0, ".size": 800, ".value_kind": "x"}]},
        {"args": [{".offset": k, ".size": 8, ".value_kind": "x"} for k in (8, 0)]},
    ],
)  # fmt: skip
def test_descriptions_that_make_no_sense_are_refused(wrong: dict[str, Any]):
    with pytest.raises(DeviceError, match="describes its kernels by maps of names, sizes and lists"):
        kernel(hsaco([described("k", pointers(2)) | {f".{key}": v for key, v in wrong.items()}]), "k")


def test_metadata_that_is_hostile_is_refused():
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    for content, match in (
        (packed(deep), "within each other"),
        (b"\xdd\xff\xff\xff\xff", "end before"),  # a list of four thousand million values
        (b"\xdb\xff\xff\xff\xff", "end before"),
        (b"\xc7\x01\x01a", "begins no value"),
        (b"\x81\x90\x01", "as a name"),
        (packed(3), "amdhsa.kernels is None"),
        (packed({"amdhsa.kernels": {}}), "amdhsa.kernels is {}"),
    ):
        note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content + bytes(-len(content) % 4)
        with pytest.raises(DeviceError, match=match):
            kernel(hsaco([described("k", ())], others=note), "k")


def read_or_refuse(data: bytes, name: str) -> bool:
    """Whether it was read; DeviceError is the only other thing that may happen."""
    try:
        kernel(data, name)
    except DeviceError:
        return False
    return True


def test_every_truncation_is_refused():
    data = hsaco([described("kernel", pointers(2))])
    assert read_or_refuse(data, "kernel")
    assert not any(read_or_refuse(data[:n], "kernel") for n in range(len(data)))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_are_read_or_refused(changes):
    data = bytearray(hsaco([described("kernel", pointers(2))]))
    for place, byte in changes:
        data[place % len(data)] = byte
    read_or_refuse(bytes(data), "kernel")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    assert not read_or_refuse(data, "kernel")
    note = struct.pack("<III", 7, len(data), 32) + b"AMDGPU\0\0" + data + bytes(-len(data) % 4)
    read_or_refuse(hsaco([], others=note), "kernel")


# ---- what the compiler makes
@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx1100"])
def test_the_compilers_code_objects_are_read(target):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.code import Code
    from lamina.passes.triton.compiler import compile_code

    source = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x, n, s, y):\n"
        "    at = tl.arange(0, 256)\n    tl.store(y + at, tl.load(x + at, mask=at < n) * s, mask=at < n)\n"
    )
    types = ("*fp32", "i64", "fp32", "*fp32")
    made = compile_code(Code("k", source, types, (True, False, False, True), 2, 1, 1), Target.named(target))
    found, known = kernel(made.code, "k"), Target.named(target)
    check_layout("k", types, found.arguments)
    assert (found.target, found.lanes, found.threads) == (target, known.warp, 2 * known.warp)
    assert found.kernarg == sum(layout(types)[-1]) and not found.spills and not found.private
    for key, own in (("vgpr_count", found.vgprs), ("sgpr_count", found.sgprs)):  # as the assembler tells it
        assert re.search(rf"\.{key}: +(\d+)", made.text)[1] == str(own)
    for n in range(0, len(made.code), 97):
        assert not read_or_refuse(made.code[:n], "k")


# ---- the table, against the header that Triton brings: HIP 7.1's own
def header() -> list[str]:
    """How a C++ compiler finds it."""
    spec = find_spec("triton")
    folder = Path(spec.origin).parent / "backends" / "amd" / "include" if spec and spec.origin else None
    if folder is None or not (folder / "hip" / "hip_runtime_api.h").exists():
        pytest.skip(NO_TRITON)
    if shutil.which("g++") is None:
        pytest.skip("g++ reads HIP's header, and is not installed")
    return ["-D__HIP_PLATFORM_AMD__", "-D__HIP_DISABLE_CPP_FUNCTIONS__", f"-I{folder}"]


PROGRAM = r"""
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <hip/hip_runtime_api.h>
template <class T> char letter() {
    if (std::is_pointer<T>::value) return 'p';
    if (std::is_same<T, float>::value) return 'f';
    constexpr bool is_enum = std::is_enum<T>::value;
    using I = typename std::conditional<is_enum, std::underlying_type<T>, std::common_type<T>>::type::type;
    bool is_signed = std::is_signed<I>::value;
    switch (sizeof(T)) {
        case 1: return 'b';
        case 2: return 'h';
        case 4: return is_signed ? 'i' : 'u';
        default: return std::is_same<I, size_t>::value ? 'z' : 'q';
    }
}
template <class T> struct Pointee { static char letter_of() { return '-'; } };
template <class T> struct Pointee<T *> {
    static char letter_of() {
        if constexpr (std::is_pointer<T>::value || std::is_arithmetic<T>::value) return letter<T>();
        return '?';
    }
};
template <class R, class... A> void tell(const char *name, R (*)(A...)) {
    std::printf("%s ", name);
    int unused[] = {0, (std::putchar(letter<A>()), 0)...};
    std::putchar(' ');
    int other[] = {0, (std::putchar(Pointee<A>::letter_of()), 0)...};
    (void)unused, (void)other;
    std::printf("\n");
}
int main() {
LINES
}
"""


def told(lines: list[str], folder: Path) -> list[list[str]]:
    """What a program with those lines prints, word by word."""
    flags = header()
    source, program = folder / "told.cpp", folder / "told"
    source.write_text(PROGRAM.replace("LINES", "\n".join(lines)))
    built = subprocess.run(
        ["g++", "-std=c++17", *flags, "-w", str(source), "-o", str(program)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr[:3000]
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in printed.splitlines()]


def test_functions_take_what_amds_header_says(tmp_path):
    table = {symbol: (written, given) for symbol, written, given in hip.FUNCTIONS.values()} | hip.OTHERS
    named = {symbol: symbol.replace("R0600", "") for symbol in table}  # the header itself puts it there
    found = told([f'tell("{symbol}", (decltype(&{name}))0);' for symbol, name in named.items()], tmp_path)
    assert len(found) == len(table)
    for words in found:
        symbol, taken, behind = (*words, "", "")[:3]
        written, given = table[symbol]
        expected = "p" * len(written) + given.replace("s", "p")
        # a capture's mode is an enum, and so without a sign; a kernel's parameters are pointers to pointers
        assert taken == expected, symbol
        # what is written through a pointer to nothing hangs on another argument
        assert all(theirs in (ours, "?") for ours, theirs in zip(written, behind, strict=False)), symbol


def test_constants_are_those_of_amds_header(tmp_path):
    named = [(name, value) for names in hip.CONSTANTS.values() for name, value in names.values()]
    named += [hip.PORTABLE, ("hipErrorOutOfMemory", 2), ("hipErrorNotReady", 600)]
    named += [("sizeof(hipDeviceProp_t)", hip.PROPERTIES)]
    named += [("offsetof(hipDeviceProp_t, gcnArchName)", hip.ARCHITECTURE)]
    found = told([f'std::printf("%d\\n", (int)({name}));' for name, _ in named], tmp_path)
    assert [int(value) for (value,) in found] == [value for _, value in named]


def test_errors_that_lose_a_device_are_names_of_amds_header(tmp_path):
    from lamina.runtime.cuda.driver import NOT_READY, OUT_OF_MEMORY
    from lamina.runtime.cuda.vendors import HIP_STICKY

    names = sorted(HIP_STICKY)
    found = told([f'std::printf("%d\\n", (int){name});' for name in names], tmp_path)
    assert len(found) == len(names)
    assert not {0, NOT_READY, OUT_OF_MEMORY} & {int(value) for (value,) in found}
