"""Parameters of launches lie where compiled kernels look for them, and cubins say where that is."""

import ctypes
import json
import math
import os
import random
import struct
import subprocess
import sys
import threading
from pathlib import Path

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from fake_cuda import Fake, case, missing, run_case
from hypothesis import given
from made_cubin import cubin as made_cubin
from made_cubin import entry, pointers, table

from lamina.ir.errors import ArgumentValueError, DeviceError
from lamina.passes.triton.binary import Binary
from lamina.runtime.cuda import cubin
from lamina.runtime.cuda.driver import Driver
from lamina.runtime.cuda.launch import SCALARS, Packer, bf16_bits, check_layout, layout

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
needs_fake = pytest.mark.skipif(bool(missing()), reason=missing())

# The same types as C lays them out.
C = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32}
C |= {"i64": ctypes.c_int64, "u1": ctypes.c_bool, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16}
C |= {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "fp16": ctypes.c_uint16, "bf16": ctypes.c_uint16}
C |= {"fp32": ctypes.c_float, "fp64": ctypes.c_double}
SPECIAL = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}  # which C has not


def in_c(types: tuple[str, ...]) -> type[ctypes.Structure]:
    kinds = [C.get(type, ctypes.c_uint64) for type in (*types, "*global", "*profile")]
    return type("Parameters", (ctypes.Structure,), {"_fields_": [(f"p{k}", t) for k, t in enumerate(kinds)]})


def a_value(type: str) -> st.SearchStrategy:
    """Any value of a type."""
    if type in ("i1", "u1"):
        return st.booleans()
    if type in ("fp64", "bf16"):
        return st.floats()
    if type in ("fp16", "fp32"):
        return st.floats(width=int(type[2:]))
    signed, bits = type[0] == "i", int(type[1:]) if type[0] != "*" else 64
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


def bits_of(type: str, value: float) -> float:
    """What is written of a value: itself, or the bits of the types that C has not."""
    if type not in SPECIAL:
        return value
    with np.errstate(over="ignore"):
        return int(np.float32(value).astype(SPECIAL[type]).view(np.uint16))


types_lists = st.lists(st.sampled_from([*SCALARS, "*fp32"]), max_size=12).map(tuple)
calls = types_lists.flatmap(lambda types: st.tuples(st.just(types), st.tuples(*map(a_value, types))))


# ---- packing
@given(types_lists)
def test_layout_is_that_of_c(types):
    structure = in_c(types)
    fields = [getattr(structure, name) for name, _ in structure._fields_]
    assert layout(types) == tuple((field.offset, field.size) for field in fields)


@given(calls, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_packed_bytes_are_those_of_c(call, scratch, profile):
    types, values = call
    packer = Packer(types)
    pointers = (ctypes.c_void_p * len(packer.layout)).from_address(packer.pack(values, scratch, profile))
    wanted = in_c(types)(*map(bits_of, types, values), scratch, profile)
    for k, (offset, size) in enumerate(packer.layout):
        there = ctypes.string_at(pointers[k], size)
        assert there == bytes(wanted)[offset : offset + size] or is_nan_twice(types[k], there, values[k])
        assert pointers[k] % size == 0


def is_nan_twice(type: str, there: bytes, value: float) -> bool:
    """NaNs have many bit patterns: one is as good as another."""
    if not (type in SPECIAL or type in ("fp32", "fp64")) or not math.isnan(value):
        return False
    kind = SPECIAL.get(type) or {"fp32": np.float32, "fp64": np.float64}[type]
    return bool(np.isnan(np.frombuffer(there, kind).astype(np.float64)[0]))


halfway = st.integers(0, 0xFFFF).map(
    lambda upper: struct.unpack("<f", struct.pack("<I", upper << 16 | 0x8000))[0]
)


@given(st.floats() | st.floats(width=32) | st.floats(-3.5e38, 3.5e38) | halfway)
def test_bf16_is_rounded_to_nearest_even(value):
    with np.errstate(over="ignore"):
        wanted = np.float32(value).astype(ml_dtypes.bfloat16)
    found = np.uint16(bf16_bits(value)).view(ml_dtypes.bfloat16)
    assert np.isnan(found) if np.isnan(wanted) else found.tobytes() == wanted.tobytes()


def test_values_are_refused_by_position():
    packer = Packer(("*fp32", "i8"))
    with pytest.raises(ArgumentValueError, match=r"300 is no i8\n  parameter 1"):
        packer.pack((0, 300))
    with pytest.raises(ArgumentValueError, match=r"'a' is no \*fp32\n  parameter 0"):
        packer.pack(("a", 3))
    with pytest.raises(ArgumentValueError, match=r"1.5 is no i8"):
        packer.pack((0, 1.5))
    with pytest.raises(ArgumentValueError, match=r"2 parameters: \*fp32, i8\n  1 values"):
        packer.pack((0,))
    with pytest.raises(ArgumentValueError, match="scratch memory are 64-bit"):
        packer.pack((0, 1), scratch=-1)
    with pytest.raises(ArgumentValueError, match=r"1e\+300 is no fp32"):
        Packer(("fp32",)).pack((1e300,))
    with pytest.raises(ArgumentValueError, match="a pointer or a number, not tensordesc"):
        Packer(("tensordesc",))


def test_each_thread_packs_in_memory_of_its_own():
    packer, found = Packer(("i64",)), {}
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        places = packer.pack((k,))
        barrier.wait()  # all have packed before one looks
        first = ctypes.c_void_p.from_address(places).value
        found[k] = ctypes.c_int64.from_address(first).value
        barrier.wait()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: k for k in range(4)}


