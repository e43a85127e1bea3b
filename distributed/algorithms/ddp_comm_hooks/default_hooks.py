"""Averages of gradients as they are, or in 16 bits on their way, for `register_comm_hook(group, hook)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.dtypes import DType, bfloat16, float16
from ....ir.errors import ArgumentValueError
from ....runtime import Tensor, no_grad
from ...buckets import GradBucket
from ...collectives import all_reduce
from ...groups import ProcessGroup, resolved
from ...work import Future

Hook = Callable[[Any, GradBucket], Future]


def group_of(process_group: Any) -> ProcessGroup:
    """The ranks that a hook's state means, all unless said.  Raises ArgumentValueError outside of them."""
    group = resolved(process_group)
    if group is None:
        raise ArgumentValueError("a hook of DistributedDataParallel: this process is not in its group")
    return group


def _averaged(group: ProcessGroup, buffer: Tensor) -> Future:
    """A future of [the mean of a buffer over all ranks], which is written."""
    buffer.div_(group.size())  # ahead, so that a sum of halves stays within their range
    return all_reduce(buffer, group=group, async_op=True).get_future()


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients: what is done without a hook."""
    group = group_of(process_group)
    with no_grad():
        return _averaged(group, bucket.buffer()).then(lambda future: future.value()[0])


def _narrow(process_group: Any, bucket: GradBucket, dtype: DType) -> Future:
    group = group_of(process_group)
    buffer = bucket.buffer()

    def widened(future: Future) -> Tensor:
        with no_grad():
            return buffer.copy_(future.value()[0])

    with no_grad():
        return _averaged(group, buffer.to(dtype)).then(widened)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients in float16, which halves what goes between ranks."""
    return _narrow(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients in bfloat16, which halves what goes between ranks."""
    return _narrow(process_group, bucket, bfloat16)


def _wrapped(hook: Hook, dtype: DType) -> Hook:
    def narrow_around(state: Any, bucket: GradBucket) -> Future:
        wide = bucket.buffer()

        def widened(future: Future) -> Tensor:
            value = future.value()
            with no_grad():
                return wide.copy_(value[0] if isinstance(value, (list, tuple)) else value)

        with no_grad():
            bucket.set_buffer(wide.to(dtype))
            return hook(state, bucket).then(widened)

    return narrow_around


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, which sees gradients in float16."""
    return _wrapped(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, which sees gradients in bfloat16."""
    return _wrapped(hook, bfloat16)
