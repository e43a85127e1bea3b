"""Functions on numbers of classes and rows: one-hot vectors, embeddings of rows and of bags of rows."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, DimError, DTypeError, ShapeError
from ..runtime import Function, Tensor, is_grad_enabled, no_grad, ops, sparse_coo_tensor
from ..runtime.forward import without_tangents
from ..runtime.levels import has_values
from ..runtime.modes import unheard


class _OnlySums(ArgumentValueError, NotImplementedError):
    """What sums alone have."""


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Vectors with a 1 at each class number.  Shapes: [...] of ints -> [..., num_classes] of int64.

    num_classes: one more than the greatest unless given.  Raises ArgumentValueError for numbers outside.
    """
    if tensor.dtype is not int64:
        raise DTypeError("one_hot(tensor): class numbers must be int64", f"tensor: {tensor._meta}")
    if not tensor.numel():
        if num_classes <= 0:
            raise ArgumentValueError(
                "one_hot(tensor): an empty tensor does not say how many classes there are"
            )
        return ops.zeros(*tensor.shape, num_classes, dtype=int64, device=tensor.device)
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    if has_values(tensor):
        with unheard():
            least, most = int(tensor.min()), int(tensor.max())
        if least < 0 or most >= num_classes:
            raise ArgumentValueError(
                f"one_hot(tensor): class {least if least < 0 else most} is not between 0 and "
                f"{num_classes - 1}"
            )
    classes = ops.arange(num_classes, device=tensor.device)
    return ops.eq(_inside(tensor, classes).unsqueeze(-1), classes).to(int64)


def _inside(numbers: Tensor, every: Tensor) -> Tensor:
    """The numbers themselves, of `every` = 0, 1, ...: compiled code refuses others, as was done unheard."""
    return every.gather(0, numbers.reshape(-1)).reshape(numbers.shape)


