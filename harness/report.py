"""Reports of a night: Markdown and JSON files, and the summary on the terminal."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .jsonout import dumps
from .judge.confirm import MACHINE_MOVED
from .model import TriageState
from .model.findings import CoverageAlarm, Finding, Incident, Latency, NightReport
from .model.metrics import STATIC
from .static.bundle import SUITES

_ROWS = 12
_LATENCY_ROWS = 100


def write_reports(report: NightReport, folder: Path) -> list[str]:
    """Write ``NAME.md`` and ``NAME.json`` and refresh ``latest.*``; returns the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d", time.gmtime(report.started_at))
    stem = f"{day}-{report.suite}-{report.run_id[:8]}"
    texts = {".md": markdown(report), ".json": dumps(as_plain(report)) + "\n"}
    written = []
    for suffix, text in texts.items():
        for name in (stem, "latest"):
            path = folder / f"{name}{suffix}"
            path.write_text(text, encoding="utf-8")
        written.append(str(folder / f"{stem}{suffix}"))
    return written


def as_plain(report: NightReport) -> dict[str, Any]:
    """The report as plain values for ``--json``."""
    plain = asdict(report)
    plain["verdict"] = headline(report)
    plain["new_confirmed"] = len(report.new_confirmed)
    return plain


def headline(report: NightReport) -> str:
    """One sentence that says what a person is to know first."""
    new = report.fresh
    if new:
        cases = sum(len(i.findings) for i in new)
        told = f"{_s(len(new), 'new confirmed regression')} over {_s(cases, 'case')}"
        return told if report.new_confirmed else f"in shadow, nobody is alerted: {told}"
    if report.alarms:
        more = len(report.alarms) - 1
        return f"coverage: {report.alarms[0].text}" + (f", and {more} more" if more else "")
    suspects = [i for i in report.incidents if i.state is TriageState.SUSPECT]
    if suspects:
        return f"nothing confirmed; {_s(sum(len(i.findings) for i in suspects), 'suspect')} could not be settled"
    if report.failures and not report.counts.get("ok"):
        failed = _s(len(report.failures), "case")
        return f"nothing could be measured: {failed} failed; `attnwatch doctor` says what can run here"
    if not report.nights:
        return "first run on this machine: nothing to compare with yet; the next run will be judged against it"
    if report.still_open:
        return f"nothing new; {_s(len(report.still_open), 'known incident')} still there"
    return f"no regression in {_s(report.compared, 'series')} against {_s(report.nights, 'earlier run')}"


def summary(report: NightReport) -> str:
    """The text that ``attnwatch nightly`` prints."""
    lines = [headline(report), ""]
    lines += [f"  {text}" for text in _facts(report)]
    for incident in report.incidents:
        lines += ["", f"{_state(incident)} {incident.id}  {incident.title}  {_effect(incident)}".rstrip()]
        if incident.trigger:
            lines.append(f"  trigger: {incident.trigger}  ({incident.evidence})")
            lines += [f"  the data cannot tell it from: {a}" for a in incident.alternatives[:3]]
        lines += [f"  {_finding(f)}" for f in incident.findings[:_ROWS]]
        if len(incident.findings) > _ROWS:
            lines.append(f"  ... and {len(incident.findings) - _ROWS} more in the report")
        lines.append(f"  reproduce: {reproduce(incident, report)}")
    if report.failures:
        lines += ["", f"{_s(len(report.failures), 'case')} failed:"]
        lines += [f"  {backend} {label}: {_line(why)}" for backend, label, why in report.failures[:_ROWS]]
    lines += _coverage_lines(report)
    if report.noisier:
        lines += ["", f"{_s(len(report.noisier), 'series')} became noisier, not slower:"]
        lines += [f"  {_noisier(f)}" for f in report.noisier[:_ROWS]]
    lines += [f"note: {n}" for n in report.notes]
    return "\n".join(lines)


