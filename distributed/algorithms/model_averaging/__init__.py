"""Training in which ranks average their parameters now and then, not their gradients at each step."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: "
        "write import lamina.distributed.algorithms.model_averaging"
    )

from . import averagers