# ---- cubins
@given(st.lists(st.tuples(st.integers(0, 4096), st.integers(1, 4096)), max_size=20).map(tuple))
def test_table_is_read_back(places):
    data = made_cubin({"other": table(pointers(3)), "kernel": table(places), "kernel2": table(pointers(1))})
    assert cubin.parameters(data, "kernel") == places
    assert cubin.parameters(data, "other") == pointers(3)


def test_an_unknown_kernel_is_named():
    data = made_cubin({"kernel": table(pointers(1))})
    for name in ("kerne", "kernel2", ""):
        with pytest.raises(DeviceError, match=f"the cubin has no kernel {name}"):
            cubin.parameters(data, name)


NEEDS = {"other": (255, 16, 4096), "k": (90, 0, 1 << 20), "k2": (32, 8, 0)}


def test_what_a_kernel_needs_is_read():
    tables = {name: table(pointers(1)) for name in NEEDS}
    data = made_cubin(tables, needs={"a function of it": (24, 0, 0), **NEEDS})
    assert {name: cubin.needs(data, name) for name in NEEDS} == NEEDS
    assert len(data) < 4096  # shared memory is not in the file
    with pytest.raises(DeviceError, match="the cubin has no kernel k3"):
        cubin.needs(data, "k3")
    for nothing in (None, {"k2": (1, 2, 3)}):  # no word of k
        with pytest.raises(DeviceError, match="how many registers and bytes of stack k needs"):
            cubin.needs(made_cubin({"k": table(pointers(1))}, needs=nothing), "k")


def test_a_table_with_gaps_is_refused():
    rows = entry(0x17, struct.pack("<IHHI", 0, 0, 0, 8 << 18)) + entry(
        0x17, struct.pack("<IHHI", 0, 2, 16, 8 << 18)
    )
    with pytest.raises(DeviceError, match=r"describes every parameter of k\n  described: 0, 2"):
        cubin.parameters(made_cubin({"k": rows}), "k")


def test_other_files_are_no_cubins():
    data = made_cubin({"k": table(pointers(1))})
    for place, byte in (
        (0, 0),
        (4, 1),
        (5, 2),
        (18, 62),
        (58, 10),
    ):  # magic, width, order, machine, entry size
        with pytest.raises(DeviceError, match="is a 64-bit ELF file for CUDA"):
            cubin.parameters(data[:place] + bytes([byte]) + data[place + 1 :], "k")
    for short in (b"", b"\x7fELF", data[:63]):
        with pytest.raises(DeviceError, match=f"these {len(short)} bytes end before"):
            cubin.parameters(short, "k")


def test_segments_have_to_be_there():
    data = bytearray(made_cubin({"k": table(pointers(1))}))
    data[32:40], data[54:58] = len(data).to_bytes(8, "little"), struct.pack("<HH", 56, 1)
    segment = struct.pack("<IIQQQQQQ", 1, 0, 64, 0, 0, 8, 8, 1)
    assert cubin.parameters(bytes(data) + segment, "k") == pointers(1)
    beyond = struct.pack("<IIQQQQQQ", 1, 0, 64, 0, 0, len(data), 8, 1)
    for wrong in (segment[:-1], beyond):
        with pytest.raises(DeviceError, match="holds all that its tables point to"):
            cubin.parameters(bytes(data) + wrong, "k")


