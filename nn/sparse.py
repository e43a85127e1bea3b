"""Embeddings: rows of a table by their numbers."""

from __future__ import annotations

from typing import Any

from ..ir.errors import ShapeError
from ..runtime import Parameter, Tensor, no_grad, ops
from . import functional as F
from . import init
from .bags import padding_row
from .module import Module


def _pretrained(cls: type, embeddings: Tensor, settings: dict[str, Any]) -> Any:
    """A module around a given table.  Raises ShapeError."""
    if embeddings.ndim != 2:
        raise ShapeError(
            f"{cls.__name__}.from_pretrained: a matrix is wanted", f"embeddings: {embeddings._meta}"
        )
    return cls(*embeddings.shape, _weight=embeddings, **settings)


class _Table(Module):
    """What Embedding and EmbeddingBag share: the table and where it comes from."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
        frozen: bool,
        device: Any,
        dtype: Any,
    ):
        super().__init__()
        name = type(self).__name__
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        absent = padding_idx is None
        self.padding_idx = None if absent else padding_row(name, padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if weight is None:
            table = ops.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not frozen)
            self.reset_parameters()
        else:
            if tuple(weight.shape) != (num_embeddings, embedding_dim):
                raise ShapeError(
                    f"{name}: the weight must have shape {[num_embeddings, embedding_dim]}",
                    f"weight: {weight._meta}",
                )
            self.weight = Parameter(weight, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw the table from the standard normal distribution; the padding row becomes 0."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        """Make the padding row 0, which derived classes do after drawing their own table."""
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """Look up rows: input[...] of ints -> [..., embedding_dim].

    padding_idx: a row that gets no gradient.  max_norm: rows that are used are first scaled down to this
    norm, in place.  scale_grad_by_freq: divide gradients by how often a row was used.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight, _freeze, device, dtype,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Make one around a given table, which learns only if `freeze` is False.  Raises ShapeError."""
        settings = {
            "padding_idx": padding_idx,
            "max_norm": max_norm,
            "norm_type": norm_type,
            "sparse": sparse,
        }
        settings |= {"scale_grad_by_freq": scale_grad_by_freq, "_freeze": freeze}
        return _pretrained(cls, embeddings, settings)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        parts = [
            f"{self.num_embeddings}, {self.embedding_dim}",
            "" if self.padding_idx is None else f"padding_idx={self.padding_idx}",
            "" if self.max_norm is None else f"max_norm={self.max_norm}",
            "" if self.norm_type == 2 else f"norm_type={self.norm_type}",
            f"scale_grad_by_freq={self.scale_grad_by_freq}" if self.scale_grad_by_freq else "",
            "sparse=True" if self.sparse else "",
        ]
        return ", ".join(part for part in parts if part)


class EmbeddingBag(_Table):
    """Look up rows and take the sum, mean or max of each bag of them.

    Shapes: input [B, n] -> [B, embedding_dim], or input [n] with offsets [B], where each bag begins.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
        _freeze: bool = False,
    ):
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight, _freeze, device, dtype,
        )  # fmt: skip
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Make one around a given table, which learns only if `freeze` is False.  Raises ShapeError."""
        settings = {"max_norm": max_norm, "norm_type": norm_type, "mode": mode, "sparse": sparse}
        settings |= {
            "include_last_offset": include_last_offset,
            "padding_idx": padding_idx,
            "_freeze": freeze,
        }
        return _pretrained(cls, embeddings, settings | {"scale_grad_by_freq": scale_grad_by_freq})

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        parts = [
            f"{self.num_embeddings}, {self.embedding_dim}",
            "" if self.max_norm is None else f"max_norm={self.max_norm}",
            "" if self.norm_type == 2 else f"norm_type={self.norm_type}",
            f"scale_grad_by_freq={self.scale_grad_by_freq}" if self.scale_grad_by_freq else "",
            f"mode={self.mode!r}",
            "" if self.padding_idx is None else f"padding_idx={self.padding_idx}",
        ]
        return ", ".join(part for part in parts if part)
