"""Which environment variables may change a number: recorded with a run, part of the key of a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

#: Switches on faulty kernels, to prove that they are found (``kernels/faults``).
FAULTS = "ATTNWATCH_FAULTS"

#: Variables that may change a number; part of the environment record.
RECORDED = (
    "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
    "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*", "FLASH_ATTN*", "FLASHINFER_*",
    "VLLM_ATTENTION_BACKEND", "XFORMERS_*", "NVIDIA_TF32_OVERRIDE", "CUBLAS_*", "LD_PRELOAD",
    FAULTS,
)  # fmt: skip

#: Variables by prefix that change what numeric libraries do. Spelled widely: a needless worker costs seconds.
KEYED = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "TORCH", "PYTORCH_", "TRITON_", "CUDA", "CUBLAS",
    "CUDNN", "NVIDIA_", "NCCL_", "XFORMERS_", "FLASH", "FA_", "INDUCTOR_", "DNNL_", "ONEDNN_", "LD_", "MALLOC_",
    "GLIBC_", "PYTHON", "ATTNWATCH_BENCH", FAULTS,
)  # fmt: skip

# Never recorded: anything that could be a secret, and folders, which differ between machines without effect.
_SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|AUTH|KEY(?!S?_CACHE)", re.IGNORECASE)
_FOLDER = re.compile(r"_(DIR|HOME|PATH|ROOT|FILE)$")


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """The allow-listed variables of ``environment``, without what may hold a secret or names a folder."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if any(fnmatchcase(name, pattern) for pattern in RECORDED)
        and not _SECRET.search(name)
        and not _FOLDER.search(name)
        and not re.search(r"://[^/\s]*@", value)
    }
