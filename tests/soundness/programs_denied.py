"""Programs that read what guards can hardly follow: chance, files, the environment, NumPy, C code, callers.

A value that differs from call to call must come out as eager draws it, so each source is seeded or made here.
"""

from __future__ import annotations

import array
import contextlib
import copy
import ctypes
import datetime
import gc
import io
import json
import os
import pickle
import random
import re
import string
import struct
import sys
import tempfile
import time
import traceback
import uuid

import numpy as np
from battery import lib as t
from battery import program

scale = 2.0


@program("denied")
def random_numbers_of_python(w):
    f = w.trace(lambda x: x * random.random())
    for seed in w.rounds(1, 2, 1):
        random.seed(seed)
        w.call(f, w.x)


@program("denied")
def a_generator_of_ones_own_seed(w):
    rng = random.Random(0)
    f = w.trace(lambda x: x * rng.choice([1.0, 2.0, 3.0, 4.0]))
    for seed in w.rounds(1, 2, 1):
        rng.seed(seed)
        w.call(f, w.x)


@program("denied")
def a_list_is_shuffled(w):
    values = [1.0, 2.0, 3.0, 4.0]

    @w.trace
    def f(x):
        random.shuffle(values)
        return x * values[0]

    w.see(values=values)
    for seed in w.rounds(1, 2, 1):
        random.seed(seed)
        w.call(f, w.x)


@program("denied")
def random_numbers_of_numpy(w):
    f = w.trace(lambda x: x * float(np.random.rand()))
    for seed in w.rounds(1, 2, 1):
        np.random.seed(seed)
        w.call(f, w.x)


@program("denied")
def a_generator_of_numpy(w):
    rng = np.random.default_rng(0)
    f = w.trace(lambda x: x * float(rng.normal()))
    for seed in w.rounds(1, 2, 1):
        rng = np.random.default_rng(seed)
        w.call(f, w.x)


@program("denied")
def a_clock_that_ticks(w):
    ticks = iter(())
    w.patch(time, "monotonic", lambda: next(ticks))
    f = w.trace(lambda x: x * time.monotonic())
    for start in w.rounds(1, 10):
        ticks = iter(range(start, start + 9))
        w.call(f, w.x)


@program("denied")
def a_clock_in_c(w):
    w.patch(time, "perf_counter", None)
    f = w.trace(lambda x: x * time.perf_counter())
    for start in w.rounds(1, 10):
        time.perf_counter = iter(range(start, start + 9)).__next__
        w.call(f, w.x)


@program("denied")
def the_real_clock_goes_on(w):
    @w.trace
    def f(x):
        return x * 2, time.perf_counter_ns()

    last = [0]

    def later(x, by):
        y, now = f(x * by)
        passed, last[0] = now > last[0], now
        return y, passed

    for by in w.rounds(1.0, 2.0):
        w.call(later, w.x, by)


@program("denied")
def a_new_identifier_each_time(w):
    @w.trace
    def f(x):
        return x * 2, uuid.uuid4().hex

    def different(x, by):
        return f(x * by)[1] != f(x * by)[1], f(x * by)[0]

    for by in w.rounds(1.0, 2.0):
        w.call(different, w.x, by)


@program("denied", jax=True)
def a_date_is_formatted(w):
    day = datetime.date(2020, 1, 1)
    f = w.trace(lambda x: x * day.toordinal() + len(day.strftime("%B")))
    for day in w.rounds(datetime.date(2020, 1, 1), datetime.date(2020, 9, 1)):
        w.call(f, w.x)


@program("denied", jax=True)
def the_environment_by_get(w):
    w.undo(os.environ.pop, "PROGRAM_SCALE", None)
    f = w.trace(lambda x: x * float(os.environ.get("PROGRAM_SCALE", "2")))
    for value in w.rounds(None, "3", "4", None):
        os.environ.pop("PROGRAM_SCALE", None)
        if value:
            os.environ["PROGRAM_SCALE"] = value
        w.call(f, w.x)


@program("denied", jax=True)
def the_environment_by_membership(w):
    w.undo(os.environ.pop, "PROGRAM_FAST", None)
    f = w.trace(
        lambda x: x * 2 if "PROGRAM_FAST" in os.environ else x * float(os.getenv("PROGRAM_FAST", "3"))
    )
    for there in w.rounds(False, True, False):
        os.environ.pop("PROGRAM_FAST", None)
        if there:
            os.environ["PROGRAM_FAST"] = ""
        w.call(f, w.x)


@program("denied")
def a_file_is_read(w):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        w.undo(os.unlink, file.name)

    @w.trace
    def f(x):
        with open(file.name) as opened:
            return x * float(opened.read())

    for text in w.rounds("2", "3", "2"):
        with open(file.name, "w") as opened:
            opened.write(text)
        w.call(f, w.x)


@program("denied")
def a_file_is_written(w):
    folder = tempfile.TemporaryDirectory()
    w.undo(folder.cleanup)
    path = os.path.join(folder.name, "log")

    @w.trace
    def f(x, line):
        with open(path, "a") as opened:
            opened.write(line)
        return x * 2

    def written():
        with contextlib.suppress(FileNotFoundError), open(path) as opened:
            return opened.read()

    w.see(written=written)
    for line in w.rounds("a", "b"):
        w.call(f, w.x, line)


@program("denied")
def a_path_exists_or_not(w):
    folder = tempfile.TemporaryDirectory()
    w.undo(folder.cleanup)
    path = os.path.join(folder.name, "flag")
    f = w.trace(lambda x: x * 2 if os.path.exists(path) else x * 3)
    for there in w.rounds(False, True, False):
        if there:
            open(path, "w").close()
        elif os.path.exists(path):
            os.unlink(path)
        w.call(f, w.x)


@program("denied")
def a_stream_is_read_on(w):
    stream = io.StringIO()
    f = w.trace(lambda x: x * float(stream.readline() or 1))
    for text in w.rounds("2\n3\n4\n5\n", "6\n7\n"):
        stream = io.StringIO(text)
        w.call(f, w.x)


@program("denied")
def input_from_the_terminal(w):
    w.undo(setattr, sys, "stdin", sys.stdin)
    f = w.trace(lambda x: x * float(sys.stdin.readline() or 1))
    for text in w.rounds("2\n3\n4\n5\n", "6\n7\n"):
        sys.stdin = io.StringIO(text)
        w.call(f, w.x)


@program("denied")
def the_identity_of_an_object(w):
    things = [object(), object()]
    thing = things[0]
    f = w.trace(lambda x: x * 2 if id(thing) == id(things[0]) else x * 3)
    for thing in w.rounds(*things, things[0]):
        w.call(f, w.x)


@program("denied")
def the_default_repr_of_an_object(w):
    class Thing:
        pass

    held = [Thing(), Thing()]
    thing = held[0]
    f = w.trace(lambda x: x * 2 if repr(thing) == repr(held[0]) else x * 3)
    for thing in w.rounds(*held, held[0]):
        w.call(f, w.x)


@program("denied")
def a_local_of_the_caller(w):
    @w.trace
    def f(x):
        frame = sys._getframe()
        while "factor" not in frame.f_locals:
            frame = frame.f_back
        return x * frame.f_locals["factor"]

    def first(x):
        factor = 2.0  # noqa: F841
        return f(x)

    def second(x):
        factor = 3.0  # noqa: F841
        return f(x)

    for caller in w.rounds(first, second, first):
        w.call(caller, w.x)


@program("denied")
def the_name_of_the_caller(w):
    @w.trace
    def f(x):
        names = [frame.name for frame in traceback.extract_stack() if frame.filename == __file__]
        return x * len(names[-2])

    def one(x):
        return f(x)

    def three(x):
        return f(x)

    for caller in w.rounds(one, three, one):
        w.call(caller, w.x)


@program("denied", jax=True)
def a_memory_of_ctypes(w):
    number = ctypes.c_double(2.0)
    f = w.trace(lambda x: x * number.value)
    for number.value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("denied", jax=True)
def a_packed_struct(w):
    memory = bytearray(8)
    f = w.trace(lambda x: x * struct.unpack("d", memory)[0])
    for value in w.rounds(2.0, 3.0, 2.0):
        struct.pack_into("d", memory, 0, value)
        w.call(f, w.x)


@program("denied", jax=True)
def a_memory_view(w):
    memory = array.array("d", [2.0])
    view = memoryview(memory)
    f = w.trace(lambda x: x * view[0])
    for memory[0] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("denied", jax=True)