def markdown(report: NightReport) -> str:
    """The report as a page."""
    told = headline(report)
    out = [f"# {_escape(told[:1].upper() + told[1:])}", ""]
    out += [f"- {text}" for text in _facts(report)]
    for incident in report.incidents:
        out += ["", f"## {_state(incident).lower()}: {_escape(incident.title)} (`{incident.id}`)", ""]
        if incident.trigger:
            out += [f"Trigger: <code>{_escape(incident.trigger)}</code> ({incident.evidence})", ""]
            if incident.alternatives:
                out += ["The data cannot tell it from: " + "; ".join(_escape(a) for a in incident.alternatives[:8]), ""]
        out += ["| effect | 95 % interval | state | backend | case | how |", "|---|---|---|---|---|---|"]
        for f in incident.findings:
            cells = (_ratio(f), _interval(f), f.state.value, f.case.backend, f.case.workload.label, f.how)
            out.append("| " + " | ".join(_escape(c) for c in cells) + " |")
        out += ["", "Reproduce:", "", "```sh", reproduce(incident, report), "```"]
    if report.what_changed:
        out += [
            "",
            "## What changed since the run compared with",
            "",
            *(f"- {_escape(t)}" for t in report.what_changed),
        ]
    if report.failures:
        out += [
            "",
            "## Cases that failed",
            "",
            *(f"- {_escape(f'{b} {c}: {_line(w)}')}" for b, c, w in report.failures),
        ]
    if report.coverage:
        out += ["", "## Coverage", ""]
        for alarm in report.coverage:
            out.append(f"- {alarm.state}: {_escape(alarm.text)}")
            out += [f"  - {_escape(label)}" for label in alarm.cases]
    if report.noisier:
        out += [
            "",
            "## Noisier than before, at the same level",
            "",
            *(f"- {_escape(_noisier(f))}" for f in report.noisier),
        ]
    dismissed = [f for f in report.findings if f.state is TriageState.DISMISSED]
    if dismissed:
        out += ["", "## Looked worse, dismissed when measured again", ""]
        out += [f"- {_escape(f.case.backend)} {_escape(f.case.workload.label)}: {_escape(f.how)}" for f in dismissed]
    if report.notes:
        out += ["", "## Notes", "", *(f"- {_escape(n)}" for n in report.notes)]
    out += _latencies(report)
    return "\n".join(out) + "\n"


def _latencies(report: NightReport) -> list[str]:
    """A table of what was measured: a row for each workload, a column for each backend, the quickest in bold."""
    if not report.latencies:
        return []
    backends = list(dict.fromkeys(x.backend for x in report.latencies))
    rows: dict[str, dict[str, Latency]] = {}
    for x in report.latencies:
        rows.setdefault(x.workload, {})[x.backend] = x
    out = [
        "",
        "## What was measured",
        "",
        "Median latency in milliseconds with half the width of its 95 % interval.",
        "",
    ]
    out += ["| workload | " + " | ".join(_escape(b) for b in backends) + " |", "|---" * (len(backends) + 1) + "|"]
    for workload, held in list(rows.items())[:_LATENCY_ROWS]:
        best = min(x.value for x in held.values())
        cells = [_milliseconds(held[b], best) if b in held else "" for b in backends]
        out.append(f"| {_escape(workload)} | " + " | ".join(cells) + " |")
    if len(rows) > _LATENCY_ROWS:
        out += [
            "",
            f"... and {len(rows) - _LATENCY_ROWS} more: `attnwatch dashboard` or `attnwatch export --format csv`",
        ]
    return out


def _milliseconds(x: Latency, best: float) -> str:
    text = f"{x.value * 1e3:.4g}"
    if x.low is not None and x.high is not None and x.value > 0:
        text += f" ± {(x.high - x.low) / 2 / x.value:.0%}"
    return f"**{text}**" if x.value == best else text


def reproduce(incident: Incident, report: NightReport) -> str:
    """A command that measures the worst case of an incident again, base against head where both are commits."""
    worst = incident.findings[0].case
    terms = [f"{k} == {v!r}" for k, v in worst.columns.items() if k != "operation"]
    where = shlex.quote(" and ".join(terms))
    base, head = incident.base_commit, incident.head_commit
    if report.suite in SUITES.values():
        sides = f" --base {base[:12]} --head {head[:12]}" if base and head and base != head else ""
        return f"attnwatch static{sides} --where {where}"
    if base and head and base != head:
        command = f"attnwatch compare --base {base[:12]} --head {head[:12]}"
    else:
        command = "attnwatch measure"
    return f"{command} --suite {shlex.quote(report.suite_given)} --where {where}"


