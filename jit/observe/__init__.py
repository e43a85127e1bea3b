"""Watches what Python does in a run: which facts about the heap it read, and which effects it had."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.jit.observe")
