"""Variables as an axis of a sweep: what may be set, where it is set, and what happens where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Case, InputError, Measurement, MeasureOptions, Status, Workload
from harness.model.suite import grid
from harness.variables import axis, recorded
from harness.worker import CaseError, WorkerClient, WorkerSpec

from . import workers


def test_an_axis_reads_as_names_and_values() -> None:
    assert axis("none") == axis("") == {}
    assert axis("FLASH_ATTN_DISABLE_TMA=1, OMP_NUM_THREADS=2") == {
        "FLASH_ATTN_DISABLE_TMA": "1",
        "OMP_NUM_THREADS": "2",
    }
    assert axis("TORCH_LOGS=a=b") == {"TORCH_LOGS": "a=b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [("HOME=/tmp", "HOME is not among"), ("TORCH_API_TOKEN=x", "TORCH_API_TOKEN is not among"),
     ("OMP", "is not NAME=VALUE"),
     ("OMP_A=1,OMP_A=2", "stands twice"), ("TORCH_HOME=/x", "TORCH_HOME is not among"),
     ("TORCH_X=https://me:secret@host", "TORCH_X is not among")],
)  # fmt: skip
def test_only_recorded_variables_may_be_set_and_secrets_are_not_recorded(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        axis(text)
    name, _, value = text.partition("=")
    assert not recorded({name: value}) or "twice" in words or not value


def case(env: str) -> Case:
    (work,) = grid("attention", seq_len=8, head_dim=8)
    return Case("x", Workload(work.operation, {**work.params, "env": env}), "segmented")


def test_a_case_goes_to_a_worker_with_its_variables() -> None:
    client = WorkerClient(WorkerSpec("cpu", variables=(("OMP_NUM_THREADS", "1"),), unset=("FLASH_ATTN_A", "TORCH_X")))
    assert client._of(case("none")) is client is client._of(case("OMP_NUM_THREADS=1"))
    other = client._of(case("FLASH_ATTN_A=1"))
    assert other is client._of(case("FLASH_ATTN_A=1")) is not client
    assert other.spec == replace(
        client.spec, variables=(("FLASH_ATTN_A", "1"), ("OMP_NUM_THREADS", "1")), unset=("TORCH_X",)
    )
    assert other._of(case("FLASH_ATTN_A=1")) is other


def test_a_variable_that_may_not_be_set_makes_the_case_invalid_and_starts_nothing() -> None:
    got = WorkerClient(WorkerSpec("cpu")).measure(case("HOME=/"), MeasureOptions())
    assert isinstance(got, Measurement)
    assert got.status is Status.INVALID and "HOME is not among the variables" in got.detail


def test_a_worker_without_the_variable_refuses_to_measure_as_if_it_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.measuring.failures import CaseFailed
    from harness.measuring.limits import check_asked

    asked = case("FLASH_ATTN_DISABLE_TMA=1").workload.params
    monkeypatch.delenv("FLASH_ATTN_DISABLE_TMA", raising=False)
    with pytest.raises(CaseFailed, match="TMA is None in this worker where the workload asks for '1'") as caught:
        check_asked(asked)
    assert caught.value.status is Status.INVALID
    monkeypatch.setenv("FLASH_ATTN_DISABLE_TMA", "1")
    check_asked(asked)


def test_the_variables_of_a_case_change_nothing_about_its_inputs() -> None:
    from harness.measuring.operations import operation_of

    sums = []
    for env in ("none", "FLASH_ATTN_DISABLE_TMA=1"):
        work = case(env).workload
        sums.append(float(operation_of(work).inputs(work.params, 0, "cpu").tensors["q"].sum()))
    assert sums[0] == sums[1]


def test_workers_of_other_variables_measure_prepare_and_end_with_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = workers.private_runtime(tmp_path, monkeypatch)
    with workers.client(tmp_path) as client:
        plain, switched = (workers.case(env=env) for env in ("none", "FLASH_ATTN_DISABLE_TMA=1"))
        pids = {client.measure(c, workers.QUICK).telemetry["pid"] for c in (plain, switched, plain, switched)}
        assert len(pids) == 2 == workers.workers_listening(runtime)
        assert all(Path(f"/proc/{pid}/environ").exists() for pid in pids)
        held = [b"FLASH_ATTN_DISABLE_TMA=1" in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids]
        assert sorted(held) == [False, True]
        handles = [client.prepare(c, workers.QUICK) for c in (plain, switched)]
        assert len(set(handles)) == 2
        assert [client.sample(h, 2) for h in handles] == [[0.001] * 2] * 2
        assert client.first_call_s(handles[1]) == 0.002
        client.release(handles[1])
        with pytest.raises(CaseError, match="not prepared any more"):
            client.sample(handles[1], 1)
    assert workers.eventually(lambda: not any(workers.alive(int(str(pid))) for pid in pids))
