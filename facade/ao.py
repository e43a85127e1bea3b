"""Answer `torch.ao`: its `quantization` is Lamina's."""

from .late import of_room

__path__: list[str] = []  # Python looks below what has one
__getattr__ = of_room("ao")
__all__: list[str] = []
