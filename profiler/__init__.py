"""Where the time goes: what each op, each step of backward and each kernel of compiled programs takes.

    with lamina.profiler.profile() as p:
        step()
    print(p.key_averages().table())
    p.export_chrome_trace("trace.json")
    p.export_flame_graph("flame.svg")

Names and arguments are those of torch.profiler, beside what is only here.  A profile hears the thread that
began it.  Ops are named as Lamina's records are, steps of backward as grad_fn prints them, kernels as
`explain()` lists them.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.profiler")

from types import ModuleType

from .averages import EventList, FunctionEventAvg
from .recorder import FunctionEvent
from .sessions import (
    ProfilerAction,
    ProfilerActivity,
    emit_itt,
    emit_nvtx,
    kineto_available,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

itt = ModuleType("lamina.profiler.itt", "Ranges for Intel's profiler, which is not here.")
vars(itt).update(is_available=lambda: False)

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "ProfilerAction",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "itt",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
