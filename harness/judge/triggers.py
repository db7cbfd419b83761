"""Which combinations set confirmed findings off: the predicate, and the findings that it covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.explain import explain
from harness.model import Case, TriageState
from harness.model.findings import Finding
from harness.model.metrics import STATIC


@dataclass
class Triggered:
    """Findings that one trigger covers; ``text`` is None for those that no trigger covers.

    ``inside`` of ``total`` tested cases satisfy it, ``regressed_inside`` of ``regressed_total`` regressed ones. With a
    ``cause`` (a new compiler) they stand together for that, and no trigger was looked for.
    """

    text: str | None
    findings: list[Finding]
    regressed_inside: int = 0
    inside: int = 0
    regressed_total: int = 0
    total: int = 0
    alternatives: list[str] = field(default_factory=list)
    cause: str = ""


def triggered(findings: Sequence[Finding], tested: Mapping[str, Mapping[str, Case]]) -> list[Triggered]:
    """Confirmed findings of one start, by trigger; the metrics that share a trigger come together.

    ``tested`` holds per metric the cases (by key) that could have regressed. Cases that are still suspect are left out
    of the evidence, since nobody knows on which side they belong.
    """
    by_text: dict[str | None, Triggered] = {}
    caused = [_caused(cause, findings, tested) for cause in dict.fromkeys(f.cause for f in findings if f.cause)]
    findings = [f for f in findings if not f.cause]
    for metric in dict.fromkeys(f.metric for f in findings):
        for group in _of_metric([f for f in findings if f.metric == metric], tested.get(metric, {})):
            known = by_text.get(group.text)
            if known is None:
                by_text[group.text] = group
            else:
                known.findings += group.findings
    _join_covered(by_text)
    _join_compiled(by_text)
    return caused + sorted(by_text.values(), key=lambda t: (t.text is None, -len(t.findings)))


def _caused(cause: str, findings: Sequence[Finding], tested: Mapping[str, Mapping[str, Case]]) -> Triggered:
    total = len(set().union(*tested.values()))
    return Triggered(None, [f for f in findings if f.cause == cause], total=total, cause=cause)


def _join_covered(by_text: dict[str | None, Triggered]) -> None:
    """Findings without a trigger of their own belong to the one that already covers their case: where operators doubled
    and only some cases are measurably slower for it, that is one incident."""
    rest = by_text.get(None)
    if rest is None:
        return
    for group in by_text.values():
        if group.text is not None:
            covered = {f.case.key for f in group.findings}
            group.findings += [f for f in rest.findings if f.case.key in covered]
            rest.findings = [f for f in rest.findings if f.case.key not in covered]
    if not rest.findings:
        del by_text[None]


def _join_compiled(by_text: dict[str | None, Triggered]) -> None:
    """Of compiled code, what befell some cases of a larger group came with the same change: a tile that spills
    everywhere and costs occupancy here and there is one incident."""
    cases = {
        text: {f.case.key for f in group.findings}
        for text, group in by_text.items()
        if text is not None and all(f.metric in STATIC for f in group.findings)
    }
    order = sorted(cases, key=lambda text: -len(cases[text]))
    for i, small in enumerate(order):
        large = next((text for text in order[:i] if text in by_text and cases[small] <= cases[text]), None)
        if large is not None:
            by_text[large].findings += by_text.pop(small).findings


def _of_metric(findings: list[Finding], tested: Mapping[str, Case]) -> list[Triggered]:
    sure = {f.case.key: f for f in findings if f.state is TriageState.CONFIRMED}
    unsure = {f.case.key for f in findings} - set(sure)
    cases = {k: c for k, c in tested.items() if k not in unsure} | {k: f.case for k, f in sure.items()}
    keys = list(cases)
    if len(keys) < 2:
        return [Triggered(None, list(sure.values()), total=len(keys))]
    found = explain([cases[k].columns for k in keys], regressed=[k in sure for k in keys])
    groups, covered = [], set()
    for t in found.triggers:
        inside = [keys[i] for i in t.rows if keys[i] not in covered]
        covered |= set(inside)
        if inside:
            groups.append(
                Triggered(
                    t.text, [sure[k] for k in inside], t.regressed_inside, t.inside, t.regressed_total, t.total,
                    list(t.alternatives),
                )
            )  # fmt: skip
    rest = [f for k, f in sure.items() if k not in covered]
    if rest:
        groups.append(Triggered(None, rest, regressed_total=len(sure), total=len(keys)))
    return groups
