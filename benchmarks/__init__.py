"""asv suites: one module per question. Each declares a ``QUESTION`` and its asv benchmark ``attn_latency``."""

from kernels.registry import BACKENDS


def backends_of(operation: str) -> tuple[str, ...]:
    """Names of the registered backends of an operation, in the registry's order."""
    return tuple(name for name, backend in BACKENDS.items() if operation in backend.operations)
