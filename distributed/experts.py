"""Expert parallel: a mixture of experts that live on ranks, to which the ranks send each other their tokens.

layer = MixtureOfExperts(64, 8, lambda i: FeedForward(64), k=2)    # of 8 experts 2 for each token
y = layer(x)                                                      # on every rank, with its own tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.ops import collectives
from ..nn import functional as F
from ..nn.containers import ModuleDict
from ..nn.linear import Linear
from ..nn.module import Module
from ..runtime import Tensor, ops
from .groups import is_initialized, resolved


class MixtureOfExperts(Module):
    """The sum of what the best `k` of all experts make of each token, weighted by a softmax.

    The softmax is over the best, of k = 1 over all experts, or the gate would learn nothing.

    dim: of a token.  expert: makes the expert with a number, a module [n, dim] -> [n, dim]; rank r of R has
    the r-th part of them alone, so that each rank holds num_experts / R.  group: all ranks unless given.

    Without `capacity_factor` every token goes to its experts, in parts of the sizes that come about.  With it
    an expert takes the first `ceil(capacity_factor * k * tokens / num_experts)` of each rank's tokens, and
    counts as 0 for the others: then all sizes are known ahead, and it can be traced as one program.

    average: gradients of experts are divided by the number of ranks, as DistributedDataParallel does with
    those of the other parameters; it must leave out these: `experts_of(model)` names them.
    return_balance: `forward` returns (output, balance), where balance is num_experts times the sum over
    experts of (share of tokens that chose it) * (mean probability), least when all are chosen as often.

    Shapes: [..., dim] -> [..., dim].  Raises ArgumentValueError where experts don't part into ranks.
    Source: Shazeer et al., Outrageously large neural networks, 2017, eqs. 1 to 5; Lepikhin et al., GShard,
    2020, section 2.2; Fedus et al., Switch transformers, 2021, eq. 4.
    """

    def __init__(
        self,
        dim: int,
        num_experts: int,
        expert: Callable[[int], Module],
        k: int = 2,
        capacity_factor: float | None = None,
        group: Any = None,
        average: bool = True,
        return_balance: bool = False,
    ):
        super().__init__()
        self.ranks, self.rank = _place(group)
        size = len(self.ranks)
        if num_experts % size or not 0 < k <= num_experts:
            raise ArgumentValueError(
                f"MixtureOfExperts: {num_experts} experts, {k} for each token, on {size} ranks",
                "ranks have as many experts each, and k is at most all of them",
            )
        if capacity_factor is not None and capacity_factor <= 0:
            raise ArgumentValueError(f"MixtureOfExperts(capacity_factor={capacity_factor}): above 0")
        self.dim, self.num_experts, self.k, self.capacity_factor = dim, num_experts, k, capacity_factor
        self.own, self.return_balance = num_experts // size, return_balance
        self.gate = Linear(dim, num_experts, bias=False)
        first = self.rank * self.own
        self.experts = ModuleDict({str(i): expert(i) for i in range(first, first + self.own)})
        if average and size > 1:
            for p in self.experts.parameters():
                p.register_hook(lambda grad: grad / size)

    def forward(self, x: Tensor) -> Any:
        if x.shape[-1] != self.dim:
            raise ShapeError(f"MixtureOfExperts: tokens of {self.dim} numbers", f"input: {x._meta}")
        tokens = x.reshape(-1, self.dim)
        probabilities = F.softmax(self.gate(tokens), -1)
        weights, chosen = ops.topk(probabilities, self.k, -1)
        if self.k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        send = self._by_sizes if self.capacity_factor is None else self._by_capacity
        out = send(tokens, weights.reshape(-1), chosen.reshape(-1)).reshape(x.shape)
        if not self.return_balance:
            return out
        share = F.one_hot(chosen[:, 0], self.num_experts).to(x.dtype).mean(0)
        return out, self.num_experts * (share * probabilities.mean(0)).sum()

    # ---- every token, in parts of the sizes that come about
    def _by_sizes(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Shapes: [n, dim], [n * k], [n * k] -> [n, dim]."""
        order = ops.argsort(chosen, stable=True)
        counts = F.one_hot(chosen, self.num_experts).sum(0).reshape(-1, self.own)
        # of each rank, how many tokens come for each expert here
        coming = collectives.all_to_all(counts, 0, 0, self.ranks)
        sent, received = counts.sum(1).tolist(), coming.sum(1).tolist()
        rows = order // self.k
        arrived = collectives.all_to_all_parts(tokens[rows], sent, received, 0, self.ranks)
        # they lie by rank, then expert; each expert takes its own of all ranks
        whose = ops.arange(self.own).repeat(len(self.ranks)).repeat_interleave(coming.reshape(-1))
        by_expert = ops.argsort(whose, stable=True)
        parts = arrived[by_expert].split(coming.sum(0).tolist())
        made = ops.cat([expert(part) for expert, part in zip(self.experts.values(), parts, strict=True)])
        back = ops.zeros_like(made).index_copy(0, by_expert, made)
        answers = collectives.all_to_all_parts(back, received, sent, 0, self.ranks)
        weighted = answers * weights[order].unsqueeze(1)
        return ops.zeros_like(tokens).index_add(0, rows, weighted)

    # ---- so many for each expert, in parts of one size
    def _by_capacity(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Shapes: [n, dim], [n * k], [n * k] -> [n, dim]."""
        assert self.capacity_factor is not None
        n, each = tokens.shape[0], self.num_experts
        capacity = math.ceil(self.capacity_factor * self.k * n / each)
        chose = F.one_hot(chosen, each)
        place = (chose.cumsum(0) * chose).sum(1) - 1  # the how-manieth of its expert
        fits = place < capacity
        slot = ops.where(fits, chosen * capacity + place, each * capacity)  # the last is nobody's
        rows = ops.arange(n * self.k, dtype=int64) // self.k
        slots = tokens.new_zeros(each * capacity + 1, self.dim).index_copy(0, slot, tokens[rows])
        sent = slots[:-1].reshape(len(self.ranks), self.own, capacity, self.dim)
        arrived = collectives.all_to_all(sent, 0, 0, self.ranks)
        for_each = arrived.transpose(0, 1).reshape(self.own, -1, self.dim)
        made = ops.stack([expert(for_each[i]) for i, expert in enumerate(self.experts.values())])
        back = made.reshape(self.own, len(self.ranks), capacity, self.dim).transpose(0, 1)
        answers = collectives.all_to_all(back, 0, 0, self.ranks).reshape(-1, self.dim)
        answers = ops.cat([answers, answers.new_zeros(1, self.dim)])[slot]
        weighted = answers * (weights * fits).unsqueeze(1)
        return ops.zeros_like(tokens).index_add(0, rows, weighted)

    def extra_repr(self) -> str:
        return (
            f"dim={self.dim}, num_experts={self.num_experts}, k={self.k}, "
            f"capacity_factor={self.capacity_factor}, ranks={len(self.ranks)}"
        )


def _place(group: Any) -> tuple[tuple[int, ...], int]:
    """The ranks of a group, one alone where none were joined, and this one's number in it."""
    if group is None and not is_initialized():
        return (0,), 0
    found = resolved(group)
    if found is None:
        raise ArgumentValueError("MixtureOfExperts(group): this process is not in it")
    return found.ranks, found.rank()


def experts_of(module: Module) -> Iterator[str]:
    """The names of the parameters below a module that are experts', which other ranks don't have.

    `model._ddp_params_and_buffers_to_ignore = list(experts_of(model))` keeps DistributedDataParallel off.
    """
    for name, below in module.named_modules():
        if isinstance(below, MixtureOfExperts):
            prefix = f"{name}." if name else ""
            for own, _ in (*below.experts.named_parameters(), *below.experts.named_buffers()):
                yield f"{prefix}experts.{own}"
