"""policy check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import DbOption, JsonOption, PolicyOption, note, print_json

if TYPE_CHECKING:
    from harness.policy import Policy


def policy_check(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="The policy; attnwatch.toml here by default.")
    ] = None,
    policy: PolicyOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Read a policy file, and say what each rule matches in the store, where there is one."""
    from harness.policy import find_policy
    from harness.policy.check import check

    read = find_policy(path or policy)
    store = _store(db)
    if store is None:
        result = check(read, None)
    else:
        with store:
            result = check(read, store)
    if json_out:
        print_json(result)
    else:
        _print(read, result)


def _store(db: str | None) -> Any:
    """The store, None where none is there and none was asked for."""
    from db.engine import open_store

    if db is None and not Path("attnwatch.db").exists():
        return None
    return open_store(db, create=False, read_only=True)


def _print(read: Policy, result: dict[str, Any]) -> None:
    if read.path is None:
        note("no policy here: a change of a timed metric is told from 2 %, every change of an exact one, no shadow")
        return
    print(f"{read.path}: {len(read.rules)} rules; the last one that matches decides")
    if result["cases"] is None:
        note("no store here, so nothing is counted; give --db")
    for r in result["rules"]:
        asks = [f"{k}={r[k] if isinstance(r[k], str) else '|'.join(r[k])}" for k in
                ("benchmark", "backend", "metric", "where") if r[k]]  # fmt: skip
        sets = [f"{k}={r[k]}" for k in ("minimum_effect", "severity", "owner", "quiet_hours") if r[k] is not None]
        counted = "" if r["matches"] is None else f"  {r['matches']} cases, decides {r['decides']}"
        print(f"  line {r['line']:<4} {r['name'] or 'rule ' + str(r['rule'])}: "
              f"{' '.join(asks) or 'everything'} -> {' '.join(sets)}{counted}")  # fmt: skip
    for text in result["warnings"]:
        note(f"warning: {text}")
