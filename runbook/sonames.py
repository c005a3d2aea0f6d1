"""Which libraries are torch's, CUDA's and the driver's, by name. The hexadecimal digits mark a copy that a wheel carries itself."""

import re

TORCH = re.compile(r"lib(torch|c10|shm\.so)")
_MARK = r"((-|\.)[0-9a-f]{8})?\.so"
CUDA = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cudnn|cufft|cufile|cupti|curand|cusolver|cusolverMg|cusparse|cusparseLt|nvrtc|nvJitLink"
    rf"|nvToolsExt|nvshmem_host|nvjpeg|nccl|nvidia-ml){_MARK}"
)
# These come with the kernel driver, not with any package: on a machine without a GPU they are not missing.
DRIVER = re.compile(r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvcuvid|nvidia-encode|nvoptix)\.so")
# Libraries whose number is CUDA's major version; that of cuDNN, cuFFT, NCCL and others is their own.
NUMBERED = re.compile(rf"lib(cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti){_MARK}\.(\d{{1,3}})(\.|$)")
