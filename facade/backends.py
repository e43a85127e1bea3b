"""Answer `torch.backends`: none of these libraries is there, and their switches may be set to no effect.

Each switch permits a backend to be faster or demands that it be reproducible; Lamina's results on the CPU are
those of its plain kernels either way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

from ..ir.errors import ArgumentError
from ..ir.pretended_gpus import count
from ..ir.warned import warn
from ..runtime import modes


def get_cpu_capability() -> str:
    """Which vectors the CPU has: "AVX512", "AVX2" or "DEFAULT"."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            words = {word for line in file if line.startswith("flags") for word in line.split()}
    except OSError:  # no Linux
        words = set()
    return "AVX512" if "avx512f" in words else "AVX2" if "avx2" in words else "DEFAULT"


def _absent(name: str, **switches: object) -> ModuleType:
    made = ModuleType(f"lamina.backends.{name}", f"The switches of {name}, which is not there.")

    @contextmanager
    def flags(**asked: object) -> Iterator[None]:
        """Set the switches for a block.  Raises ArgumentError for one that there is not."""
        if unknown := [switch for switch in asked if switch not in switches]:
            raise ArgumentError(f"backends.{name}.flags: there is no switch {', '.join(unknown)}")
        before = {switch: getattr(made, switch) for switch in asked}
        try:
            vars(made).update(asked)
            yield
        finally:
            vars(made).update(before)

    vars(made).update(is_available=lambda: False, is_built=lambda: False, flags=flags, **switches)
    return made


cudnn = _absent(
    "cudnn",
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    enabled=True,
    allow_tf32=True,
    fp32_precision="none",
    version=lambda: None,
)
cuda = _absent("cuda", matmul=SimpleNamespace(allow_tf32=False))
vars(cuda).update(is_built=lambda: count() > 0)  # programs ask before they ask for devices


# Which kernels attention may use there; it has one here, whose results are those of each.
_sdp_choices = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)


def _switches(kind: str) -> dict[str, Callable]:
    def enable(enabled: bool) -> None:
        if modes.CHANGED:
            modes.tell("refuse", f"enable_{kind}_sdp() chose among kernels of attention")
        _sdp_choices[kind] = bool(enabled)

    def asked() -> bool:
        if modes.CHANGED:
            modes.tell("refuse", f"{kind}_sdp_enabled() asked for a choice among kernels of attention")
        return _sdp_choices[kind]

    return {f"enable_{kind}_sdp": enable, f"{kind}_sdp_enabled": asked}


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Permit attention these kernels for a block (deprecated: `nn.attention.sdpa_kernel`)."""
    warn("sdp_kernel is deprecated: use nn.attention.sdpa_kernel", FutureWarning, stacklevel=3)
    before = dict(_sdp_choices)
    try:
        _sdp_choices.update(
            flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
        )
        yield
    finally:
        _sdp_choices.update(before)


for _kind in _sdp_choices:
    vars(cuda).update(_switches(_kind))
vars(cuda).update(
    sdp_kernel=sdp_kernel,
    is_flash_attention_available=lambda: False,
    preferred_linalg_library=lambda backend=None: "default",
    preferred_blas_library=lambda backend=None: "default",
)
mps = _absent("mps", is_macos_or_newer=lambda major, minor: False)
opt_einsum = _absent("opt_einsum", enabled=True, strategy="auto")
cpu = ModuleType("lamina.backends.cpu", "What the CPU can do.")
vars(cpu).update(get_cpu_capability=get_cpu_capability)
fp32_precision = "none"
mkldnn = _absent("mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none")
quantized = _absent("quantized", supported_engines=["none"], engine="none")

__all__ = ["cpu", "cuda", "cudnn", "fp32_precision", "mkldnn", "mps", "opt_einsum", "quantized"]
