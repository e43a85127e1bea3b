"""`utils.flop_counter`: the operations of products and convolutions, forward and backward, by module.

Counted as torch.utils.flop_counter does: two for each multiplication and addition of a product, nothing for
what is done to single elements.  A step of backward counts one product for each operand that gets a gradient.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from ..ir.errors import ArgumentError
from ..ir.types import Type
from ..nn import Module
from ..nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..profiler.sessions import Listener, Timed
from ..runtime import Tensor, modes
from .summary import spelled

_MODULES = "flop_counter"  # in the metadata of a node: the modules that it was made in


def _product(types: Sequence[Type], out: Type) -> int:
    return int(2 * prod(out.shape) * types[0].shape[-1])


def _convolution(types: Sequence[Type], out: Type) -> int:
    return int(2 * prod(out.shape) * prod(types[1].shape[1:]))


def _towards_input(types: Sequence[Type], out: Type) -> int:
    return int(2 * prod(types[0].shape) * prod(types[1].shape[1:]))


def _towards_weight(types: Sequence[Type], out: Type) -> int:
    return int(2 * prod(types[0].shape) * prod(out.shape[1:]))


def _layer(types: Sequence[Type], out: Type) -> int:
    """The products with the hidden weight."""
    return int(2 * prod(types[0].shape) * types[1].shape[-1])


def _attention(types: Sequence[Type], out: Type) -> int:
    query, key, value = (t.shape for t in types[:3])
    return int(2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


FORMULAS: dict[str, Callable[[Sequence[Any], Any], int]] = {
    "matmul": _product, "linear": _product, "attention": _attention,
    "lstm_layer": _layer, "gru_layer": _layer, "rnn_layer": _layer,
    "conv1d": _convolution, "conv2d": _convolution, "conv3d": _convolution,
    "conv_input_grad": _towards_input, "conv_weight_grad": _towards_weight,
}  # fmt: skip


class _Told(Listener):
    """What the runtime tells (modes.py), of which products count."""

    def __init__(self, mode: FlopCounterMode):
        self._mode = mode

    def of_op(self, run: Callable, op: Any, plan: Any, operands: tuple, suffix: str = "") -> Any:
        made = run(op, plan, operands)
        if op.name in FORMULAS:
            where = self._mode._count(op.name, FORMULAS[op.name](plan.types, plan.out))
            node = made._node if isinstance(made, Tensor) else None
            if node is not None and hasattr(node, "metadata"):
                node.metadata[_MODULES] = where
        return made

    def of_step(self, step: Callable, node: Any, gradient: Any, create: bool) -> Any:
        plan = getattr(node, "plan", None)
        if plan is not None and plan.op.name in FORMULAS and not create:  # else its ops are told of
            name = plan.op.name
            each = FORMULAS[name](plan.types, plan.out)
            wanted = sum(edge is not None for edge in node.edges[:2])
            self._mode._count(f"{name}_backward", each * wanted, node.metadata.get(_MODULES))
        return step(node, gradient, create)


class FlopCounterMode:
    """Count the operations of products and convolutions on this thread, within a block.

    depth: how deep the modules stand that the table shows.  display: whether it is printed at the end.
    Traced functions run eagerly within.  Raises ArgumentError for `custom_mapping`, and in an open profile.
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict | None = None
    ):
        if custom_mapping:
            raise ArgumentError("FlopCounterMode(custom_mapping): ops are counted by their own formulas")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._open: list[str] = []
        self._within = ExitStack()

    def get_total_flops(self) -> int:
        """All that was counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """What was counted by op, in all ("Global") and in each module, by its path from the first called."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, down to modules at a depth."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops() or 1
        rows = [("Module", "FLOP", "% Total")]
        for name, counts in self.get_flop_counts().items():
            level = 0 if name == "Global" else name.count(".") + 1
            if level <= depth:
                each = [(f" - {op}", count) for op, count in counts.items()]
                for label, count in ((name, sum(counts.values())), *each):
                    rows.append((" " * level + label, spelled(count), f"{count / total:.2%}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def __enter__(self) -> FlopCounterMode:
        if modes.local.timing is not None:
            raise ArgumentError("FlopCounterMode: a profile or another counter is open on this thread")
        self.flop_counts.clear()
        self.flop_counts["Global"] = Counter()
        with ExitStack() as stack:  # closed again where an interrupt comes meanwhile
            stack.enter_context(Timed(_Told(self)))
            stack.callback(register_module_forward_pre_hook(self._enters).remove)
            stack.callback(register_module_forward_hook(self._leaves, always_call=True).remove)
            self._within = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._within.close()
        self._open.clear()
        if self.display:
            print(self.get_table())

    # ---- where ops are called
    def _enters(self, module: Module, args: tuple) -> None:
        name = self._names.setdefault(module, type(module).__name__)
        for child, below in module.named_children():
            self._names.setdefault(below, f"{name}.{child}")
        self._open.append(name)

    def _leaves(self, module: Module, args: tuple, result: Any) -> None:
        if self._open:
            self._open.pop()

    def _count(self, op: str, flops: int, where: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Count what an op takes in the modules that are open, or in others; returns which."""
        where = ("Global", *dict.fromkeys(self._open)) if where is None else where
        for name in where:
            self.flop_counts[name][op] += flops
        return where


__all__ = ["FlopCounterMode"]