def text_as_json(w):
    settings = {"scale": 2.0}
    f = w.trace(lambda x: (x * 2, json.dumps(settings)))
    for settings["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("denied", jax=True)
def a_regular_expression(w):
    pattern, text = re.compile(r"(\d+)"), "scale 2"
    f = w.trace(lambda x: x * int(pattern.search(text).group(1)))
    for pattern, text in w.rounds((r"(\d+)", "scale 2"), (r"(\d+)", "a 3"), (r"b(\d)", "4b5")):
        pattern = re.compile(pattern)
        w.call(f, w.x)


@program("denied", jax=True)
def a_template_of_a_string(w):
    values = {"name": "a"}
    template = string.Template("$name!")
    f = w.trace(lambda x: (x * 2, template.substitute(values)))
    for values["name"] in w.rounds("a", "bb", "a"):
        w.call(f, w.x)


@program("denied", jax=True)
def an_object_is_copied_deep(w):
    held = {"scale": [2.0]}
    f = w.trace(lambda x: (x * copy.deepcopy(held)["scale"][0], copy.deepcopy(held)))
    for held["scale"][0] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("denied")
def an_object_is_pickled(w):
    held = {"scale": [2.0]}
    f = w.trace(lambda x: x * pickle.loads(pickle.dumps(held))["scale"][0])
    for held["scale"][0] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("denied")
def a_module_of_settings_is_reloaded(w):
    scope = {}
    source = "value = 2.0"

    @w.trace
    def f(x):
        exec(source, scope)
        return x * scope["value"]

    for source in w.rounds("value = 2.0", "value = 3.0"):
        w.call(f, w.x)


@program("denied")
def the_collector_is_asked(w):
    w.undo(gc.enable)
    f = w.trace(lambda x: x * 2 if gc.isenabled() else x * 3)
    for enable in w.rounds(True, False, True):
        (gc.enable if enable else gc.disable)()
        w.call(f, w.x)


@program("denied")
def the_recursion_limit_is_read(w):
    before = sys.getrecursionlimit()
    w.undo(sys.setrecursionlimit, before)
    f = w.trace(lambda x: x * 2 if sys.getrecursionlimit() > before else x * 3)
    for more in w.rounds(0, 10, 0):
        sys.setrecursionlimit(before + more)
        w.call(f, w.x)


@program("denied")
def the_current_directory(w):
    w.undo(os.chdir, os.getcwd())
    folder = os.path.realpath(tempfile.gettempdir())
    f = w.trace(lambda x: x * 2 if os.getcwd() == folder else x * 3)
    for place in w.rounds(folder, "/", folder):
        os.chdir(place)
        w.call(f, w.x)


# ---- NumPy -------------------------------------------------------------------------------------------------
@program("numpy")
def a_captured_array_changes(w):
    held = np.array([2.0, 3.0], np.float32)
    f = w.trace(lambda x: x * float(held[1]))
    for held[1] in w.rounds(3.0, 4.0, 3.0):
        w.call(f, w.x)


@program("numpy")
def a_captured_array_is_summed(w):
    held = np.array([2.0, 3.0], np.float32)
    f = w.trace(lambda x: x * float(held.sum()) + held.shape[0])
    for held[0] in w.rounds(2.0, 5.0, 2.0):
        w.call(f, w.x)


@program("numpy")
def a_view_of_a_captured_array_changes(w):
    base = np.array([2.0, 3.0], np.float32)
    held = base[1:]
    f = w.trace(lambda x: x * t.tensor(held))
    for base[1] in w.rounds(3.0, 4.0, 3.0):
        w.call(f, w.x)


@program("numpy")
def a_tensor_shares_an_array(w):
    held = np.ones(4, np.float32)
    shared = t.from_numpy(held)
    f = w.trace(lambda x: x * shared)
    for held[0] in w.rounds(1.0, 4.0, 1.0):
        w.call(f, w.x)


@program("numpy")
def a_captured_array_is_written(w):
    held = np.zeros(4, np.float32)

    @w.trace
    def f(x):
        held[1] += 1
        return x * float(held[1])

    w.see(held=held)
    for held[1] in w.rounds(0.0, 10.0):
        w.call(f, w.x)


@program("numpy")
def an_alias_of_a_tensor_is_written(w):
    memory = t.zeros(4)
    alias = memory.numpy()

    @w.trace
    def f(x):
        alias[0] += 1
        return x * memory

    w.see(memory=memory)
    for start in w.rounds(0.0, 5.0):
        memory.fill_(start)
        w.call(f, w.x)


@program("numpy")
def a_result_goes_through_numpy(w):
    factor = 2.0
    f = w.trace(lambda x: t.from_numpy((x * 2).numpy() * np.float32(factor)))
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("numpy")
def an_array_is_given(w):
    held = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    f = w.trace(lambda x, a: x * t.from_numpy(a) + float(a[0]))
    for held[0] in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x, held)


@program("numpy")
def a_number_of_numpy_is_given(w):
    f = w.trace(lambda x, a: x * float(a) + a.dtype.itemsize)
    for a in w.rounds(np.float32(2.0), np.float64(2.0), np.float32(3.0)):
        w.call(f, w.x, a)


@program("numpy")
def a_mask_of_numpy_selects(w):
    mask = np.array([True, False, True, False])
    f = w.trace(lambda x: x * int(np.count_nonzero(mask)))
    for mask[1] in w.rounds(False, True, False):
        w.call(f, w.x)


@program("numpy")
def numpy_calls_a_python_function(w):
    factor = 2.0
    many = np.vectorize(lambda v: v * factor)
    f = w.trace(lambda x: x * float(many(np.array([1.0, 2.0])).sum()))
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("numpy")
def the_error_state_of_numpy(w):
    w.undo(lambda before: np.seterr(**before), np.geterr())

    @w.trace
    def f(x):
        try:
            return x * float(np.float64(1.0) / np.float64(zero))
        except FloatingPointError:
            return x - 1

    zero = 0.0
    for state in w.rounds("ignore", "raise", "ignore"):
        np.seterr(divide=state)
        w.call(f, w.x)