def read_or_refuse(data: bytes, name: str) -> bool:
    """Whether all of it was read; DeviceError is the only other thing that may happen."""
    found = []
    for read in (cubin.parameters, cubin.needs):
        try:
            read(data, name)
        except DeviceError:
            continue
        found.append(read)
    return found == [cubin.parameters, cubin.needs]


def whole() -> bytes:
    return made_cubin({"kernel": table(pointers(2))}, needs={"kernel": (90, 16, 1024)})


def test_every_truncation_is_refused():
    data = whole()
    assert read_or_refuse(data, "kernel")
    assert not any(read_or_refuse(data[:n], "kernel") for n in range(len(data)))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_are_read_or_refused(changes):
    data = bytearray(whole())
    for place, byte in changes:
        data[place % len(data)] = byte
    read_or_refuse(bytes(data), "kernel")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    assert not read_or_refuse(data, "kernel")
    read_or_refuse(made_cubin({"kernel": data}), "kernel")
    sections = [(".nv.info", 0x70000000, data), (".symtab", 2, data), (".strtab", 3, b"\0kernel\0")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("made_cubin.needed", lambda needs: sections)
        read_or_refuse(made_cubin({"kernel": table(())}, needs=NEEDS), "kernel")


# ---- what the compiler makes
@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> Path:
    """A folder of cubins that take numbers of every type, compiled for each target; with kernels.json."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    folder = tmp_path_factory.mktemp("cubins")
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache")}
    environment.pop("TRITON_INTERPRET", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    program = Path(__file__).with_name("compile_scalars.py")
    subprocess.run([sys.executable, program, folder, *TARGETS], check=True, env=environment)
    return folder


def listed(folder: Path, target: str) -> list[tuple[bytes, str, tuple[str, ...]]]:
    """Code, name and types of each kernel for that target."""
    rows = [row for row in json.loads((folder / "kernels.json").read_text()) if row["target"] == target]
    assert len(rows) == 8
    return [((folder / row["file"]).read_bytes(), row["name"], tuple(row["types"])) for row in rows]


@pytest.mark.parametrize("target", TARGETS)
def test_layout_is_the_compilers(kernels, target):
    seen = set()
    for code, name, types in listed(kernels, target):
        assert cubin.parameters(code, name) == layout(types)
        registers, stack, _ = cubin.needs(code, name)
        assert 1 <= registers <= 64 and stack == 0
        check_layout(name, types, cubin.parameters(code, name))
        with pytest.raises(DeviceError, match="the compiled kernel's parameters lie where"):
            check_layout(name, (*types, "i8"), cubin.parameters(code, name))
        seen.update(types)
    assert seen >= {*SCALARS}


def test_real_cubins_that_are_cut_or_changed_are_read_or_refused(kernels):
    rng = random.Random(5)
    for code, name, _ in listed(kernels, "sm_90"):
        for _ in range(100):
            assert not read_or_refuse(code[: rng.randrange(len(code) - 1)], name)
            changed = bytearray(code)
            for _ in range(rng.randrange(1, 10)):
                changed[rng.randrange(len(code))] = rng.randrange(256)
            read_or_refuse(bytes(changed), name)


VALUES = {"i1": True, "i8": -100, "i16": -30_000, "i32": -2_000_000_000, "i64": -(1 << 62)}
VALUES |= {"u1": True, "u8": 200, "u16": 60_000, "u32": 4_000_000_000, "u64": 1 << 63}
VALUES |= {"fp16": 1.5, "bf16": -3.0, "fp32": 0.1, "fp64": math.pi}


@case
def values_arrive(fake: Fake) -> None:
    """The fake reads each parameter's bytes where the cubin has it: they are the values that were given."""
    folder, seen = Path(os.environ["CUBINS"]), []
    fake.on_launch(lambda launch: seen.append(launch.parameters))
    device = Driver.open().device()
    stream, place = device.stream(), device.allocate(256)
    for code, name, types in listed(folder, "sm_90"):
        given = [place if type[0] == "*" else VALUES[type] for type in types]
        binary = Binary(name, code, "", 4, 1, 0, (0, 1), (0, 1), "sm_90")
        stream.launch(device.load(binary, types), 3, *given, about=name)
        stream.synchronize()
        wanted = in_c(types)(*map(bits_of, types, given), 0, 0)
        for offset, size in layout(types):
            assert seen[-1][offset : offset + size] == bytes(wanted)[offset : offset + size]


@needs_fake
def test_values_arrive_where_the_compiled_kernel_looks(kernels):
    run_case(values_arrive, CUBINS=kernels)
