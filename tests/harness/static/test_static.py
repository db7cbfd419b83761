"""Static resources: real compilations of real kernels, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.model import InputError
from harness.model.expr import compile_expr
from harness.static import StaticRecord, diff, read_records, write_records
from harness.static.compiling import compiled, ptxas_version, records, source
from harness.static.limits import LIMITS, occupancy
from harness.static.sass import count, report

from .samples import check_shipped, record

SHIPPED = "kernels.triton_support.shipped:launches"
SASS = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR8][R2.64] ;
        /*0020*/              @UP0 LDGSTS.E.BYPASS.128 [R5], desc[UR4][R6.64] ;
        /*0030*/                   LDG.E.U16 R4, desc[UR8][R2.64] ;
        /*0040*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8], R24 ;
        /*0050*/                   STL.64 [R1+0x8], R4 ;
        /*0060*/                   UTMALDG.4D [UR8], [UR4] ;
        /*0070*/                   HMMA.16816.F32 R4, R4, R6, R8 ;
        // HGMMA in a comment
"""


def test_sass_is_counted_by_kind_and_width() -> None:
    assert count(SASS) == {
        "hgmma": 1, "hmma": 1, "ldg_128": 1, "ldg_16": 1, "ldgsts_128": 1, "stl_64": 1, "total": 8, "utmaldg": 1,
    }  # fmt: skip


def test_the_assemblers_report() -> None:
    text = (
        "ptxas info    : Function properties for attend\n"
        "    264 bytes stack frame, 500 bytes spill stores, 400 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem\n"
    )
    assert report(text) == {"registers": 255, "stack_bytes": 264, "spill_bytes": 900}
    with pytest.raises(ValueError, match="no resources"):
        report("ptxas fatal")


@pytest.mark.parametrize(
    "target, warps, registers, shared, expected",
    [
        ("sm_90", 8, 160, 82944, (1, 0.125, "registers")),
        ("sm_90", 8, 128, 82944, (2, 0.25, "registers")),
        ("sm_90", 4, 32, 0, (16, 1.0, "warps")),
        ("sm_90", 1, 32, 0, (32, 0.5, "blocks")),
        ("sm_80", 4, 96, 49152, (3, 0.1875, "shared memory")),
        ("sm_80", 4, 32, 166912, (1, 0.0625, "shared memory")),
        ("sm_80", 4, 32, 166913, (0, 0.0, "shared memory")),
        ("sm_89", 4, 64, 99 << 10, (1, 4 / 48, "shared memory")),
    ],
)
def test_occupancy_follows_from_the_limits(
    target: str, warps: int, registers: int, shared: int, expected: tuple[int, float, str]
) -> None:
    assert occupancy(target, warps, registers, shared) == expected


def test_tensor_memory_limits_too() -> None:
    assert occupancy("sm_100", 4, 64, 0, tensor_columns=256) == (2, 0.125, "tensor memory")
    with pytest.raises(KeyError, match="sm_70"):
        occupancy("sm_70", 4, 64, 0)


def test_limits_are_those_of_the_vendors_table() -> None:
    """Compute capability -> resident warps, resident blocks, KB of shared memory per multiprocessor and per block."""
    published = {
        "sm_80": (64, 32, 164, 163), "sm_86": (48, 16, 100, 99), "sm_89": (48, 24, 100, 99),
        "sm_90": (64, 32, 228, 227), "sm_100": (64, 32, 228, 227), "sm_120": (48, 24, 100, 99),
    }  # fmt: skip
    found = {n: (x.warps, x.blocks, x.shared >> 10, x.block_shared >> 10) for n, x in LIMITS.items()}
    assert found == published
    assert all(x.registers == 65536 for x in LIMITS.values())


def kinds(base: StaticRecord, head: StaticRecord) -> dict[str, bool]:
    return {f.kind: f.alert for f in diff([base], [head])}


@pytest.mark.parametrize(
    "changes, kind",
    [
        ({"spill_bytes": 64, "stack_bytes": 32}, "new spills"),
        ({"occupancy": 0.0625}, "lost occupancy"),
        ({"instructions": {"hmma": 256, "ldgsts_128": 16, "ldg_32": 1, "total": 900}}, "lost matrix instructions"),
        ({"instructions": {"hgmma": 32, "ldgsts_64": 32, "ldg_32": 1, "total": 900}}, "lost wide loads"),
        ({"error": "PTXASError: out of registers"}, "does not compile"),
    ],
)
def test_what_alerts(changes: dict[str, Any], kind: str) -> None:
    assert kinds(record(), record(**changes)).get(kind) is True
    assert kind not in kinds(record(**changes), record()), "getting it back is no alert"
    assert kind not in kinds(record(**changes), record(**changes))


def test_no_difference_no_finding() -> None:
    assert diff([record()], [record(source_hash="other")]) == []


