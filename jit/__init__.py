"""Keep the room for recording a run, guarding, compiling, exporting it.  The tracer is not written yet."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.jit")
