"""State the version of Lamina: pyproject.toml reads it here, and `lamina.__version__` hands it on."""

__version__ = "0.1.0"
PYTORCH = "2.13.0"  # the version of PyTorch whose names, arguments and defaults these are
