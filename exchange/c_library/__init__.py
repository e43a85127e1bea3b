"""A model as a C library: one shared object that needs the C library alone, and a header.

lamina.jit.export(model, "digits.so", x, dynamic={"x": {0: "batch"}}, header="digits.h")
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.exchange.c_library"
    )
