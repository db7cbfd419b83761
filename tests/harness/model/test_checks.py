"""Parameters that can mean nothing are refused before anything is measured."""

import pytest

from harness.model.checks import wrong_param
from harness.suites import load_suite


def test_every_shipped_workload_passes() -> None:
    for case in load_suite("full"):
        assert wrong_param(case.workload.params) is None, case.workload.label


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"batch": 0}, "batch"),
        ({"q_len": -1}, "q_len"),
        ({"q_len": 10**23}, "q_len"),
        ({"kv_len": "64"}, "kv_len"),
        ({"head_dim": True}, "head_dim"),
        ({"dtype": "evil"}, "dtype"),
        ({"direction": "sideways"}, "direction"),
        ({"causal": "maybe"}, "causal"),
        ({"heads_q": 2, "heads_kv": 3}, "heads_kv"),
        ({"softcap": float("inf")}, "softcap"),
        ({"q_lens": "1,x"}, "q_lens"),
        ({"q_lens": "1,2", "batch": 3}, "q_lens"),
        ({"kv_lens": "1,2", "batch": 2, "kv_len": 3}, "kv_lens"),
        ({"kv_lens": "9" * 40}, "kv_lens"),
    ],
)
def test_the_parameter_at_fault_is_named(params: dict[str, object], name: str) -> None:
    found = wrong_param(params)  # type: ignore[arg-type]
    assert found is not None
    assert found[0] == name
