"""Manifests as text, and whole programs in the cache, for the CPU and for GPUs alike."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sample_programs import random_program
from test_native import adds, fails_after_an_update, gather, own_cache

from lamina.passes import cache as disk
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.link import link
from lamina.passes.llvm.native_manifest import NativeManifest
from lamina.passes.triton.launches import Launches, launch_list
from lamina.runtime.cuda import executable as cuda
from lamina.runtime.stored_programs import program_key

__all__ = ["own_cache"]  # which pytest uses for every test

PROGRAMS = (lambda: random_program(3), lambda: adds(0), gather, lambda: gather(True), fails_after_an_update)


def manifests(program):
    return link(program, host_target()).manifest, launch_list(program)[0]


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_manifest_survives_its_text(make):
    for manifest in manifests(make()):
        again = type(manifest).from_json(manifest.json())
        assert again == manifest and hash(again) == hash(manifest)  # equal, and tuples all the way down


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_program_survives_being_packed(make):
    constants = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(True)]
    for manifest in manifests(make()):
        changed = type(manifest)(**vars(manifest) | {"constants": (("f32", (2, 3)), ("bool", ()))})
        again, values, objects = type(manifest).unpack(changed.pack(constants, [b"code", b""]))
        assert again == changed and objects == [b"code", b""]
        assert all(map(np.array_equal, values, constants))


@pytest.mark.parametrize("kind", [NativeManifest, Launches])
def test_a_manifest_of_other_types_is_refused(kind):
    (manifest,) = (found for found in manifests(gather(staged=True)) if type(found) is kind)
    good = manifest.json()
    values = json.loads(good)[1]

    def changed(at: int, value) -> str:
        return json.dumps([kind.FORMAT, [*values[:at], value, *values[at + 1 :]]])

    assert kind.from_json(changed(1, "other")).name == "other"
    for text in (
        "", "null", "[]", "{}", "[" * 100_000, good[:-1],
        good.replace(f"[{kind.FORMAT},", f"[{kind.FORMAT - 1},", 1),
        json.dumps([kind.FORMAT, values[:-1]]),  # a field too few
        json.dumps([kind.FORMAT, [*values, 0]]),
        changed(0, "Manifest"),  # another dataclass
        changed(0, ["Place"]),
        changed(1, 7),  # the name
        changed(2, ["t"]),  # fewer names than params
        changed(3, [["f32", [6, 4]], ["i65", [3]]]),  # no element type
        changed(3, [["f32", [6, 4]], ["i64", [True]]]),
        changed(3, [["f32", [6, -4]], ["i64", [3]]]),
        changed(3, [["f32", [6, 4]], ["i64", [3], 0]]),
        changed(5, [2]),  # a result in a third param
        changed(5, [-1]),
        changed(7, 1 << 47),  # the arena
        changed(7, 0.5),
        changed(8, [["Native", "f", "g"]]),
        changed(8, [["Native", "no name"]]),
        changed(8, [["Launch", 99, [], "k"]]),  # no such code
        changed(8, [["Code"]]),
        changed(8, [None]),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            kind.from_json(text)


def test_stored_launches_that_are_no_good_are_forgotten():
    launches, _ = launch_list(adds())
    cache, name = disk.default(), program_key(Launches, "bad")
    text = launches.json().encode()
    for data in (
        b"",
        bytes(8),
        b"nonsense",
        disk.pack(b"[" * 100_000),
        disk.pack(text[:-1]),
        disk.pack(text.replace(b"[4,", b"[3,", 1)),
        disk.pack(text.replace(b'"f32"', b'"f99"')),
    ):
        cache.put(name, data)
        assert cuda.load_program("bad") is None
        assert cache.get(name) is None
