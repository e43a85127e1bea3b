"""Einstein's summation, written with permutations, products of matrices and sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import ArgumentValueError, ShapeError
from ..op import composite
from .matmul import matmul
from .reduce import sum
from .view import permute, reshape
from .windows import diagonal

# A label names a dimension: a letter, or (-k,) for the k-th from the end of those that ... stands for.
Label = str | tuple[int]
Term = tuple[Any, tuple[Label, ...]]  # a tensor, and the label of each of its dimensions


@composite(method=False)
def einsum(equation, *operands):
    """Multiply tensors whose dimensions are named by letters, adding up over those the result leaves out.

    einsum("bij,bjk->bik", x, y).  A letter twice in one operand takes the diagonal.  `...` stands for further
    dimensions, which broadcast, as do named ones of size 1.  Without `->` the result has `...` and then, in
    order of the alphabet, the letters that occur once.  Operands are multiplied from left to right.
    The form einsum(x, [0, 1], y, [1, 2], [0, 2]) names dimensions by numbers.
    Raises ArgumentValueError for a malformed equation, ShapeError where sizes don't fit it.
    """
    if not isinstance(equation, str):
        equation, operands = from_lists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    terms, result = parsed(equation, operands)
    terms = [on_diagonals(x, labels) for x, labels in terms]
    sizes = sizes_of_labels(equation, terms)
    terms = [without_ones(x, labels, sizes) for x, labels in terms]
    for label in result:
        if label not in sizes:
            raise ArgumentValueError(f"einsum({equation!r}): {spelled(label)} of the result is in no operand")
    x, labels = terms[0]
    for i, (y, others) in enumerate(terms[1:], 1):
        needed = {*result, *(label for _, later in terms[i + 1 :] for label in later)}
        x, labels = product(
            *summed(x, labels, {*needed, *others}), *summed(y, others, {*needed, *labels}), needed
        )
    x, labels = summed(x, labels, set(result))
    return permuted(x, [labels.index(label) for label in result])


def from_lists(arguments: tuple) -> tuple[str, tuple]:
    """The equation that (x, [0, 1], y, [1, 2], [0, 2]) stands for, and its operands."""
    lists, operands = arguments[1::2], arguments[0::2]
    result = None
    if len(arguments) % 2:
        result, operands = operands[-1], operands[:-1]

    def letters(numbers: Sequence) -> str:
        for n in numbers:
            if n is not Ellipsis and not 0 <= n < 52:
                raise ArgumentValueError(f"einsum: dimensions are named by numbers from 0 to 51, not {n}")
        return "".join("..." if n is Ellipsis else chr(n + (65 if n < 26 else 71)) for n in numbers)

    equation = ",".join(map(letters, lists))
    return equation if result is None else f"{equation}->{letters(result)}", operands


def parsed(equation: str, operands: Sequence) -> tuple[list[Term], tuple[Label, ...]]:
    """The operands with their labels, and the labels of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ArgumentValueError(
            f"einsum({equation!r}): {len(terms)} operands are described, and {len(operands)} given"
        )
    for term in (*terms, right):
        if not re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term):
            raise ArgumentValueError(f"einsum({equation!r}): {term!r} must be letters and at most one '...'")
    found = [(x, labels_of(equation, term, x.ndim)) for x, term in zip(operands, terms, strict=True)]
    every = [label for _, labels in found for label in labels]
    dots = sorted({label for label in every if isinstance(label, tuple)})
    if not arrow:
        return found, (*dots, *sorted(label for label in set(every) - set(dots) if every.count(label) == 1))
    start, ellipsis, end = right.partition("...")
    if len(set(start + end)) < len(start + end):
        raise ArgumentValueError(f"einsum({equation!r}): a letter stands twice in the result")
    return found, (*start, *(dots if ellipsis else ()), *end)


def labels_of(equation: str, term: str, ndim: int) -> tuple[Label, ...]:
    """A label for each dimension of an operand."""
    start, dots, end = term.partition("...")
    spare = ndim - len(start) - len(end)
    if spare < 0 or (spare and not dots):
        raise ShapeError(f"einsum({equation!r}): {term!r} describes an operand of {ndim} dimensions")
    return (*start, *((k,) for k in range(-spare, 0)), *end)


