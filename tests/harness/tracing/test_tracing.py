"""The first non-finite operator and the first node that parts, on the small transformer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from harness.cli.app import app
from harness.model import InputError
from harness.tracing import nan, snapshots, transformer
from harness.tracing.child import ask

ME = "harness.tracing.transformer"


def test_a_healthy_model_has_no_culprit_though_its_mask_is_minus_infinity() -> None:
    for function in (transformer.healthy, transformer.autocast):
        found = nan.trace(function)
        assert (found.finite, found.culprit, found.unchanged) == (True, None, True)


def test_the_culprit_is_the_product_that_overflows_and_the_path_ends_at_the_result() -> None:
    found = nan.trace(transformer.overflowing)
    assert not found.finite and found.unchanged and found.culprit is not None
    assert (found.culprit.module, found.culprit.op, found.culprit.phase) == (
        "blocks.1.attention", "aten.bmm.default", "forward",
    )  # fmt: skip
    assert all(t.inf == t.nan == 0 and t.absmax and t.dtype == "float16" for t in found.culprit.inputs)
    assert [s.op for s in found.path].index("aten._softmax.default") > 0
    assert found.path[-1].module == "head"


def test_the_backward_pass_is_traced() -> None:
    forward = nan.trace(transformer.square_root_at_zero)
    assert forward.finite
    found = nan.trace(transformer.square_root_at_zero, backward=True)
    assert not found.finite and found.culprit is not None
    assert (found.culprit.phase, found.culprit.node) == ("backward", "SqrtBackward0")
    assert nan.trace(transformer.healthy, backward=True).finite


@pytest.mark.parametrize("name", ["embedding", "blocks.0.mlp.1", "blocks.1.before_mlp", "norm", "head"])
def test_an_injected_infinity_is_found_where_it_was_put(name: str) -> None:
    found = nan.trace(transformer.healthy, inject=name)
    assert found.culprit is not None and (found.culprit.op, found.culprit.module) == ("inject", name)
    assert not found.finite


def test_injecting_nowhere_names_the_modules() -> None:
    with pytest.raises(nan.NoSuchModule, match=r"no module 'x' ran; there are Transformer, embedding"):
        nan.trace(transformer.healthy, inject="x")


def test_unwritten_memory_is_nobodys_result() -> None:
    poison = [torch.full((1000,), torch.nan) for _ in range(50)]
    poison.clear()

    def function() -> torch.Tensor:
        out = torch.empty(1000)
        out.copy_(torch.ones(1000))
        return out * 2

    assert nan.trace(function).culprit is None


def test_a_fill_with_nan_is_a_culprit() -> None:
    found = nan.trace(lambda: torch.zeros(3).fill_(torch.nan) + 1)
    assert found.culprit is not None and found.culprit.op == "aten.fill_.Scalar"


def test_the_reported_softmax_holds_for_a_naive_one_only() -> None:
    x = torch.tensor([2.0, torch.inf])
    naive = torch.exp(x) / torch.exp(x).sum()
    assert naive[0] == 0 and torch.isnan(naive[1])
    assert bool(torch.isnan(torch.softmax(x, 0)).all())


def test_recordings_of_the_same_agree_and_a_moved_bias_is_found(tmp_path: Path) -> None:
    a, b, c = (tmp_path / f"{n}.jsonl" for n in "abc")
    counts = [
        snapshots.write(f, p) for f, p in ((transformer.healthy, a), (transformer.healthy, b), (transformer.moved, c))
    ]
    assert counts[0] == counts[1] == len(list(snapshots.read(a))) > 20
    assert snapshots.first_difference(snapshots.read(a), snapshots.read(b)) is None
    found = snapshots.first_difference(snapshots.read(a), snapshots.read(c))
    assert found is not None and found.a is not None and found.a.op == "linear" and found.share is not None
    # The second linear of the model: the first attention's output.
    linears = [n for n, r in enumerate(snapshots.read(a)) if r.op == "linear"]
    assert found.index == linears[1]
    assert snapshots.first_difference(snapshots.read(a), snapshots.read(c), tolerance=10.0) is None


def test_bad_files_name_file_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for text, words in (
        ("{}\n", r"x.jsonl:1: not a file of snapshots"),
        ("[\n", r"x.jsonl:1: not JSON"),
        ('{"format": "attnwatch snapshots", "version": 1}\n{"graph": 1}\n', r"x.jsonl:2: a record has the fields"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=words):
            list(snapshots.read(path))


@pytest.mark.slow
def test_commands_end_as_they_say(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["trace-nan", f"{ME}:overflowing", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["culprit"]["module"] == "blocks.1.attention"
    done = runner.invoke(app, ["trace-nan", f"{ME}:overflowing", "--compiled", "--json"])
    assert done.exit_code == 1 and json.loads(done.stdout)["record"]["op"] == "matmul"
    done = runner.invoke(app, ["diff-snapshots", f"{ME}:healthy", f"{ME}:moved", "--save", str(tmp_path), "--json"])
    assert done.exit_code == 1 and json.loads(done.stdout)["difference"] is not None
    again = runner.invoke(app, ["diff-snapshots", str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl")])
    assert (again.exit_code, again.stdout) == (0, "no node differs\n")


def test_what_cannot_be_called_is_bad_usage() -> None:
    for target, words in (("nonsense", "is not package.module:callable"), (f"{ME}:nothing", "AttributeError")):
        with pytest.raises(InputError, match=words):
            ask("nan", target, backward=False, compiled=False, inject=None)
