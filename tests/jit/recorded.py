"""A recorder of the smallest kind, for tests of what comes after recording."""

import sys

from lamina.ir import Builder
from lamina.ir.detach import detach
from lamina.ir.write import write
from lamina.passes.graphs.functionalise import functionalise, written
from lamina.runtime import modes
from lamina.runtime.places import is_internal
from lamina.runtime.tensor import Tensor


class Recording:
    """What a run of `function` did: graph, the tensors of its params, and which of them results go into."""

    def __init__(self, function, *arguments):
        self.builder = Builder(getattr(function, "__name__", "forward"))
        self.tensors, self.values, self.keep, self.arrays = [], {}, [], {}
        with self.builder:
            for x in arguments:
                self.param(x)
            with modes.hooked(self.hear):
                made = function(*arguments)
            self.outputs = list(made) if isinstance(made, (tuple, list)) else [made]
            graph = self.builder.finish([self.value(x) for x in self.outputs])
        self.into = (*(None for _ in self.outputs), *written(graph))
        self.graph = functionalise(graph)
        self.needs = tuple(need for _, need in self.tensors)
        self.captured = [x for x, _ in self.tensors[len(arguments) :]]

    def param(self, x):
        value = self.builder.param(x._meta)
        self.tensors.append((x, x.requires_grad))
        self.enter(x, value)
        return value

    def enter(self, x, value):
        self.keep.append(x)
        self.values[id(x)] = value
        self.arrays[id(x._data)] = x

    def value(self, x):
        if x is None:
            return None
        known = self.values.get(id(x))
        if known is not None:
            return known
        of = self.arrays.get(id(x._data))
        if of is not None:  # x.detach(): the same memory
            made = detach(self.value(of))
            self.values[id(x)] = made
            self.keep.append(x)
            return made
        if not x.ndim and not x.requires_grad and x._storage is None:  # a Python number
            return self.builder.constant(x._data.copy())
        return self.param(x)

    def hear(self, op, attrs, operands, outputs):
        self.builder.where = self.line()
        attrs = dict(attrs)
        inplace = attrs.pop("inplace", False)
        node = self.builder.emit(op, [self.value(x) for x in operands], attrs)
        history = [x is not None and x._node is not None for x in operands]
        for x, value in zip(outputs, node.outputs, strict=False):
            if isinstance(x, Tensor):
                floating = value.dtype.is_floating_point
                if any(history) and floating and (x._node is None or not modes.is_grad_enabled()):
                    value = detach(value)
                if inplace:
                    value = write(self.value(x), value if value.dtype is x.dtype else value)
                self.enter(x, value)

    def line(self):
        """The line of the function that is recorded."""
        frame = sys._getframe()
        while frame.f_code.co_filename == __file__ or is_internal(frame.f_code.co_filename):
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno
