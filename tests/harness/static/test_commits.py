"""A planted change of our kernels is found between two commits, by really compiling both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .commits import planted, static


@pytest.mark.slow
def test_half_the_warps_for_one_head_size(tmp_path: Path) -> None:
    repo = planted(tmp_path)
    where = "kernel == 'attend' and q_len == 4096 and dtype == 'float16' and causal and head_dim in (64, 128)"
    where += " and operation == 'attention' and heads_q == 8"
    (tmp_path / "report.json").write_text('{"cases": [], "base": "b", "head": "h"}')
    report = static(
        repo,
        "--base",
        "HEAD~1",
        "--head",
        "HEAD",
        "--where",
        where,
        "--add-to",
        str(tmp_path / "report.json"),
        expect=1,
    )
    (found,) = report["incidents"]
    assert {f["metric"] for f in found["findings"]} == {"occupancy", "spill_bytes"}
    shapes = [f["case"]["workload"]["params"] for f in found["findings"]]
    assert {(p["head_dim"], p["target"], p["kernel"]) for p in shapes} == {(128, "sm_90", "attend")}
    assert {p.get("kv_dtype") for p in shapes} == {None, "float8_e4m3fn"}
    lost = next(f for f in found["findings"] if f["metric"] == "occupancy")
    assert lost["value"] < lost["level"]
    assert report["counts"] == {"ok": 3} and report["base_revision"]["subject"] == "Kernels"
    assert json.loads((tmp_path / "report.json").read_text())["static"]["incidents"] == report["incidents"]


@pytest.mark.parametrize(
    "args, words",
    [
        (("--base", "nosuch"), "'nosuch' is no commit"),
        (("--targets", "75"), "'75' is none of 80, 86"),
        (("--grid", "some"), "'some' is none of pull_request, full"),
        (("--base", "HEAD", "--out", "x.jsonl"), "leave --base out"),
        (("--add-to", "x.json"), "needs --base"),
        (("--reason", "boredom"), "neither manual nor nightly"),
        (("--where", "head_dim == 64"), "a part of the grid"),
    ],
)
def test_bad_usage_says_so(args: tuple[str, ...], words: str) -> None:
    from typer.testing import CliRunner

    from harness.cli.app import app
    from harness.model import InputError

    result = CliRunner().invoke(app, ["static", *args])
    assert isinstance(result.exception, InputError) and words in str(result.exception)