def spelled(label: Label) -> str:
    return f"the letter {label!r}" if isinstance(label, str) else "a dimension of '...'"


def on_diagonals(x: Any, labels: tuple[Label, ...]) -> Term:
    """The operand with each label once: the diagonal over dimensions that share one."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(
                    f"einsum: {spelled(label)} stands for sizes {x.shape[first]} and {x.shape[second]}"
                )
            x = diagonal(x, 0, first, second)
            labels = (*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label)
    return x, labels


def sizes_of_labels(equation: str, terms: list[Term]) -> dict[Label, Any]:
    """The size of each label.  Raises ShapeError where two operands disagree and neither's is 1."""
    sizes: dict[Label, Any] = {}
    for x, labels in terms:
        for label, n in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, n)
            if n is known or n == known:  # asked first: of a size that changes, whether it is 1 need not be
                continue
            if known == 1:
                sizes[label] = n
            elif n != 1:
                raise ShapeError(f"einsum({equation!r}): {spelled(label)} stands for sizes {known} and {n}")
    return sizes


def without_ones(x: Any, labels: tuple[Label, ...], sizes: dict[Label, Any]) -> Term:
    """The operand without dimensions of size 1 that are larger in another: so they are broadcast."""
    ones = {label for label, n in zip(labels, x.shape, strict=True) if n != sizes[label]}
    return without(x, labels, ones) if ones else (x, labels)


def without(x: Any, labels: tuple[Label, ...], ones: set[Label]) -> Term:
    """The operand without these dimensions, which are of size 1."""
    kept = [d for d, label in enumerate(labels) if label not in ones]
    return reshape(x, tuple(x.shape[d] for d in kept)), tuple(labels[d] for d in kept)


def summed(x: Any, labels: tuple[Label, ...], needed: set[Label]) -> Term:
    """The sum over dimensions whose labels nothing needs."""
    done = tuple(d for d, label in enumerate(labels) if label not in needed)
    return (sum(x, dim=done), tuple(label for label in labels if label in needed)) if done else (x, labels)


def permuted(x: Any, order: list[int]) -> Any:
    return x if order == list(range(len(order))) else permute(x, tuple(order))


def product(x: Any, left: tuple, y: Any, right: tuple, needed: set[Label]) -> Term:
    """Multiply two operands, adding up over the labels that both have and nothing needs.

    One product of (batches of) matrices: [both, left alone, summed] @ [both, summed, right alone].
    """
    if x.dtype != y.dtype:  # matrices must be of one dtype; where nothing is summed, a product promotes
        ones = {d for d, n in zip(left, x.shape, strict=True) if d in right and d not in needed and n == 1}
        if ones:
            (x, left), (y, right) = without(x, left, ones), without(y, right, ones)
    both = [label for label in left if label in right and label in needed]
    met = [label for label in left if label in right and label not in needed]
    alone = [label for label in left if label not in right], [label for label in right if label not in left]
    sizes = dict(zip(left, x.shape, strict=True)) | dict(zip(right, y.shape, strict=True))

    def shaped(z: Any, labels: tuple, *parts: list[Label]) -> Any:
        order = [label for part in parts for label in part]
        shape = tuple(prod(sizes[label] for label in part) for part in parts[1:])
        shape = (*(sizes[label] for label in parts[0]), *shape)
        z = permuted(z, [labels.index(label) for label in order])
        return z if all(len(part) == 1 for part in parts[1:]) else reshape(z, shape)

    if met:
        out = matmul(shaped(x, left, both, alone[0], met), shaped(y, right, both, met, alone[1]))
    else:
        out = shaped(x, left, both, alone[0], []) * shaped(y, right, both, [], alone[1])
    labels = (*both, *alone[0], *alone[1])
    shape = tuple(sizes[label] for label in labels)
    return (out if len(alone[0]) == len(alone[1]) == 1 else reshape(out, shape)), labels
