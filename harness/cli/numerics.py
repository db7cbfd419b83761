"""trace-nan, diff-snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.model.terms import Exit, InputError

from .common import JsonOption, note, print_json

#: Steps of a path that only look at the same values otherwise; left out on screens.
_VIEWS = ("view", "expand", "transpose", "permute", "detach", "unsqueeze", "squeeze", "slice", "select", "alias", "t.")


def trace_nan(
    target: Annotated[str, typer.Argument(metavar="MODULE:CALLABLE", help="Called without arguments.")],
    backward: Annotated[bool, typer.Option("--backward", help="Gradients of the result's sum count too.")] = False,
    compiled: Annotated[bool, typer.Option("--compiled", help="Node by node under torch.compile, forward.")] = False,
    inject: Annotated[
        str | None, typer.Option("--inject", metavar="NAME", help="Put an infinity into this module's result.")
    ] = None,
    json_out: JsonOption = False,
) -> None:
    """Which operator first made NaN or +inf of finite inputs, and the way from there to the result.

    Ends 1 where the result is not finite. Results are not changed; the cost of looking is told.
    """
    from harness.tracing.child import ask

    if compiled and (backward or inject):
        raise InputError("--compiled: goes with neither --backward nor --inject")
    found = ask("nan", target, backward=backward, compiled=compiled, inject=inject)
    bad = bool(found["record"]) if compiled else not found["finite"]
    if json_out:
        print_json(found | {"target": target})
    elif compiled:
        _print_node(found)
    else:
        _print_trace(found)
    raise typer.Exit(int(Exit.FINDING if bad else Exit.CLEAN))


def _print_node(found: dict[str, Any]) -> None:
    record = found["record"]
    if record is None:
        print(f"every node is finite ({found['nodes']} ran)")
        return
    print(f"first: graph {record['graph']} node {record['node']} ({record['op']}) {record['dtype']} {record['shape']}")
    print(f"  {record['not_finite']} values not finite, finite inputs; {found['nodes']} nodes ran")


def _print_trace(found: dict[str, Any]) -> None:
    culprit = found["culprit"]
    state = "finite" if found["finite"] else "not finite"
    print(f"the result is {state}; {found['bad_steps']} of {found['operators']} operators gave NaN or +inf")
    if culprit is not None:
        where = culprit["module"] or culprit["node"] or "no module"
        print(f"first: {culprit['op']} in {where} ({culprit['phase']})")
        for role in ("inputs", "outputs"):
            for t in culprit[role]:
                print(f"  {role[:-1]:<7}{_tensor(t)}")
        shown = [s for s in found["path"][1:] if not s["op"].split(".")[1:2] or not _is_view(s["op"])]
        for step in shown:
            print(f"  then   {step['op']} in {step['module'] or step['node'] or 'no module'}")
    ratio = found["traced_s"] / found["plain_s"] if found["plain_s"] else float("nan")
    note(f"tracing took {found['traced_s']:.3g} s against {found['plain_s']:.3g} s ({ratio:.1f}x)")
    if not found["unchanged"]:
        note("the traced run gave other values than the plain one: the callable is not repeatable")


def _is_view(op: str) -> bool:
    return op.removeprefix("aten.").lstrip("_").removeprefix("unsafe_").startswith(_VIEWS)


def _tensor(t: dict[str, Any]) -> str:
    span = "nothing finite" if t["absmax"] is None else f"min {t['low']:g} max {t['high']:g} absmax {t['absmax']:g}"
    counts = ", ".join(f"{t[k]} {w}" for k, w in (("nan", "NaN"), ("inf", "+inf"), ("minus_inf", "-inf")) if t[k])
    return f"{t['dtype']} {t['shape']}: {span}" + (f"; {counts}" if counts else "")


def diff_snapshots(
    a: Annotated[str, typer.Argument(metavar="A", help="A file of snapshots, or MODULE:CALLABLE to record now.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side.")],
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Share of the largest value; by dtype by default.")
    ] = None,
    a_python: Annotated[
        str | None, typer.Option("--a-python", metavar="PATH", help="Interpreter that records A.")
    ] = None,
    b_python: Annotated[
        str | None, typer.Option("--b-python", metavar="PATH", help="Interpreter that records B.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", metavar="DIR", help="Keep what is recorded here.")] = None,
    json_out: JsonOption = False,
) -> None:
    """The first node of a compiled graph whose values part, between two recordings. Ends 1 where there is one."""
    from dataclasses import asdict

    from harness.tracing.snapshots import first_difference, read

    if tolerance is not None and not 0 <= tolerance < 1e6:
        raise InputError(f"--tolerance: {tolerance} must be 0 or above")
    with tempfile.TemporaryDirectory() as temporary:
        folder = save or Path(temporary)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise InputError(f"--save: {folder}: {err.strerror}") from None
        one, two = _recorded(a, a_python, folder / "a.jsonl"), _recorded(b, b_python, folder / "b.jsonl")
        found = first_difference(read(one), read(two), tolerance)
    if json_out:
        print_json({"a": a, "b": b, "difference": None if found is None else asdict(found)})
    elif found is None:
        print("no node differs")
    else:
        node = found.a or found.b
        assert node is not None
        print(f"first: node {found.index}, graph {node.graph} {node.node} ({node.op}): {found.what}")
    raise typer.Exit(int(Exit.CLEAN if found is None else Exit.FINDING))


def _recorded(text: str, python: str | None, out: Path) -> Path:
    """The file that ``text`` names, or one recorded now."""
    from harness.tracing.child import ask, is_target

    if not is_target(text):
        return Path(text)
    nodes = ask("snapshots", text, python, out=str(out))["nodes"]
    note(f"{text}: {nodes} nodes recorded")
    return out
