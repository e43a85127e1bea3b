"""How a tensor's elements are kept: PyTorch's names of layouts."""

from __future__ import annotations

from ..ir import dtypes


class Layout(str):
    """A layout: equal to the text that names it, shown as PyTorch shows it."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name alone, as sparse_coo."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return f"{dtypes.namespace}.{self.name}"

    __str__ = __repr__  # programs compare it with a text, as "torch.sparse_coo"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> tuple:
        return _named, (self.name,)


def _named(name: str) -> Layout:
    return LAYOUTS[name]


strided, jagged = Layout("strided"), Layout("jagged")
sparse_coo, sparse_csr, sparse_csc = Layout("sparse_coo"), Layout("sparse_csr"), Layout("sparse_csc")
LAYOUTS = {each.name: each for each in (strided, jagged, sparse_coo, sparse_csr, sparse_csc)}
