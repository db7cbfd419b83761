"""``python -m harness.static``: compile every shipped kernel variant without a GPU, print what it holds, and diff.

Exit codes: 0 nothing to report, 1 an alert against ``--base`` (or a spill, a misfit or an error without one), 2 bad
input.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from harness.model import InputError
from harness.model.expr import compile_expr

from .compiling import TARGETS, Source, records, source
from .diff import diff
from .records import StaticRecord, read_records, write_records
from .table import line

SOURCE = "kernels.triton_support.shipped:launches"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.static", description=__doc__)
    parser.add_argument("--source", default=SOURCE, help="package.module:function that yields (label, launch)")
    parser.add_argument("--grid", default="pull_request", choices=("pull_request", "full"))
    parser.add_argument("--targets", default=",".join(map(str, TARGETS)), help="architectures, commas between")
    parser.add_argument("--kernels", type=Path, help="folder that holds the package of --source, searched first")
    parser.add_argument("--where", help="only variants for whose case the expression holds")
    parser.add_argument("--match", default="", help="only variants whose label contains this")
    parser.add_argument("--cache", type=Path, help="folder of records by content; unchanged variants are read")
    parser.add_argument("--out", type=Path, help="write the records here (JSON lines)")
    parser.add_argument("--base", type=Path, help="records to compare with, written by --out")
    parser.add_argument("--stream", action="store_true", help="each record as a line of JSON as soon as it is there")
    parser.add_argument("--json", action="store_true", help="findings, or the records, as JSON on standard output")
    options = parser.parse_args(argv)
    try:
        base = read_records(options.base) if options.base else None
        targets = [int(t) for t in options.targets.split(",")]
        head = []
        where = compile_expr(options.where) if options.where else None
        launches = _source(options.source, options.kernels)
        for record in records(launches, targets, options.grid, options.cache, options.match, where):
            head.append(record)
            if options.stream:
                print(json.dumps(asdict(record)), flush=True)
            else:
                print(line(record), file=sys.stderr if options.json else sys.stdout, flush=True)
        if options.out:
            write_records(options.out, head)
    except (InputError, ValueError) as error:
        print(f"attnwatch static: {error}", file=sys.stderr)
        return 2
    if options.stream:
        return 0
    if base is None:
        if options.json:
            print(json.dumps([asdict(r) for r in head], sort_keys=True))
        return int(any(map(broken, head)))
    if options.match:
        base = [r for r in base if options.match in r.configuration]
    found = diff([r for r in base if r.target in {f"sm_{t}" for t in targets}], head)
    if options.json:
        print(json.dumps([asdict(f) for f in found], sort_keys=True))
    else:
        print("\n".join(f.text for f in found) or "no change")
    return int(any(f.alert for f in found))


def _source(target: str, kernels: Path | None) -> Source:
    """The source, from ``kernels`` and nowhere else where that is given."""
    if kernels is None:
        return source(target)
    sys.path.insert(0, str(kernels.resolve()))
    found = source(target)
    package = sys.modules[target.partition(".")[0].partition(":")[0]]
    if kernels.resolve() not in Path(str(package.__file__)).resolve().parents:
        raise InputError(f"--kernels {kernels}: {target} was imported from {package.__file__}")
    return found


def broken(record: StaticRecord) -> bool:
    """Whether a variant should not ship: it does not compile, does not fit, or spills."""
    return bool(record.error) or record.blocks_per_sm < 1 or record.spill_bytes > 0


if __name__ == "__main__":
    sys.exit(main())