def _facts(report: NightReport) -> list[str]:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(report.counts.items(), key=lambda x: -x[1]))
    subject = report.revision.subject[:100]
    revision = report.revision.id[:24] + (f" {subject}" if subject else "")
    facts = [
        f"suite {report.suite}, revision {revision}",
        f"on {report.machine}, {report.duration_s:.0f} s: {counts}",
    ]
    if report.shadow:
        facts.append(f"shadow mode, {report.shadow}: findings are reported and alert nobody")
    if report.from_shadow:
        facts.append(f"found in shadow, never alerted, nobody has looked yet: {', '.join(report.from_shadow)}")
    if report.base_revision:
        facts.append(f"compared with {report.base_revision.id[:24]} and {_s(report.nights, 'earlier run')} in all")
    if report.nights and report.smallest_detectable is not None:
        least = report.smallest_detectable
        text = f"{least:.1%}" if least < 10 else "1000 %: this run or those before it were very noisy"
        facts.append(f"could not have seen changes under {text} (median over series)")
    dismissed = sum(f.state is TriageState.DISMISSED and f.how != MACHINE_MOVED for f in report.findings)
    if dismissed:
        facts.append(f"{_s(dismissed, 'suspect')} looked worse and did not when measured again")
    moved = sum(f.how == MACHINE_MOVED for f in report.findings)
    if moved:
        facts.append(f"{_s(moved, 'series')} {MACHINE_MOVED}: look at the machine")
    if report.still_open:
        facts.append(f"still there, told before: {', '.join(report.still_open)}")
    if report.recovered:
        facts.append(f"recovered: {', '.join(report.recovered)}")
    if report.faster:
        facts.append(f"{_s(report.faster, 'series')} faster than before (not measured again)")
    return facts


def _coverage_lines(report: NightReport) -> list[str]:
    """Alarms with some of their cases, then what is back; what was told before in one line."""
    lines: list[str] = []
    for state, word in (("new", "COVERAGE"), ("recovered", "coverage restored")):
        for alarm in (a for a in report.coverage if a.state == state):
            lines += ["", f"{word}: {alarm.text}"]
            lines += [f"  {label}" for label in _some(alarm)]
    known = [a.text for a in report.coverage if a.state == "open"]
    return lines + (["", "coverage, told before: " + "; ".join(known)] if known else [])


def _some(alarm: CoverageAlarm) -> list[str]:
    shown = list(alarm.cases[:3]) if alarm.kind == "stopped" else []
    return shown + ([f"... and {len(alarm.cases) - 3} more"] if shown and len(alarm.cases) > 3 else [])


def _state(incident: Incident) -> str:
    return "SHADOW" if incident.shadow and incident.state is TriageState.NEW else incident.state.value.upper()


def _noisier(f: Finding) -> str:
    return f"{f.case.backend} {f.case.workload.label} {f.metric}: {f.how}"


def _finding(f: Finding) -> str:
    shape = f"{f.case.backend} {f.case.workload.label}"
    if f.metric in STATIC and f.ratio is not None:
        return f"{_ratio(f)} {f.metric}  {shape} ({f.how})"
    if f.kind == "status":
        return f"{f.base_status} -> {f.head_status}  {shape} ({f.how})"
    return f"{_ratio(f)} {_interval(f)}  {shape} ({f.how})"


def _ratio(f: Finding) -> str:
    if f.ratio is None and f.level is not None and f.value is not None:
        return f"{f.level:g} -> {f.value:g} {f.metric}"
    return f"{f.ratio:.3f}x" if f.ratio is not None else f"{f.base_status} -> {f.head_status}"


def _interval(f: Finding) -> str:
    return f"[{f.low:.3f}, {f.high:.3f}]" if f.low is not None and f.high is not None else ""


def _effect(i: Incident) -> str:
    told = "" if i.effect is None else f"{i.effect - 1:+.0%}"
    return f"{told}, {i.lost_s * 1e3:.3g} ms lost a pass" if told and i.lost_s > 0 else told


def _s(n: int, noun: str) -> str:
    plural = noun if noun.endswith("series") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"


def _line(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first[:200]


_MARKDOWN = str.maketrans({c: f"&#{ord(c)};" for c in "\\`*_{}[]()#+!|<>~&\"'"} | {"\n": " ", "\r": " "})


def _escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, whatever a name holds."""
    return text.translate(_MARKDOWN)
