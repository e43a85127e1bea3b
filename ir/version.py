"""State the version of Lamina: pyproject.toml reads it here, and `lamina.__version__` hands it on."""

__version__ = "0.1.0"
