"""Answer `torch.backends`: none of these libraries is there, and their switches may be set to no effect.

Each switch permits a backend to be faster or demands that it be reproducible; Lamina's results on the CPU are
those of its plain kernels either way.
"""

from types import ModuleType, SimpleNamespace


def _absent(name: str, **switches: object) -> ModuleType:
    made = ModuleType(f"lamina.backends.{name}", f"The switches of {name}, which is not there.")
    vars(made).update(is_available=lambda: False, is_built=lambda: False, **switches)
    return made


cudnn = _absent(
    "cudnn", benchmark=False, deterministic=False, enabled=True, allow_tf32=True, version=lambda: None
)
cuda = _absent("cuda", matmul=SimpleNamespace(allow_tf32=False))
mps = _absent("mps")
mkldnn = _absent("mkldnn", enabled=True)

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]
