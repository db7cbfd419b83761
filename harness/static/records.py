"""One compiled kernel variant for one target, as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.model import InputError, Scalar

SCHEMA = 3

#: Kinds of matrix instructions from strongest to weakest, with their level; moving to a weaker one is a loss.
MATRIX = (
    ("tensor-memory", 3, ("utchmma", "utcqmma", "utcimma", "utcomma")),
    ("warp-group", 2, ("hgmma", "qgmma", "igmma")),
    ("warp", 1, ("hmma", "qmma", "imma", "dmma")),
)
_WIDE = ("ldg_128", "ldg_256", "ldgsts_128", "utmaldg", "ublkcp")
_NARROW = ("ldg_64", "ldg_32", "ldg_16", "ldg_8", "ldgsts_64", "ldgsts_32")


@dataclass(frozen=True)
class StaticRecord:
    """Resources of ``configuration`` (a problem's label, the kernel's name first) compiled for ``target``.

    ``problem`` holds the same as shared parameters, with ``backend`` and ``operation``; kernels that do not say it have
    their label alone. ``target`` is "sm_90". ``options`` holds what was chosen: tile sizes, num_warps, num_stages.
    Registers are per thread; ``spill_bytes`` is the sum of spill stores and loads and ``stack_bytes`` the frame, per
    thread, as ptxas says; ``shared_bytes`` per block; ``tensor_columns`` of the tensor memory of sm_100.
    ``blocks_per_sm`` and ``occupancy`` (share of the resident warps that fit) follow from the target's limits;
    ``limited_by`` says which. ``instructions`` counts SASS instructions by kind as they stand in the code, not as they
    run. ``bank_conflict_ways`` are the turns that a matrix load takes by the layouts of shared memory, None where they
    do not tell. A variant that does not compile has ``error`` and zeros.
    """

    kernel: str
    configuration: str
    target: str
    options: Mapping[str, int | bool] = field(default_factory=dict)
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    tensor_columns: int = 0
    warps: int = 0
    blocks_per_sm: int = 0
    occupancy: float = 0.0
    limited_by: str = ""
    instructions: Mapping[str, int] = field(default_factory=dict)
    triton_version: str = ""
    ptxas_version: str = ""
    fp_fusion: bool = True
    source_hash: str = ""
    error: str = ""
    bank_conflict_ways: int | None = None
    problem: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What is compared with what: (configuration, target)."""
        return self.configuration, self.target

    @property
    def compiler(self) -> str:
        """Versions of what made the code."""
        return f"triton {self.triton_version}, ptxas {self.ptxas_version}"

    @property
    def matrix_level(self) -> int:
        """Level of the strongest kind of matrix instruction, 0 where there is none."""
        return next((level for _, level, kinds in MATRIX if self.count(*kinds)), 0)

    @property
    def matrix_instructions(self) -> int:
        """Instructions of that kind."""
        return next((n for _, _, kinds in MATRIX if (n := self.count(*kinds))), 0)

    @property
    def wide_load_share(self) -> float | None:
        """Share of the global loads that are of 128 bits or more; None where nothing is loaded."""
        wide, narrow = self.count(*_WIDE), self.count(*_NARROW)
        return wide / (wide + narrow) if wide + narrow else None

    def count(self, *prefixes: str) -> int:
        """Instructions whose kind is a prefix itself or begins with it and an underscore."""
        return sum(
            n for kind, n in self.instructions.items() if any(kind == p or kind.startswith(f"{p}_") for p in prefixes)
        )


def write_records(path: Path, records: Iterable[StaticRecord]) -> None:
    """JSON lines, a header first, then sorted by configuration and target: the same records give the same bytes."""
    lines = [json.dumps({"kind": "static", "schema": SCHEMA})]
    lines += [json.dumps(asdict(r), sort_keys=True) for r in sorted(records, key=lambda r: r.key)]
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_records(path: Path) -> list[StaticRecord]:
    """What :func:`write_records` wrote. ``InputError`` names the file, the line and what is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if number == 1:
                if data.get("kind") != "static" or data.get("schema") != SCHEMA:
                    raise ValueError(f"not a file of static records of schema {SCHEMA}")
                continue
            found.append(StaticRecord(**data))
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{path}:{number}: {error}; write it anew with python -m harness.static") from None
    if not lines:
        raise InputError(f"{path}: empty; write it anew with python -m harness.static")
    return found
