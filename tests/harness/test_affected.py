"""What a change can touch, in a repository of its own, and against what Python really imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.affected import Affected, _imports, affected
from harness.import_graph import ImportGraph
from harness.model import Case, InputError
from harness.selection import select
from harness.suites import load_suite

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg*", "node_modules")


class Clone:
    """Our kernels, suites and harness in a repository of their own."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "clone"
        for name in ("kernels", "benchmarks", "harness", "docs"):
            shutil.copytree(ROOT / name, self.repo / name, ignore=IGNORED)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *args: str) -> str:
        command = ["git", "-C", str(self.repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x", "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def touch(self, *paths: str, text: str = "\n# changed\n") -> Affected:
        """What a commit that appends to ``paths`` can touch; it is taken back afterwards."""
        base = self.git("rev-parse", "main")
        for path in paths:
            place = self.repo / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text((place.read_text() if place.exists() else "") + text)
        head = self.commit()
        self.git("reset", "-q", "--hard", base)
        return affected(self.repo, base, head)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    folder = tmp_path_factory.mktemp("affected")
    before = os.environ.get("ATTNWATCH_RUNTIME_DIR")
    os.environ["ATTNWATCH_RUNTIME_DIR"] = str(folder / "run")
    yield Clone(folder)
    if before is None:
        del os.environ["ATTNWATCH_RUNTIME_DIR"]
    else:
        os.environ["ATTNWATCH_RUNTIME_DIR"] = before


def backends(change: Affected, suite: str = "full") -> set[tuple[str, str]]:
    return {(c.backend, c.workload.operation) for c in load_suite(suite) if change.touches(c)}


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["docs/page.md", "README.md", "kernels/README.md", "docs/img/x.svg"], "pages alone changed"),
        (["dashboard/app.py", "harness/comment/render.py", "tests/test_x.py"], "nothing that is measured changed"),
        ([], "nothing changed"),
    ],
)
def test_what_nobody_measures_touches_nothing(clone: Clone, paths: list[str], why: str) -> None:
    change = clone.touch(*paths)
    assert (change.nothing, change.everything, change.why) == (True, False, why)
    assert backends(change) == set()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("harness/measuring/bench.py", "the ruler itself changed"),
        ("harness/worker/brand_new.py", "the ruler itself changed"),
        ("harness/model/records.py", "the ruler itself changed"),
        ("kernels/registry.py", "every backend imports what changed"),
        ("kernels/faults/decode_boundary.py", "nobody can tell what it touches"),
        ("kernels/pyproject.toml", "nobody can tell what it touches"),
        ("constraints.txt", "nobody can tell what it touches"),
        ("new_thing.py", "nobody can tell what it touches"),
        ("docs/../.github/workflows/ci.yml", "nobody can tell what it touches"),
    ],
)
def test_what_is_unclear_touches_everything(clone: Clone, path: str, why: str) -> None:
    change = clone.touch("docs/page.md", path)
    assert change.everything and why in change.why
    assert all(change.touches(c) for c in load_suite("full"))


def test_a_kernel_touches_who_imports_it(clone: Clone) -> None:
    pages = clone.touch("kernels/paged/pages.py")
    assert backends(pages) == {("paged", "paged_attention")} and not pages.everything
    oracle = clone.touch("kernels/paged/reference.py")
    assert {op for _, op in backends(oracle)} == {"paged_attention"}, "an oracle gates every backend of its operation"
    assert len(backends(oracle)) > 3
    kernel = clone.touch("kernels/triton_support/forward_kernel.py", "docs/page.md")
    assert {b for b, _ in backends(kernel)} == {"segmented_triton", "paged_triton"}
    assert "segmented_triton" in kernel.why and kernel.told()["files"] == 2
    outside = select("smoke", ["theirs.module:attention"])
    assert all(kernel.touches(c) for c in outside), "theirs may import ours"


def test_a_suite_touches_its_own_cases(clone: Clone) -> None:
    change = clone.touch("benchmarks/varlen.py")
    assert {c.benchmark for c in load_suite("full") if change.touches(c)} == {"varlen"} and not change.nothing
    both = clone.touch("benchmarks/varlen.py", "kernels/gemm/products.py")
    assert {c.benchmark for c in load_suite("full") if both.touches(c)} == {"varlen", "gemm_alignment"}
    package = clone.touch("benchmarks/__init__.py")
    assert all(package.touches(c) for c in load_suite("full"))


