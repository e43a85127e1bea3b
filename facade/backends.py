"""Answer `torch.backends`: none of these libraries is there, and their switches may be set to no effect.

Each switch permits a backend to be faster or demands that it be reproducible; Lamina's results on the CPU are
those of its plain kernels either way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.pretended_gpus import count
from ..ir.warned import warn
from ..nn.sdp_kernels import SDPBackend


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
_SDP = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
_reduction = False
_preferred = {"linalg": "default", "blas": "cublas"}
_LIBRARIES = {
    "linalg": ("default", "cusolver", "magma"),
    "blas": ("default", "cublas", "cublaslt", "hipblaslt", "ck"),
}


def _sdp_switch(kernel: str) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    def enable(enabled: bool) -> None:
        """Permit a GPU's attention this kernel, or not."""
        _SDP[kernel] = bool(enabled)

    def is_enabled() -> bool:
        """What was told last."""
        return _SDP[kernel]

    return enable, is_enabled


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[str, bool]]:
    """Permit a GPU's attention these kernels within a block: an older `torch.nn.attention.sdpa_kernel`."""
    warn("backends.cuda.sdp_kernel is deprecated: use torch.nn.attention.sdpa_kernel", FutureWarning, 3)
    before = dict(_SDP)
    try:
        _SDP.update(
            flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
        )
        yield dict(_SDP)
    finally:
        _SDP.update(before)


def _preference(kind: str) -> Callable[..., str]:
    def preferred(backend: str | None = None) -> str:
        """Tell which of a GPU's libraries is preferred, after `backend` was, where it is given.

        Raises ArgumentValueError for one that there is not.
        """
        if backend is not None:
            if backend not in _LIBRARIES[kind]:
                raise ArgumentValueError(
                    f"preferred_{kind}_library: Unknown input value {backend!r}: "
                    f"one of {', '.join(_LIBRARIES[kind])}"
                )
            _preferred[kind] = backend
        return _preferred[kind]

    return preferred


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Permit a GPU's attention to sum in halves, or not."""
    global _reduction
    _reduction = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` was told last."""
    return _reduction


class SDPAParams(NamedTuple):
    """A call of attention, of which a GPU's kernels are asked."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool


def _can_not(params: SDPAParams, debug: bool = False) -> bool:
    """Whether a GPU's kernel of PyTorch's takes a call: none is here."""
    return False


cuda = _absent(
    "cuda",
    matmul=SimpleNamespace(
        allow_tf32=False,
        allow_fp16_reduced_precision_reduction=True,
        allow_bf16_reduced_precision_reduction=True,
        allow_fp16_accumulation=False,
    ),
)
vars(cuda).update(
    is_built=lambda: count() > 0,  # programs ask before they ask for devices
    is_flash_attention_available=lambda: False,
    sdp_kernel=sdp_kernel,
    SDPBackend=SDPBackend,
    SDPAParams=SDPAParams,
    can_use_flash_attention=_can_not,
    can_use_efficient_attention=_can_not,
    can_use_cudnn_attention=_can_not,
    preferred_linalg_library=_preference("linalg"),
    preferred_blas_library=_preference("blas"),
    allow_fp16_bf16_reduction_math_sdp=allow_fp16_bf16_reduction_math_sdp,
    fp16_bf16_reduction_math_sdp_allowed=fp16_bf16_reduction_math_sdp_allowed,
)
for _kernel in _SDP:
    _enable, _is_enabled = _sdp_switch(_kernel)
    vars(cuda).update({f"enable_{_kernel}_sdp": _enable, f"{_kernel}_sdp_enabled": _is_enabled})
mps = _absent("mps", is_macos_or_newer=lambda major, minor: False)
mkl, openmp, nnpack = _absent("mkl"), _absent("openmp"), _absent("nnpack", enabled=True)
cusparselt, kleidiai = _absent("cusparselt", version=lambda: None), _absent("kleidiai")
opt_einsum = _absent("opt_einsum", enabled=True, strategy="auto")
cpu = ModuleType("lamina.backends.cpu", "What the CPU can do.")
vars(cpu).update(get_cpu_capability=get_cpu_capability)
fp32_precision = "none"
mkldnn = _absent("mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none")
quantized = _absent("quantized", supported_engines=["none"], engine="none")

__all__ = [
    "cpu", "cuda", "cudnn", "cusparselt", "fp32_precision", "kleidiai", "mkl", "mkldnn", "mps", "nnpack",
    "openmp", "opt_einsum", "quantized",
]  # fmt: skip
