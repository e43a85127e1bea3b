"""What calls into C code may be made while a run is recorded, as data: default deny.

A C function that stands in no table here is refused: nobody knows what it reads.
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import operator
import os
import sys
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

# C modules whose functions are functions of their arguments, and do nothing else.
PURE_MODULES = frozenset((
    "_bisect", "_collections", "_collections_abc", "_functools", "_heapq", "_json", "_operator", "_sre",
    "_string", "_struct", "binascii", "cmath", "itertools", "math", "operator", "unicodedata", "zlib",
))  # fmt: skip
# But these of them write to what they are given, or call it in ways of their own.
IMPURE_IN_PURE = frozenset(("_count_elements", "pack_into"))
# They order a list that they are given.
LIST_WRITERS = frozenset((
    "heappush", "heappop", "heapify", "heapreplace", "heappushpop", "_heappop_max", "_heapify_max",
    "_heapreplace_max", "insort", "insort_left", "insort_right",
))  # fmt: skip
PURE_BUILTINS = frozenset((
    builtins.abs, builtins.round, builtins.divmod, builtins.pow, builtins.ord, builtins.chr, builtins.bin,
    builtins.hex, builtins.oct, builtins.sum, builtins.any, builtins.all, builtins.min,
    builtins.max, builtins.sorted, builtins.len, builtins.ascii, sys.intern, sys.is_finalizing,
    str.maketrans, bytes.maketrans, bytearray.maketrans, os.fspath,
))  # fmt: skip
# They go through what they are given as iterables.
CONSUMERS = frozenset((
    builtins.list, builtins.tuple, builtins.set, builtins.frozenset, builtins.dict, builtins.zip,
    builtins.enumerate, builtins.map, builtins.filter, builtins.reversed, builtins.bytearray,
    collections.OrderedDict, collections.deque, collections.defaultdict, itertools.chain, itertools.islice,
    itertools.repeat, itertools.accumulate, itertools.product, itertools.starmap, itertools.count,
    itertools.cycle, itertools.takewhile, itertools.dropwhile, itertools.combinations,
    itertools.permutations, itertools.pairwise, itertools.zip_longest, itertools.groupby,
    itertools.compress, itertools.filterfalse, itertools.combinations_with_replacement,
))  # fmt: skip
# Of these the first argument is a function.
WITH_FUNCTION_FIRST = frozenset((
    builtins.map, builtins.filter, itertools.starmap, itertools.takewhile, itertools.dropwhile,
    itertools.filterfalse,
))  # fmt: skip
# They compare items as `in` does: by identity, then by `==`.
BY_IDENTITY = frozenset((operator.countOf, operator.indexOf, itertools.groupby))
SCALARS: dict[type, str] = {  # classes that make an atom, and the method of an object that they ask
    int: "__int__", float: "__float__", complex: "__complex__", str: "__str__", bytes: "__bytes__",
}  # fmt: skip
# Classes of C that hold what they are given, and no more.
HOLDERS = frozenset((
    property, staticmethod, classmethod, functools.partial, types.SimpleNamespace, types.MethodType,
    types.MappingProxyType, types.GenericAlias, operator.itemgetter, operator.attrgetter,
    operator.methodcaller, weakref.ref, types.FunctionType, functools.cached_property,
))  # fmt: skip
# Modules whose classes make constant objects of constants.
CONSTANT_MAKERS = frozenset((*PURE_MODULES, "builtins", "datetime", "decimal", "_decimal", "types"))

# The standard library's functions in Python that are run as C code is: they keep caches, or lead to C code.
AS_IF_C: dict[str, frozenset[str]] = {
    "re": frozenset(("compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer",
                     "escape")),
    "json": frozenset(("dumps", "loads")),
}  # fmt: skip

LIST_READS = frozenset(("index", "count", "copy", "__len__", "__contains__", "__iter__", "__reversed__",
                        "__getitem__", "__eq__", "__ne__", "__add__", "__mul__", "__rmul__", "__lt__",
                        "__le__", "__gt__", "__ge__"))  # fmt: skip
LIST_WRITES = frozenset(("append", "extend", "insert", "appendleft", "clear", "extendleft", "__iadd__"))
LIST_READ_WRITES = frozenset(("pop", "remove", "sort", "reverse", "popleft", "rotate", "__imul__"))
SET_READS = frozenset((
    "copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint",
    "symmetric_difference", "__contains__", "__len__", "__iter__", "__and__", "__or__", "__sub__", "__xor__",
    "__eq__", "__ne__", "__le__", "__lt__", "__ge__", "__gt__",
))  # fmt: skip
SET_WRITES = frozenset((
    "add", "discard", "remove", "update", "clear", "pop", "difference_update", "intersection_update",
    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__",
))  # fmt: skip
ARRAY_WRITES = frozenset((
    "fill", "sort", "put", "resize", "setflags", "partition", "itemset", "setfield", "byteswap",
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "setstate", "__setstate__",
))  # fmt: skip
ARRAY_FILES = frozenset(("tofile", "dump"))
NUMPY_DENIED = frozenset((
    "load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile", "memmap",
    "open_memmap", "fromregex", "DataSource", "copyto", "put", "place", "putmask", "put_along_axis",
    "fill_diagonal", "seterr", "seterrcall", "setbufsize", "set_printoptions", "getbufsize", "geterr",
    "may_share_memory", "shares_memory", "empty", "empty_like", "frompyfunc",
))  # fmt: skip
FILE_WRITES = frozenset(("write", "writelines", "flush"))
# Methods of objects of these C classes are functions of the object's making and the arguments.
CONSTANT_OBJECTS = frozenset((
    "re.Pattern", "re.Match", "_struct.Struct", "datetime.date", "datetime.datetime", "datetime.timedelta",
    "decimal.Decimal", "types.GenericAlias", "types.UnionType", "_sre.SRE_Template", "builtins.range",
    "builtins.slice", "builtins.code", "_json.Encoder", "_json.Scanner", "numpy.dtype",
))  # fmt: skip
LOCKS = frozenset(("_thread.lock", "_thread.RLock"))
# What they tell may leave the run, which asks them before its work or after it; nothing else may hang on it.
CLOCKS = frozenset((
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.process_time_ns, time.thread_time, time.thread_time_ns,
))  # fmt: skip

# Why a module's functions can't be recorded, and what to do.
DENIED_MODULES: dict[str, str] = {
    "time": "gives another value at each call; pass the time as an argument",
    "random": "gives another value at each call; draw with lamina's generators, or pass the number in",
    "_random": "gives another value at each call; draw with lamina's generators, or pass the number in",
    "secrets": "gives another value at each call; pass the value as an argument",
    "uuid": "gives another value at each call; pass the value as an argument",
    "numpy.random": "gives another value at each call; draw with lamina's generators, or pass the array in",
    "posix": "asks the operating system; pass what it answers as an argument",
    "nt": "asks the operating system; pass what it answers as an argument",
    "_io": "reads or writes a file; do it outside of the traced function",
    "io": "reads or writes a file; do it outside of the traced function",
    "_socket": "speaks to the network; do it outside of the traced function",
    "socket": "speaks to the network; do it outside of the traced function",
    "_posixsubprocess": "starts a process; do it outside of the traced function",
    "_thread": "has to do with threads, which run by themselves; do it outside of the traced function",
    "_asyncio": "has to do with other tasks, which run by themselves; do it outside of the traced function",
    "_queue": "has to do with other threads; do it outside of the traced function",
    "_pickle": "goes through objects in C code; do it outside of the traced function",
    "_ctypes": "calls code that nobody can look into",
    "gc": "asks about all objects there are",
    "_tracemalloc": "asks about memory, which differs from call to call",
    "signal": "has to do with signals, which come at any time",
    "_signal": "has to do with signals, which come at any time",
}
DENIED_NAMES: dict[str, str] = {
    "time.sleep": "takes time, which is no result; do it outside of the traced function",
    "posix.stat": "asks about a file; do it outside, and pass the answer as an argument",
}
DENIED_BUILTINS: dict[str, str] = {
    "open": "reads or writes a file; do it outside of the traced function",
    "input": "asks the user; pass the answer as an argument",
    "eval": "runs code made in the run; call a function instead",
    "exec": "runs code made in the run; call a function instead",
    "compile": "makes code in the run; do it outside of the traced function",
    "globals": "hands out all globals; name the one that is wanted",
    "locals": "hands out all locals; name the one that is wanted",
    "breakpoint": "stops the program",
    "__build_class__": "makes a class in each call; make it outside of the traced function",
    "dir": "lists all attributes; name those that are wanted",
    "id": "gives an address, which may differ from call to call",
    "hash": "gives a number that hangs on an address",
}

# ---- Lamina's own ----
# Files whose Python is interpreted as a user's is, because it calls what the user hands it.
INTERPRETED_ROOMS = (
    "nn/", "optim/lr_scheduler.py", "optim/schedule.py", "optim/cycles.py", "data/collate.py",
    "data/datasets.py", "distributions/kl.py", "facade/amp.py", "facade/attention.py",
    "facade/backends.py", "facade/flow.py", "facade/future.py", "facade/library.py", "facade/pytree.py",
    "facade/settings.py", "facade/torchvision/", "jit/partitioned_call.py",
    "jit/torchscript.py", "exchange/onnx/network.py", "exchange/onnx/running.py",
    "exchange/onnx/opset/", "language/decoder_network.py", "language/encoder_network.py",
    "language/rotary.py", "quantization/", "distributed/data_parallel.py",
    "distributed/tensor/parallel/styles.py",
    "jit/observe/sinks.py", "jit/observe/copies.py",  # what stands in place of the standard library's
)  # fmt: skip
# Of these the functions, unlike the methods of modules, are functions of tensors.
FUNCTION_ROOMS = ("nn/functional.py", "nn/bags.py", "nn/ctc.py", "nn/images.py", "nn/margins.py",
                  "nn/multihead.py", "nn/pools.py", "nn/init.py", "nn/text.py", "nn/epoch.py",
                  "nn/members.py", "nn/utils/clip.py", "nn/utils/vector.py", "nn/utils/rnn.py")  # fmt: skip
# Files whose functions run natively, and call those of the user's that they are given by `modes.call_user`.
CALLING_ROOMS = ("runtime/derivatives.py", "runtime/func.py", "runtime/batched.py", "runtime/forward.py")
DENIED_ROOMS: dict[str, str] = {
    "data/": "hands out other data at each call; loop over it outside, and give the traced function a batch",
    "runtime/checkpoints/saving.py": "reads or writes a file; do it outside of the traced function",
    "runtime/gradcheck.py": "runs a function many times; do it outside of the traced function",
    "runtime/threads.py": "sets or asks how many threads there are; do it outside of the traced function",
    "jit/": "has to do with tracing itself; do it outside of the traced function",
    "facade/hub.py": "runs a file; do it outside of the traced function",
    "facade/multiprocessing.py": "starts processes; do it outside of the traced function",
    "facade/playing.py": "changes what is imported; do it outside of the traced function",
    "facade/info.py": "asks about the machine; do it outside of the traced function",
}
_CHANGES = "changes a module; do it outside of the traced function"
DENIED_LIBRARY: dict[str, str] = {  # by qualified name
    **dict.fromkeys((
        "Module.register_parameter", "Module.register_buffer", "Module.register_module", "Module.add_module",
        "Module._apply", "Module.to", "Module.type", "Module.float", "Module.double", "Module.half",
        "Module.bfloat16", "Module.cpu", "Module.cuda", "Module.__setstate__",
        "_Numbered.append", "_Numbered.insert", "_Numbered.extend", "_Numbered.pop", "_Numbered.__setitem__",
        "_Numbered.__delitem__", "Sequential.insert", "Sequential.__delitem__",
    ), _CHANGES),
    **dict.fromkeys((
        "Optimizer.add_param_group", "Optimizer.load_state_dict", "Optimizer.state_dict",
        "Optimizer.register_step_pre_hook", "Optimizer.register_step_post_hook",
    ), "belongs outside of the traced function"),
    "set_printoptions": "sets how tensors are printed; do it outside of the traced function",
}  # fmt: skip

# ---- functions whom the user vouches for ----
_VOUCHED: dict[int, Any] = {}  # id -> a weak reference, or the object where it allows none


def pure(function: Callable) -> Callable:
    """Vouch that a function's result hangs on its arguments alone and that it does nothing else.

    A traced function then calls it while it is recorded, and takes its result for what it is as long as the
    arguments are the same.  Works as a decorator, and on functions written in C; returns the function.
    """
    key = id(function)
    try:
        _VOUCHED[key] = weakref.ref(function, lambda dead: _VOUCHED.pop(key, None))
    except TypeError:
        _VOUCHED[key] = lambda: function
    return function


SETTLED: set[type] = set()


def settled(kind: type) -> type:
    """Vouch that objects of a class of Lamina's never change once they are made, nor anything that they hold.

    A traced function that reaches one by the same way as before has read the same in it.
    """
    SETTLED.add(kind)
    return kind


def is_vouched(function: Any) -> bool:
    """Whether the user called `pure` on it."""
    known = _VOUCHED.get(id(function))
    return known is not None and known() is function


def reason_against(module: str | None, name: str) -> str:
    """Why a C function that stands in no table of what is allowed is refused."""
    home = module or "builtins"
    spelled = name if home == "builtins" else f"{home.lstrip('_')}.{name}"
    if home == "builtins" and name in DENIED_BUILTINS:
        return f"{name}() {DENIED_BUILTINS[name]}"
    if spelled in DENIED_NAMES:
        return f"{spelled}() {DENIED_NAMES[spelled]}"
    while home:
        if home in DENIED_MODULES:
            return f"{spelled}() {DENIED_MODULES[home]}"
        home = home.rpartition(".")[0]
    return (
        f"{spelled}() is C code that nobody here knows: it may read or change anything; vouch for it with "
        f"jit.pure({name}) if its result hangs on its arguments alone"
    )
