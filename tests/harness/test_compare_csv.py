"""``compare_csv``: verdicts on samples in a file, and every way a file can be wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare import adverse, compare_csv
from harness.detection.ab import ABOptions
from harness.model import InputError

JUDGE = ABOptions()


def write(folder: Path, rows: list[tuple[object, object, object]], header: str = "case,side,value") -> str:
    path = folder / "samples.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def noisy(case: str, ratio: float, n: int, seed: int = 0) -> list[tuple[object, object, object]]:
    rng = random.Random(seed)
    return [
        (case, side, 1e-3 * (ratio if side == "head" else 1) * rng.lognormvariate(0, 0.01))
        for _ in range(n)
        for side in ("base", "head")
    ]


def test_slower_faster_and_same_are_told_apart(tmp_path: Path) -> None:
    rows = noisy("slow", 1.2, 40) + noisy("fast", 0.8, 40, 1) + noisy("same", 1.0, 200, 2)
    report = compare_csv(write(tmp_path, rows), JUDGE)
    assert {k: c["verdict"] for k, c in report["cases"].items()} == {"slow": "slower", "fast": "faster", "same": "same"}
    slow = report["cases"]["slow"]
    assert slow["ratio_ci"][0] < slow["ratio"] < slow["ratio_ci"][1] and 1.15 < slow["ratio"] < 1.25
    assert 0 < slow["smallest_detectable"] < 0.1 and (slow["n_base"], slow["n_head"]) == (40, 40)
    assert adverse(report)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_one_sample_a_side_says_nothing(tmp_path: Path, ratio: float) -> None:
    report = compare_csv(write(tmp_path, [("a", "base", 1.0), ("a", "head", ratio)]), JUDGE)
    found = report["cases"]["a"]
    assert (
        found["verdict"] == "ambiguous"
        and found["smallest_detectable"] is None
        and found["ratio"] == pytest.approx(ratio)
    )
    assert found["ratio_ci"][1] is None and not adverse(report)


def test_constant_samples_are_exact_from_three_on(tmp_path: Path) -> None:
    for n, verdict in ((2, "ambiguous"), (3, "slower"), (5, "slower")):
        rows = [("bytes", side, value) for side, value in (("base", 100), ("head", 120)) for _ in range(n)]
        assert compare_csv(write(tmp_path, rows), JUDGE)["cases"]["bytes"]["verdict"] == verdict, n


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case,side,value\na,base,1\na,head,inf\n", r"samples.csv:3: column 'value': inf is no sample"),
        ("case,side,value\na,base,nan\na,head,1\n", r"samples.csv:2: column 'value': nan is no sample"),
        ("case,side,value\na,base,\na,head,1\n", r"samples.csv:2: column 'value'.*empty"),
        ("case,side,value\na,base,x\na,head,1\n", r"samples.csv:2: column 'value'.*'x'"),
        ("case,side,value\na,base,1\na,head,1\nb,head,1\nb,head,2\n",
         r"samples.csv:4: column 'side': case 'b' has no sample of base"),
        ("case,side,value\na,base,1\n", r"samples.csv:2: column 'side': case 'a' has no sample of head"),
        ("case,side,value\na,left,1\n", r"samples.csv:2: column 'side': must be base or head, not 'left'"),
        ("case,side,value\na,,1\n", r"samples.csv:2: column 'side': is empty"),
        ("case,side,value\n,base,1\n", r"samples.csv:2: column 'case': is empty"),
        ("case,side,value\n", r"samples.csv:1: no rows"),
        ("case,value\na,1\n", r"samples.csv:1: no column 'side'"),
        ("", r"samples.csv:1: empty"),
    ],
)  # fmt: skip
def test_bad_input_names_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        compare_csv(str(path), JUDGE)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["base", "head"]), st.floats(-1e6, 1e6)),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_whatever_the_numbers_the_answer_is_a_verdict_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, float]]
) -> None:
    path = write(tmp_path_factory.mktemp("csv"), list(rows))
    sides = {(case, side) for case, side, _ in rows}
    one_sided = any(((c, "base") in sides) != ((c, "head") in sides) for c in "ab")
    if one_sided:
        with pytest.raises(InputError, match="both sides"):
            compare_csv(path, JUDGE)
        return
    for found in compare_csv(path, JUDGE)["cases"].values():
        assert found["verdict"] in {"same", "faster", "slower", "ambiguous"}
        if min(found["n_base"], found["n_head"]) == 1:
            assert found["verdict"] == "ambiguous" and found["smallest_detectable"] is None
