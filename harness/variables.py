"""Which environment variables may change a number: recorded with a run, part of the key of a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from harness.model import InputError

#: Switches on faulty kernels, to prove that they are found (``kernels/faults``).
FAULTS = "ATTNWATCH_FAULTS"

#: The parameter of a workload that names variables, and its value for none of them.
ENV_PARAMETER, NO_VARIABLES = "env", "none"

#: Switches on the memory tracer; changes no number, so it is not recorded, but a worker must have it from its start.
TRACE_MEMORY = "ATTNWATCH_TRACE_MEM"

#: Variables that may change a number; part of the environment record.
RECORDED = (
    "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
    "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*", "FLASH_ATTN*", "FLASHINFER_*",
    "ATEN_*", "ONEDNN_*", "DNNL_*",
    "VLLM_ATTENTION_BACKEND", "XFORMERS_*", "NVIDIA_TF32_OVERRIDE", "CUBLAS_*", "LD_PRELOAD",
    FAULTS,
)  # fmt: skip

#: Variables by prefix that change what numeric libraries do. Spelled widely: a needless worker costs seconds.
KEYED = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "TORCH", "PYTORCH_", "TRITON_", "CUDA", "CUBLAS",
    "CUDNN", "NVIDIA_", "NCCL_", "XFORMERS_", "FLASH", "FA_", "INDUCTOR_", "DNNL_", "ONEDNN_", "LD_", "MALLOC_",
    "GLIBC_", "PYTHON", "ATTNWATCH_BENCH", TRACE_MEMORY, "VLLM_", FAULTS,
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


def axis(text: str) -> dict[str, str]:
    """The variables of a workload's ``env``, as in ``NAME=VALUE,NAME=VALUE`` ("none" sets none).

    Only variables that are recorded, since a number must say what it was measured under: :class:`InputError` names any
    other.
    """
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        if part == NO_VARIABLES:
            continue
        name, equals, value = part.partition("=")
        if not equals or name in found:
            raise InputError(f"parameter env: {part!r} is not NAME=VALUE, or stands twice; write A=1,B=2 or none")
        if not recorded({name: value}):
            raise InputError(
                f"parameter env: {name} is not among the variables that are recorded; see docs/measurement.md"
            )
        found[name] = value
    return found
