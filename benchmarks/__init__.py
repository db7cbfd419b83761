"""asv suites: one module per question. Each declares a ``QUESTION`` and its asv benchmark ``attn_latency``."""

import os

from harness.model.suite import DEFAULT_SUITE, SUITE_VARIABLE
from kernels.registry import all_backends

#: The suite that asv sweeps: a name or a workload file.
SUITE = os.environ.get(SUITE_VARIABLE, DEFAULT_SUITE)

# Looked up once: entry points are searched on disk, and theirs may import what they like.
_BACKENDS = all_backends()


def backends_of(operation: str) -> tuple[str, ...]:
    """Names of the backends of an operation: ours in the registry's order, then those of entry points.

    A backend of others that cannot be loaded has no operations and is left out; ``attnwatch doctor`` says why.
    """
    return tuple(name for name, backend in _BACKENDS.items() if operation in backend.operations)
