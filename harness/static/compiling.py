"""Compiles kernel launches for GPUs that need not be there, and reads what came out. Needs triton, not a driver."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from harness.model import InputError, Scalar
from harness.model.expr import Expression

from . import banks, sass
from .bundle import case_of
from .limits import occupancy
from .records import SCHEMA, StaticRecord

TARGETS = (80, 90, 100)


class Launch(Protocol):
    """A launch as the kernels package describes it; nothing of that package is imported here."""

    @property
    def kernel(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Any]: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    def signature(self) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], Any]]: ...


Source = Callable[[int, str], Iterable[tuple[str, Launch]]]


def source(target: str) -> Source:
    """The function "package.module:function" that yields (label, launch) for an architecture and a grid."""
    module, _, name = target.partition(":")
    try:
        found: Source = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{target}: {error}; name a package.module:function that yields (label, launch)") from None
    return found


def records(
    launches: Source,
    targets: Iterable[int] = TARGETS,
    grid: str = "pull_request",
    cache: Path | None = None,
    match: str = "",
    where: Expression | None = None,
) -> Iterator[StaticRecord]:
    """A record per variant and target, in the order of ``launches``.

    ``match`` is a part of the label; ``where`` looks at the columns of the case that the variant becomes.

    With ``cache``, a variant whose source, arguments, options and compiler are unchanged is read, not compiled.
    """
    for target in targets:
        for label, launch in launches(target, grid):
            if match in label and (where is None or where(case_of(uncompiled(label, launch, target)).columns)):
                yield compiled(label, launch, target, cache)


def compiled(label: str, launch: Launch, target: int, cache: Path | None = None) -> StaticRecord:
    """The record of one variant. What cannot be compiled gives a record with ``error``."""
    types, constants, attributes = launch.signature()
    identity = {
        "schema": SCHEMA,
        "source": launch.kernel.cache_key,
        "types": types,
        "constants": {name: str(value) for name, value in constants.items()},
        "attributes": str(sorted(attributes.items())),
        "options": {name: str(value) for name, value in sorted(launch.options.items())},
        "target": target,
        "triton": _triton_version(),
        "ptxas": ptxas_version(target),
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    path = None if cache is None else cache / f"{key}.json"
    if path is not None and path.exists():
        with contextlib.suppress(ValueError, TypeError):
            known = {"configuration": label, "problem": _problem(launch)}
            return StaticRecord(**(json.loads(path.read_text(encoding="utf-8")) | known))
    record = _compile(label, launch, target, types, constants, attributes)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            json.dump(asdict(record), file, sort_keys=True)
        Path(file.name).replace(path)
    return record


def uncompiled(label: str, launch: Launch, target: int) -> StaticRecord:
    """What is known of a variant before it is compiled."""
    options = {n.lower(): launch.arguments[n] for n in ("BLOCK_M", "BLOCK_N", "USE_DESC") if n in launch.arguments}
    return StaticRecord(
        kernel=launch.name,
        configuration=label,
        target=f"sm_{target}",
        options={**options, **launch.options},
        fp_fusion=bool(launch.options.get("enable_fp_fusion", True)),
        problem=_problem(launch),
    )


def _problem(launch: Launch) -> dict[str, Scalar]:
    # Kernels of earlier commits do not say it.
    return dict(getattr(launch, "problem", {}))


def _compile(
    label: str,
    launch: Launch,
    target: int,
    types: dict[str, str],
    constants: dict[str, Any],
    attributes: dict[tuple[int, ...], Any],
) -> StaticRecord:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    record = replace(
        uncompiled(label, launch, target),
        triton_version=_triton_version(),
        ptxas_version=ptxas_version(target),
        source_hash=str(launch.kernel.cache_key)[:16],
    )
    log = io.StringIO()
    try:
        with _always_compiling(), contextlib.redirect_stdout(log):
            made = triton.compile(
                ASTSource(launch.kernel, types, constants, attributes),
                target=GPUTarget("cuda", target, 32),
                options=dict(launch.options),
            )
    except Exception as error:
        # The message of an assembler that ran out of something is the finding itself.
        return replace(record, error=f"{type(error).__name__}: {' '.join(str(error).split())}"[-400:])
    used = sass.report(log.getvalue())
    registers, shared = used["registers"], int(made.metadata.shared)
    warps = int(getattr(made.metadata, "total_num_warps", None) or made.metadata.num_warps)
    columns = int(getattr(made.metadata, "tmem_size", 0) or 0)
    blocks, share, limited_by = occupancy(record.target, warps, registers, shared, columns)
    return replace(
        record,
        registers=registers,
        spill_bytes=used["spill_bytes"],
        stack_bytes=used["stack_bytes"],
        shared_bytes=shared,
        tensor_columns=columns,
        warps=warps,
        blocks_per_sm=blocks,
        occupancy=share,
        limited_by=limited_by,
        instructions=sass.count(disassemble(made.asm["cubin"])),
        bank_conflict_ways=banks.ways(str(made.asm.get("ttgir", ""))),
    )


@contextlib.contextmanager
def _always_compiling() -> Iterator[None]:
    """Triton prints the assembler's report, and compiles even what its own cache holds, since a hit prints none."""
    from triton import knobs

    with knobs.nvidia.scope(), knobs.compilation.scope():
        knobs.nvidia.dump_ptxas_log = True
        knobs.compilation.always_compile = True
        yield


def disassemble(cubin: bytes) -> str:
    """SASS of a cubin, by the disassembler that comes with triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_tools() / "nvdisasm"), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@lru_cache(maxsize=1)
def _tools() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@lru_cache(maxsize=1)
def _triton_version() -> str:
    import triton

    return str(triton.__version__)


@lru_cache(maxsize=8)
def ptxas_version(target: int) -> str:
    """Version of the assembler that triton uses for a target: there is another one from sm_100 on."""
    from triton import knobs

    tool = knobs.nvidia.ptxas_blackwell if target >= 100 else knobs.nvidia.ptxas
    text = subprocess.run([tool.path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release [\d.]+, V([\d.]+)", text)
    return found.group(1) if found else "unknown"
