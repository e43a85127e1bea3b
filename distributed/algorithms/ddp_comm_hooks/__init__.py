"""Ways in which gradients are averaged, for `DistributedDataParallel.register_comm_hook`."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: "
        "write import lamina.distributed.algorithms.ddp_comm_hooks"
    )

from . import default_hooks, powerSGD_hook
