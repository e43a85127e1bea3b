"""What ranks do beside averaging gradients: joining with unequal inputs, hooks, averages of models."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.algorithms"
    )
