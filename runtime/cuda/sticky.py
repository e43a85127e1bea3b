"""The errors that lose a device: from then on every call of the process fails there, with the same code."""

# Source: the documentation of CUresult in cuda.h of CUDA 13.  Of each it says that "any further CUDA work
# will return the same error", that the process "must be terminated and relaunched", or that the context can't
# be used anymore; of the last three only that what can't be corrected happened, or that the context is gone.
STICKY = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    }
)
# HIP's documentation says nothing of the kind: its names of some of the above.
HIP_STICKY = frozenset(
    {
        "hipErrorAssert",
        "hipErrorContextIsDestroyed",
        "hipErrorECCNotCorrectable",
        "hipErrorIllegalAddress",
        "hipErrorLaunchFailure",
        "hipErrorLaunchTimeOut",
    }
)
