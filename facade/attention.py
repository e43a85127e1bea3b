"""Answer `torch.nn.attention.flex_attention`: attention whose scores are functions of their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..func import vmap
from ..ir.shapes import prod
from ..runtime import Tensor, ops

_DEFAULT_SPARSE_BLOCK_SIZE = 128  # which libraries ask for


def _of_places(function: Callable, sizes: tuple[int, int, int, int], *first: Tensor) -> Tensor:
    """function(*first[b, h, q, k], b, h, q, k) in each place.  Shapes: [b, h, q, k]."""
    places = [ops.arange(n) for n in sizes]
    for dim in (3, 2, 1, 0):
        mapped = [0 if k == dim else None for k in range(4)]
        function = vmap(function, in_dims=(*[0] * len(first), *mapped))
    return function(*first, *places)


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """True everywhere."""
    return batch == batch


def and_masks(*mask_mods: Callable) -> Callable:
    """What all of these functions of a place say."""

    def both(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        found = b == b
        for mask in mask_mods:
            found = found & mask(b, h, q, k)
        return found

    return both


def or_masks(*mask_mods: Callable) -> Callable:
    """What one of these functions of a place says."""

    def either(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        found = b != b
        for mask in mask_mods:
            found = found | mask(b, h, q, k)
        return found

    return either


def create_mask(
    mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = "cpu"
) -> Tensor:
    """Where a function of (batch, head, query, key) holds.  Shapes: bool[B, H, Q_LEN, KV_LEN]."""
    return _of_places(mod_fn, (B or 1, H or 1, Q_LEN, KV_LEN))


class BlockMask:
    """Where queries look at keys, for `flex_attention`; made by `create_block_mask`.

    PyTorch keeps which blocks are empty, to leave them out; here it is the mask itself.
    """

    def __init__(self, mask: Tensor, mask_mod: Callable, block_size: Any):
        self.mask, self.mask_mod = mask, mask_mod
        self.BLOCK_SIZE = block_size if isinstance(block_size, tuple) else (block_size, block_size)
        self.seq_lengths = mask.shape[-2], mask.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """[batch, heads, queries, keys]."""
        return tuple(self.mask.shape)

    def numel(self) -> int:
        """The places."""
        return prod(self.shape)

    def to_dense(self) -> Tensor:
        """The mask, as 0 and 1."""
        return self.mask.int()

    def sparsity(self) -> float:
        """The places that are left out, in percent."""
        return 100 * (1 - float(self.mask.float().mean()))

    def to(self, device: Any) -> BlockMask:
        """The mask on a device."""
        return BlockMask(self.mask.to(device), self.mask_mod, self.BLOCK_SIZE)

    def __getitem__(self, index: Any) -> BlockMask:
        return BlockMask(self.mask[index], self.mask_mod, self.BLOCK_SIZE)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: Callable,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = "cpu",
    BLOCK_SIZE: Any = 128,
    _compile: bool = False,
    **_: Any,
) -> BlockMask:
    """Where a function of (batch, head, query, key) holds, for `flex_attention`.  B, H: 1 for all of them."""
    return BlockMask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod, BLOCK_SIZE)


class AuxRequest(NamedTuple):
    """What `flex_attention` is to return besides: `return_aux=AuxRequest(lse=True)`."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What it returned besides: each row's logarithm of its sum of exponentials, and its largest score."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention whose scores a function changes by their place: score_mod(score, batch, head, query, key).

    Shapes: query [b, h, l, e], key [b, g, s, e], value [b, g, s, v] -> [b, h, l, v]; with `enable_gqa` g
    divides h.  return_lse: also the logarithm of each row's sum of exponentials, [b, h, l].  All scores are
    held: this is scaled_dot_product_attention by its definition.
    """
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    scores = (query @ key.transpose(-2, -1)).float() * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = _of_places(score_mod, tuple(scores.shape), scores)
    if block_mask is not None:
        mask = block_mask.mask[..., : scores.shape[-2], : scores.shape[-1]]
        scores = scores.masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = ops.where(lse[..., None] == float("-inf"), 0.0, (scores - lse[..., None]).exp())
    found = weights.to(value.dtype) @ value
    if return_aux is not None:
        return found, AuxOutput(
            lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None
        )
    return (found, lse) if return_lse else found