def test_either_side_counts_and_so_does_the_working_tree(clone: Clone) -> None:
    base = clone.git("rev-parse", "main")
    place = clone.repo / "kernels" / "softmax" / "helper.py"
    place.write_text("X = 1\n")
    blocks = clone.repo / "kernels" / "softmax" / "blocks.py"
    text = blocks.read_text()
    blocks.write_text(text.replace("import torch\n", "import torch\n\nfrom . import helper\n", 1))
    new = affected(clone.repo, base, None)
    assert {op for _, op in backends(new)} == {"softmax"} and "kernels/softmax/helper.py" in new.changed
    middle = clone.commit()
    blocks.write_text(text)
    place.unlink()
    gone = affected(clone.repo, middle, clone.commit())
    assert {op for _, op in backends(gone)} == {"softmax"}, "what only base imports counts"
    clone.git("reset", "-q", "--hard", base)


def test_a_registry_that_cannot_be_read_leaves_it_unclear(clone: Clone) -> None:
    base = clone.git("rev-parse", "main")
    (clone.repo / "kernels" / "registry.py").write_text("raise RuntimeError('no')\n")
    change = affected(clone.repo, base, clone.commit())
    clone.git("reset", "-q", "--hard", base)
    assert change.everything and "cannot be told" in change.why
    broken = clone.touch("kernels/softmax/blocks.py", text="\ndef (:\n")
    assert broken.everything and "blocks.py:" in broken.why
    with pytest.raises(InputError, match="no-such"):
        affected(clone.repo, "no-such", None)


def test_a_fault_that_is_put_in_leaves_it_unclear(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_FAULTS", "paged_small_pages")
    assert clone.touch("kernels/gemm/products.py").everything
    assert clone.touch("docs/page.md").nothing


@pytest.mark.slow
def test_no_import_is_overlooked() -> None:
    """Each CPU backend is imported for real, alone: what Python then holds of kernels is among what was read."""
    held = _imports(ROOT)
    pairs = {("paged", "paged_attention"), ("segmented", "varlen_attention"), ("gemm_split", "gemm")}
    ask = (
        "import importlib, json, sys; from kernels import registry as r; before = set(sys.modules)\n"
        "b = r.BACKENDS[sys.argv[1]]; r.resolve(b.probe)('cpu'); r.resolve(b.operations[sys.argv[2]])\n"
        "r.resolve(r.ORACLES[sys.argv[2]])\n"
        "print(json.dumps([m for m in set(sys.modules) - before if m.split('.')[0] == 'kernels']))"
    )
    for pair in sorted(pairs):
        done = subprocess.run(
            [sys.executable, "-c", ask, *pair], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
        )
        loaded = set(json.loads(done.stdout))
        assert loaded and loaded <= held[pair]


def test_names_are_resolved_as_python_does(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "", "p/a.py": "from . import b\nfrom .sub import deep as d\nimport os.path\n", "p/b.py": "",
        "p/sub/__init__.py": "from .. import c", "p/sub/deep.py": "def f():\n    import p.lazy\n", "p/c.py": "",
        "p/lazy.py": "from .sub.deep import f", "p/other.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = ImportGraph(tmp_path, ("p",))
    everything = {"p", "p.a", "p.b", "p.sub", "p.sub.deep", "p.c", "p.lazy"}
    assert graph.closure(["p.a"]) == everything
    assert graph.closure(["p.b", "nobody"]) == {"p", "p.b"}
    assert graph.below("p.sub") == ["p.sub", "p.sub.deep"]


def test_cases_of_the_change_alone(clone: Clone) -> None:
    def keys(change: Affected) -> set[str]:
        return {c.key for c in smoke if change.touches(c)}

    smoke: list[Case] = load_suite("smoke")
    assert keys(clone.touch("kernels/paged/pages.py")) < {c.key for c in smoke}
    assert keys(clone.touch("constraints.txt")) == {c.key for c in smoke}
