"""Python's operators, for kinds of operand without a faster spelling of their own (graph values, duals)."""

from __future__ import annotations

from typing import Any

from .op import COMPOSITES, REGISTRY


def _binary(name: str):
    def operator(self, other: Any) -> Any:
        return REGISTRY[name](self, other)

    return operator


def _swapped(name: str):
    def operator(self, other: Any) -> Any:
        return REGISTRY[name](other, self)

    return operator


def _unary(name: str):
    def operator(self) -> Any:
        return REGISTRY[name](self)

    return operator


class Operators:
    """Give a class `+ - * / // % ** @`, comparisons, `& | ^ ~`, unary minus, abs, indexing, `.mT` as ops."""

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _swapped("add")
    __sub__, __rsub__ = _binary("sub"), _swapped("sub")
    __mul__, __rmul__ = _binary("mul"), _swapped("mul")
    __truediv__, __rtruediv__ = _binary("div"), _swapped("div")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _swapped("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _swapped("remainder")
    __pow__, __rpow__ = _binary("pow"), _swapped("pow")
    __matmul__, __rmatmul__ = _binary("matmul"), _swapped("matmul")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")
    __and__, __or__, __xor__ = _binary("bitwise_and"), _binary("bitwise_or"), _binary("bitwise_xor")
    __neg__, __abs__, __invert__ = _unary("neg"), _unary("abs"), _unary("bitwise_not")

    def __getitem__(self, index: Any) -> Any:
        return COMPOSITES["getitem"].function(self, index)

    @property
    def mT(self) -> Any:
        """The last two dimensions exchanged."""
        return REGISTRY["transpose"](self, -2, -1)
