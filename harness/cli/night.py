"""nightly, dashboard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.model.terms import Exit

from .common import DbOption, DeviceOption, JsonOption, PolicyOption, SuiteOption, note, print_json, seconds

if TYPE_CHECKING:
    from harness.model.findings import NightReport


def nightly(
    suite: SuiteOption = "nightly",
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Begin no case after 90s, 15m, 2h; measured longest ago first."),
    ] = None,
    device: DeviceOption = None,
    reports: Annotated[Path, typer.Option("--reports", metavar="DIR", help="Where the reports go.")] = Path("reports"),
    policy: PolicyOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Sweep through asv, store, judge, measure suspects again, report: the main job."""
    from harness.device import resolve_device
    from harness.nightly import NightlyOptions
    from harness.nightly import nightly as run_nightly
    from harness.policy import find_policy
    from harness.report import as_plain, summary

    from .progress import bar

    held = find_policy(policy)
    budget_s = held.night_budget_s if budget is None else seconds(budget)
    options = NightlyOptions(
        suite=suite, device=resolve_device(device), repo=Path.cwd(), db=db, reports=reports, budget_s=budget_s,
        policy=held,
    )  # fmt: skip
    with bar() as shown:
        result = run_nightly(options, shown.show if shown else lambda done, total, text: None, note)
    report: NightReport = result["report"]  # type: ignore[assignment]
    written: list[str] = result["written"]  # type: ignore[assignment]
    if json_out:
        print_json({**as_plain(report), "written": written})
    else:
        print(summary(report))
        print(
            f"\nreports: {' '.join(written)}\ndashboard: make dashboard (or: attnwatch dashboard --db {report.store})"
        )
    if not report.new_confirmed and report.failures and not report.counts.get("ok"):
        raise typer.Exit(int(Exit.INFRASTRUCTURE))
    raise typer.Exit(int(Exit.FINDING if report.new_confirmed else Exit.CLEAN))


def dashboard(
    db: DbOption = None,
    port: Annotated[int, typer.Option("--port", help="Port on this machine.")] = 8501,
    read_only: Annotated[bool, typer.Option("--read-only", help="No triage; for public display.")] = False,
) -> None:
    """Open the dashboard on the store."""
    import importlib.util

    from db.engine import open_store

    with open_store(db, create=False, read_only=True) as store:
        note(f"dashboard on {store.name}: http://localhost:{port}")
    spec = importlib.util.find_spec("dashboard")
    assert spec is not None and spec.origin is not None
    app = Path(spec.origin).parent / "app.py"
    env = {**os.environ, "ATTNWATCH_READ_ONLY": "1" if read_only else ""}
    if db:
        env["ATTNWATCH_DB"] = db
    command = [
        sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port), "--server.headless", "true",
        "--server.address", "localhost", "--browser.gatherUsageStats", "false", "--client.toolbarMode", "minimal",
    ]  # fmt: skip
    raise typer.Exit(subprocess.run(command, env=env, check=False).returncode)