class _GradientTimes(Function):
    """Hand `input` on, and its cotangent times `factor`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        return grads[0] * ctx.factor, None


class _SparseRows(Function):
    """Look up rows; the gradient of the table stores those that were looked up alone."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, input: Tensor, padding_idx: int | None) -> Tensor:
        ctx.save_for_backward(input)
        ctx.padding_idx, ctx.shape = padding_idx, tuple(weight.shape)
        return ops.embedding(input, weight, padding_idx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        rows = ctx.saved_tensors[0].reshape(-1).to(int64, copy=True)  # the caller's may be written later
        values = grads[0].reshape(rows.shape[0], ctx.shape[1])
        if ctx.padding_idx is not None:
            kept = rows != ctx.padding_idx % ctx.shape[0]
            rows, values = rows[kept], values[kept]
        return sparse_coo_tensor(rows.unsqueeze(0), values, ctx.shape), None, None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows of `weight`.  Shapes: [...] of ints, [V, E] -> [..., E].

    padding_idx: a row that gets no gradient.  max_norm: rows that are used are first scaled down to this norm
    (of order norm_type), in place.  scale_grad_by_freq: divide gradients by how often a row is used.  sparse:
    the gradient of `weight` is a sparse tensor of the rows that were looked up.  Raises DimError, ShapeError,
    DTypeError, ArgumentValueError.
    """
    if padding_idx is not None and weight.ndim == 2:
        padding_idx = padding_row("embedding", padding_idx, weight.shape[0])
    if sparse and scale_grad_by_freq and weight.requires_grad and is_grad_enabled():
        raise ArgumentValueError(
            "embedding: scale_grad_by_freq goes with dense gradients", "pass sparse=False"
        )
    if max_norm is not None:
        _renorm_rows(weight, input, float(max_norm), norm_type)
    if sparse and weight.requires_grad and is_grad_enabled():
        return _SparseRows.apply(weight, input, padding_idx)
    rows = ops.embedding(input, weight, padding_idx)
    if scale_grad_by_freq and rows.requires_grad:
        flat = input.reshape(-1).to(int64)
        ones = ops.ones(flat.shape[0], device=weight.device)
        often = ops.zeros(weight.shape[0], device=weight.device).index_add(0, flat, ones)
        times = (1.0 / often.index_select(0, flat)).reshape(*input.shape, 1)
        rows = _GradientTimes.apply(rows, times.to(rows.dtype))
    return rows


def _renorm_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` at `input` down to `max_norm`, in place, which has no derivative."""
    weight = without_tangents(weight)
    with no_grad():
        used = input.reshape(-1).to(int64)  # a row that is there twice gets the same twice
        rows = weight.index_select(0, used)
        norms = ops.linalg_vector_norm(rows, norm_type, 1, True).double()  # or 1e-7 would be nothing
        factors = ops.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.copy_(weight.index_copy(0, used, rows * factors.to(rows.dtype)))


class _NotInTable(ArgumentValueError, AssertionError):
    """A row that a table does not have; PyTorch's modules assert that they have it."""


def padding_row(call: str, padding_idx: int, rows: int) -> int:
    """The number of the padding row from the front.  Raises ArgumentValueError."""
    if not -rows <= padding_idx < rows:
        name = "Padding_idx" if call in ("Embedding", "embedding") else "padding_idx"  # PyTorch's words
        of = "the number of embeddings" if call == "embedding_bag" else "num_embeddings"
        raise _NotInTable(f"{call}: {name} must be within {of}, which is {rows}; it is {padding_idx}")
    return padding_idx % rows


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, int]:
    """The bag of each element of the flat input, and how many bags there are."""
    if input.ndim not in (1, 2):
        raise ShapeError("embedding_bag: input has to be 1D or 2D Tensor", f"input: {input._meta}")
    if input.ndim == 2:
        if offsets is not None:
            raise ArgumentValueError("embedding_bag: a matrix of bags takes no offsets")
        rows = ops.arange(input.shape[0], device=input.device)
        return rows.unsqueeze(1).expand(input.shape).reshape(-1), input.shape[0]
    if offsets is None:
        raise ArgumentValueError("embedding_bag: an input of one dimension needs offsets")
    if offsets.ndim != 1:
        raise ShapeError("embedding_bag: offsets has to be a 1D Tensor", f"offsets: {offsets._meta}")
    with unheard():
        starts = offsets.tolist()
    size = input.shape[0]
    if starts[:1] != [0] or starts[-1] > size or any(b < a for a, b in zip(starts, starts[1:])):
        raise ArgumentValueError(f"embedding_bag: offsets start at 0 and grow up to {size}: {starts}")
    offsets = offsets.to(int64)
    places = ops.arange(size + 1, device=offsets.device)
    begins = ops.cat([_inside(offsets[:1], places[:1]), _inside(offsets.diff(), places)])
    begins = begins.cumsum(0)[: len(starts) - include_last_offset]
    marks = ops.zeros_like(places).index_add(0, begins, ops.ones_like(begins))
    return marks.cumsum(0)[:size] - 1, begins.shape[0]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or max of the rows of `weight` in each bag; 0 for an empty bag.

    Shapes: input [B, n], or [n] with offsets [B]; weight [V, E] -> [B, E].  Rows of `padding_idx` don't
    count. per_sample_weights: a factor for each row, only for mode "sum".
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentValueError(f"embedding_bag: mode must be 'sum', 'mean' or 'max', not {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise _OnlySums(f"embedding_bag: per_sample_weights are only supported for mode='sum', not {mode!r}")
    if sparse and mode == "max":
        raise ArgumentValueError("embedding_bag: mode 'max' has dense gradients", "pass sparse=False")
    bags, count = _bags(input, offsets, include_last_offset)
    if weight.ndim != 2:
        raise ShapeError("embedding_bag: weight has to be a 2D Tensor", f"weight: {weight._meta}")
    if padding_idx is not None:
        padding_idx = padding_row("embedding_bag", padding_idx, weight.shape[0])
    kind = {"dtype": weight.dtype, "device": weight.device}
    flat, counts = input.reshape(-1), ops.ones(input.numel(), 1, **kind)
    if per_sample_weights is not None:
        _check_weights(input, weight, per_sample_weights)
    try:
        rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    except DimError as error:
        raise DimError(
            f"embedding_bag: Expected idx >= 0 && idx < num_embeddings, which are {weight.shape[0]}",
            error.rule,
            *error.details,
        ) from None
    if padding_idx is not None:
        counts = (flat != padding_idx).to(weight.dtype).unsqueeze(1)
    if mode == "max":
        return _greatest(rows, counts > 0, bags, input, count)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    sums = ops.zeros(count, weight.shape[1], **kind).index_add(0, bags, rows * counts)
    if mode == "sum":
        return sums
    return sums / ops.zeros(count, 1, **kind).index_add(0, bags, counts).clamp(min=1)


def _check_weights(input: Tensor, weight: Tensor, per_sample_weights: Tensor) -> None:
    if per_sample_weights.dtype is not weight.dtype:
        raise DTypeError(
            f"embedding_bag: expected weight, {weight.dtype}, to have the same type as per_sample_weights, "
            f"{per_sample_weights.dtype}"
        )
    if per_sample_weights.shape != input.shape:
        raise ShapeError(
            "embedding_bag: per_sample_weights must have the same shape as the input",
            f"input: {input._meta}",
            f"per_sample_weights: {per_sample_weights._meta}",
        )


def _greatest(rows: Tensor, real: Tensor, bags: Tensor, input: Tensor, count: int) -> Tensor:
    """The greatest of the real rows in each bag, [B, E]."""
    rows = ops.where(real, rows, -float("inf"))
    if input.ndim == 2 and input.numel():
        found = rows.reshape(*input.shape, rows.shape[1]).max(1)[0]
    else:
        of = bags.tolist()
        mine = [[at for at, each in enumerate(of) if each == bag] for bag in range(count)]
        nothing = rows[:0].sum(
            0, keepdim=True
        )  # has rows' history: an empty bag's gradient is zero, not none
        empty = nothing - float("inf")
        found = ops.stack([(rows[at] if at else empty).max(0)[0] for at in mine])
    return ops.where(found == -float("inf"), 0.0, found)