def test_other_changes_are_kept_without_an_alert() -> None:
    assert kinds(record(), record(registers=201)) == {"changed": False}
    assert kinds(record(), record(options={"num_warps": 4})) == {"changed": False}
    assert {f.kind for f in diff([record()], [record(configuration="attend d64")])} == {"added", "removed"}
    assert not any(f.alert for f in diff([record()], [record(configuration="attend d64")]))


def test_a_new_compiler_is_one_finding() -> None:
    base = [record(configuration=f"attend d{d}") for d in (64, 128, 256)]
    head = [replace(r, triton_version="3.8.0", spill_bytes=8, registers=255) for r in base]
    (found,) = diff(base, head)
    assert found.alert and "3.7.1" in found.compiler and "3.8.0" in found.compiler
    assert len(found.details) == 3


def test_files_round_trip_and_are_the_same_bytes(tmp_path: Path) -> None:
    both = [record(), record(configuration="attend d64")]
    write_records(tmp_path / "a", both)
    write_records(tmp_path / "b", reversed(both))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(read_records(tmp_path / "a"), key=lambda r: r.key) == sorted(both, key=lambda r: r.key)
    (tmp_path / "a").write_text((tmp_path / "a").read_text() + "{oops\n")
    with pytest.raises(InputError, match=":4:"):
        read_records(tmp_path / "a")
    for text, what in (("", "empty"), ('{"kind": "run"}\n', ":1:")):
        (tmp_path / "c").write_text(text)
        with pytest.raises(InputError, match=what):
            read_records(tmp_path / "c")
    with pytest.raises(InputError, match="No such file"):
        read_records(tmp_path / "missing")


def test_harness_static_imports_no_kernels_and_no_torch_by_itself() -> None:
    code = (
        "import sys, harness.static, harness.static.compiling\n"
        "sys.exit(str(found) if (found := {'torch', 'triton', 'kernels'} & set(sys.modules)) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def one(match: str, target: int) -> tuple[str, Any]:
    return next((label, launch) for label, launch in source(SHIPPED)(target, "pull_request") if match in label)


@pytest.mark.slow
def test_a_compiled_kernel_and_the_cache(tmp_path: Path) -> None:
    label, launch = one("attend prefill fp16 d64 causal", 90)
    first = compiled(label, launch, 90, tmp_path)
    assert first.error == "" and first.spill_bytes == 0 and first.stack_bytes == 0
    assert first.count("hgmma") > 0 and first.count("hmma") == 0 and first.count("utmaldg") > 0
    assert 0 < first.registers <= 255 and first.blocks_per_sm >= 1
    assert first.ptxas_version == ptxas_version(90) and first.bank_conflict_ways == 1
    (path,) = tmp_path.glob("*.json")
    assert compiled(label, launch, 90, tmp_path) == first
    # Proof that the second answer was read: what the file says is what comes back.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"registers": 7}))
    assert compiled(label, launch, 90, tmp_path).registers == 7
    assert compiled(label, launch, 90) == first, "the same code gives the same record"


@pytest.mark.slow
def test_a_planted_change_of_warps_is_found_and_named() -> None:
    """Real compilations: half the warps for the same tile."""
    label, launch = one("attend prefill fp16 d128 causal", 90)
    base = compiled(label, launch, 90)
    head = compiled(label, replace(launch, options={**launch.options, "num_warps": 4}), 90)
    found = {f.kind: f for f in diff([base], [head])}
    assert found["new spills"].alert
    ((name, what),) = found["new spills"].details.items()
    assert name == f"{label} on sm_90" and "num_warps 8 -> 4" in what
    assert found["lost occupancy"].alert


@pytest.mark.slow
def test_a_planted_change_of_the_tile_is_found_and_named() -> None:
    """A tile of 32 rows is too low for a warp group, so the weaker matrix instruction is all that is left."""
    label, launch = one("attend prefill fp16 d64 causal", 90)
    head = replace(launch, arguments={**launch.arguments, "BLOCK_M": 32})
    found = {f.kind: f for f in diff([compiled(label, launch, 90)], [compiled(label, head, 90)])}
    assert found["lost matrix instructions"].alert
    assert "block_m 128 -> 32" in found["lost matrix instructions"].text


@pytest.mark.slow
def test_what_does_not_fit_is_told() -> None:
    label, launch = one("attend prefill fp16 d256 causal", 90)
    base = compiled(label, launch, 90)
    head = compiled(label, replace(launch, options={**launch.options, "num_stages": 6}), 90)
    assert any(f.kind in ("lost occupancy", "does not compile") and f.alert for f in diff([base], [head]))


@pytest.mark.slow
def test_nothing_of_some_shipped_variants_spills() -> None:
    """One of each kernel; tests/scale looks at all of them for every target."""
    some = compile_expr(
        "dtype == 'float16' and head_dim in (64, 192) and heads_q <= 32 and q_len != 4096 or head_dim_v > 0"
    )
    found = list(records(source(SHIPPED), [90], where=some))
    assert {r.kernel for r in found} >= {"attend", "merge"} and len(found) > 6
    for r in found:
        check_shipped(r)
