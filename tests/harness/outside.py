"""A tiny distribution of others with one backend and one suite, as pip would leave it in a folder."""

from __future__ import annotations

from pathlib import Path

BACKEND = """
def attention(q, k, v, *, causal=False, causal_alignment="bottom_right", window=None, softcap=None, scale=None,
              mask=None):
    "A private kernel: PyTorch's own."
    from kernels.backend import Unsupported
    from torch.nn.functional import scaled_dot_product_attention

    if window is not None or softcap is not None or mask is not None or (causal and q.shape[2] != k.shape[2]):
        raise Unsupported("too plain for that")
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""

SUITE = """
from benchmarks import backends_of
from harness.model.suite import Question, grid

QUESTION = Question(
    "served", "attention", {"ours_at_work": grid("attention", seq_len=[16, 24], heads_q=2, head_dim=8)},
    backends_of("attention"),
)
"""


def install(folder: Path, *, broken: bool = True) -> Path:
    """Put the distribution into ``folder``, for PYTHONPATH; with ``broken`` also entry points that lead nowhere."""
    package = folder / "others_at_work"
    (package / "suites").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "kernel.py").write_text(BACKEND)
    (package / "suites" / "__init__.py").touch()
    (package / "suites" / "served.py").write_text(SUITE)
    info = folder / "others_at_work-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others-at-work\nVersion: 1.0\n")
    lost = "lost = others_that_are_not_there:f\n" if broken else ""
    (info / "entry_points.txt").write_text(
        f"[attnwatch.backends]\nat_work = others_at_work.kernel:attention\n{lost}\n"
        f"[attnwatch.suites]\nat_work = others_at_work.suites\n{lost.replace(':f', '')}"
    )
    return folder
