"""How a tensor's elements are kept: PyTorch's names of layouts."""

from __future__ import annotations

from ..ir import dtypes


class Layout(str):
    """A layout: the text that names it, shown as PyTorch shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{dtypes.namespace}.{str(self)}"

    def __reduce__(self) -> tuple:
        return _named, (str(self),)


def _named(name: str) -> Layout:
    return LAYOUTS[name]


strided, jagged = Layout("strided"), Layout("jagged")
sparse_coo, sparse_csr, sparse_csc = Layout("sparse_coo"), Layout("sparse_csr"), Layout("sparse_csc")
LAYOUTS = {str(each): each for each in (strided, jagged, sparse_coo, sparse_csr, sparse_csc)}
