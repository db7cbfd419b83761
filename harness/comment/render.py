"""From facts to one Markdown comment. Pure: the same facts give the same bytes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model.metrics import metric as metric_of

from .escape import block, code, cut, visible
from .facts import LAUNCHES, MEMORY, STATIC, Change, Facts, Group, State

#: GitHub takes 65,536 characters; bytes are never fewer, whatever it counts.
LIMIT_BYTES = 65_536

#: Rows that are not folded.
ROWS = 5

_MOST_ROWS = 200
_COMMAND_CHARS = 3_000
_MARKER = "<!-- attnwatch:comment {} -->"
_MARKER_RE = re.compile(r"<!-- attnwatch:comment ([a-z]+) -->\s*\Z")
#: What a comment was about when the next clean one may call itself a recovery.
_RECOVERABLE = {State.ADVERSE.value, State.SUSPECT.value, "recovered"}
_CLEAN = (State.CLEAN, State.FASTER, State.UNSETTLED, State.UNCHANGED)


def marker_state(body: str | None) -> str | None:
    """What a comment of ours says of itself; None where the comment is not one."""
    found = _MARKER_RE.search(body or "")
    return found[1] if found else None


def render(facts: Facts, *, before: str | None = None, foreign: bool = False, limit: int = LIMIT_BYTES) -> str:
    """The comment, at most ``limit`` bytes of UTF-8.

    ``before`` is the state of the comment that this one replaces. ``foreign`` says that code of the pull request made
    the figures, and the comment says so.
    """
    recovered = before in _RECOVERABLE and facts.state in _CLEAN
    head = [f"{'**Recovered.** ' if recovered else ''}{_verdict(facts)}", ""]
    if facts.groups:
        head += [*_table(facts.groups[:ROWS]), ""]
        head += [f"{line}\n" for line in _beyond(facts.groups)]
    if facts.groups and facts.brought_by:
        which = "Brought by" if len(facts.brought_by) == 1 else "Brought by one of"
        head += [f"{which} {', '.join(code(c, chars=64) for c in facts.brought_by[:10])}.", ""]
    head += [f"{line}\n" for line in _limits(facts)]
    head += _next_steps(facts)
    tail = [*_origin(facts, foreign), _MARKER.format("recovered" if recovered else facts.state.value)]
    page = _Page(limit - _bytes(tail) - 64, head)
    for part in _folded(facts):
        page.fold(part)
    return "\n".join([*page.lines, *tail]) + "\n"


def title(facts: Facts) -> str:
    """The verdict without Markdown, at most 200 characters."""
    return cut(re.sub(r"\*\*|`+", "", _verdict(facts)), 200)


def _verdict(facts: Facts) -> str:
    n, state = facts.judged, facts.state
    if state in (State.ADVERSE, State.SUSPECT):
        group = facts.groups[0]
        shown = [g for g in facts.groups if g.confirmed == group.confirmed]
        count = _s(len(shown), "regression" if group.confirmed else "unconfirmed suspect")
        lead = f"**{count}**, the first" if len(shown) > 1 else f"**{count}**"
        where = f" where {code(group.trigger)}" if group.trigger else ""
        effect = f", {_effect(group)}" if group.effect is not None else ""
        return f"{lead}: {_what(group)}{where}{effect}, in {_combinations(group)}"
    if state is State.FAILED:
        return f"**Nothing could be judged**: {_s(len(facts.failed), 'case')} failed on base already"
    if state is State.UNCHANGED:
        return "**Nothing to measure**: head changes nothing that is measured"
    if state is State.NOTHING and not facts.cases and facts.unaffected:
        return f"**Nothing was compared**: head changes nothing that any of {_s(facts.unaffected, 'case')} runs"
    if state is State.NOTHING:
        return f"**Nothing was compared**: {_s(facts.cases, 'case')}, none of which both sides can run here"
    if state is State.FASTER:
        best = min((c.ratio for c in facts.faster if c.ratio), default=None)
        upto = "" if best is None else f", up to {_percent(best)}"
        return f"**Faster** in {len(facts.faster)} of {_s(n, 'case')}{upto}; none is slower"
    if state is State.UNSETTLED:
        return f"**Not settled**: no regression found, but none of {_s(n, 'case')} could be settled"
    new = "new " if facts.known else ""
    return f"**No {new}regression** in {_s(n, 'case')}"


def _table(groups: Iterable[Group]) -> list[str]:
    rows = ["| where | what | effect (95 % interval) | in | confirmed |", "|---|---|---|---|---|"]
    for g in groups:
        where = code(g.trigger, cell=True) if g.trigger else _scattered(g)
        sure = "yes" if g.confirmed else "no"
        rows.append(f"| {where} | {_what(g, cell=True)} | {_effect(g)} | {_combinations(g)} | {sure} |")
    return rows


def _scattered(g: Group) -> str:
    """Where no trigger was found: the worst case, and how many more."""
    if not g.changes:
        return "no trigger found"
    if g.cause:
        return f"with the compiler: {code(g.cause, cell=True, chars=200)}"
    more = len(g.changes) - 1
    return code(g.changes[0].label, cell=True, chars=200) + (f" and {more} more; no trigger found" if more else "")


def _beyond(groups: Sequence[Group]) -> list[str]:
    """What the rows leave out: how much there is, and families of metrics that none of them shows."""
    rest = groups[ROWS:]
    if not rest:
        return []
    families = (("memory", MEMORY), ("launch counts", LAUNCHES), ("compiled kernels", STATIC))
    of = [f"{sum(g.metric in names for g in rest)} of {word}" for word, names in families]
    told = ", ".join(text for text in of if not text.startswith("0 "))
    return [f"{_s(len(rest), 'more row')} below" + (f" ({told})" if told else "") + "."]


def _limits(facts: Facts) -> list[str]:
    out = []
    least = facts.smallest_detectable
    if facts.judged:
        known = "Nobody knows which changes could have been seen."
        if least is not None:
            known = f"Could not have seen changes under {_share(least)} (median over the cases that show none)."
        out.append(known)
    if facts.known:
        ids = ", ".join(code(name, chars=40) for name in facts.known[:10])
        more = f" and {len(facts.known) - 10} more" if len(facts.known) > 10 else ""
        out.append(f"Still there and told before: {ids}{more}.")
    parts = [
        (len(facts.unsettled), "not settled"),
        (len(facts.failed), "failed on base already"),
        (facts.unsupported, "cannot run here"),
        (facts.left_out, f"left out when the budget ended{_kinds(facts)}"),
        (facts.unaffected if facts.cases else 0, "not measured, since head does not touch them"),
    ]
    told = ", ".join(f"{n} {word}" for n, word in parts if n)
    if told:
        out.append(f"Of {_s(facts.cases + facts.left_out + facts.unaffected, 'case')}: {told}.")
    return out


def _kinds(facts: Facts) -> str:
    """What a budget did not reach, by what was known of it before: `` (3 boundary, 40 rest)``."""
    told = ", ".join(f"{n} {_KINDS[kind]}" for kind, n in facts.left_out_kinds if kind in _KINDS)
    return f" ({told})" if told else ""


_KINDS = {
    "boundary": "at boundaries", "unstable": "unstable lately", "touched": "of touched kernels", "rest": "others"
}  # fmt: skip


def _next_steps(facts: Facts) -> list[str]:
    if not facts.groups:
        return []
    group = facts.groups[0]
    out = ["**Next**: measure the first row again, on a machine of the same kind:" if _command(facts, group) else ""]
    command = _command(facts, group)
    if command:
        out += ["", *block([command], "sh"), ""]
    else:
        out = ["**Next**: measure the cases of the first row again; they stand below.", ""]
    if group.incident:
        done = f"attnwatch triage {group.incident} expected --reason '...'"
        out += [f"Where it is intended: {code(done)} makes the level after it the new baseline.", ""]
    return out


def _command(facts: Facts, group: Group) -> str:
    """The command for the worst case of a group's trigger; empty where it cannot be written safely."""
    command = group.command or facts.command
    if not command:
        return ""
    worst = group.changes[0].terms if group.changes else ""
    for where in (group.trigger, worst):
        text = f"{command} --where {shlex.quote(where)}" if where else ""
        if text and len(text) <= _COMMAND_CHARS and visible(text) == text:
            return text
    return ""


def _origin(facts: Facts, foreign: bool) -> list[str]:
    out = []
    if facts.base or facts.head:
        out += [f"Base {code(facts.base, chars=200)}, head {code(facts.head, chars=200)}.", ""]
    if foreign:
        out += ["These figures were produced by the pull request's own code.", ""]
    return out


@dataclass(frozen=True)
class _Part:
    """A folded part: its summary, the lines above its rows, the first rows, and how many there are in all."""

    summary: str
    above: list[str]
    rows: list[str]
    total: int


def _folded(facts: Facts) -> Iterator[_Part]:
    """The folded parts, the most wanted first. No more rows are made than can be shown."""
    rest = facts.groups[ROWS:]
    if rest:
        table = _table(rest[:_MOST_ROWS])
        yield _Part(_s(len(rest), "more row"), table[:2], table[2:], len(rest))
    yield from _cases("that changed", [c for g in facts.groups for c in g.changes])
    others = [(g.trigger or "", a) for g in facts.groups for a in g.alternatives[:8]]
    if others:
        lines = [f"- {code(text, chars=200)} or {code(a)}" for text, a in others[:_MOST_ROWS]]
        yield _Part("Other explanations that the measurements cannot tell apart", [], lines, len(others))
    yield from _cases("faster", facts.faster)
    yield from _cases("not settled", facts.unsettled)
    if facts.failed:
        shown = facts.failed[:_MOST_ROWS]
        lines = [f"- {code(c.base_status)} {code(c.label, chars=300)}: {code(c.detail)}" for c in shown]
        yield _Part(f"{_s(len(facts.failed), 'case')} failed on base already", [], lines, len(facts.failed))
    if facts.notes:
        yield _Part("Notes", [], [f"- {code(n)}" for n in facts.notes[:_MOST_ROWS]], len(facts.notes))


def _cases(what: str, cases: Sequence[Change]) -> Iterator[_Part]:
    header = ["| effect (95 % interval) | metric | case |", "|---|---|---|"]
    rows = []
    for c in cases[:_MOST_ROWS]:
        if c.ratio is None and c.before is not None and c.after is not None:
            effect = f"{c.before:g} → {c.after:g}"
        elif c.ratio is None:
            effect = f"{code(c.base_status, cell=True)} → {code(c.head_status, cell=True)}"
        else:
            effect = _interval(c.ratio, c.low, c.high)
        rows.append(f"| {effect} | {code(c.metric, cell=True)} | {code(c.label, cell=True, chars=300)} |")
    if cases:
        yield _Part(f"{_s(len(cases), 'case')} {what}", header, rows, len(cases))


class _Page:
    """Lines under a limit of bytes: a part that does not fit loses its last rows and says how many."""

    def __init__(self, limit: int, head: Sequence[str]) -> None:
        self.lines = list(head)
        self.left = limit - _bytes(head)

    def fold(self, part: _Part) -> None:
        """Add a folded part; nothing of it where not even one row fits."""
        above = part.above
        frame = ["<details>", f"<summary>{part.summary}</summary>", "", *above, "", "</details>", ""]
        more = "\n… and {} more, in the report."
        room = self.left - _bytes(frame) - len(more.encode()) - 8
        kept: list[str] = []
        for row in part.rows:
            room -= len(row.encode()) + 1
            if room < 0:
                break
            kept.append(row)
        if not kept:
            return
        if len(kept) < part.total:
            kept.append(more.format(part.total - len(kept)))
        lines = [*frame[: 3 + len(above)], *kept, *frame[3 + len(above) :]]
        self.left -= _bytes(lines)
        self.lines += lines


def _bytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _what(g: Group, *, cell: bool = False) -> str:
    if g.kind == "slower":
        return "slower"
    if g.kind == "gone":
        return "not offered any more"
    if g.kind == "status":
        words = sorted({c.head_status for c in g.changes})
        return " or ".join(re.sub("[^a-z]", " ", w) for w in words[:3]) or "fails"
    family = next((w for w, names in _FAMILIES if g.metric in names), "more")
    if g.metric in STATIC and metric_of(g.metric).better == "higher":
        family = "compiled kernel has less"
    return f"{family} ({code(g.metric, chars=80, cell=cell)})"


_FAMILIES = (("more memory", MEMORY), ("more launches", LAUNCHES), ("compiled kernel uses more", STATIC))


def _combinations(g: Group) -> str:
    if g.trigger is None:
        return f"{g.hit} of {_s(g.inside + g.outside, 'combination')}"
    outside = f" ({g.hit_outside} of {g.outside} outside)" if g.outside else ""
    return f"{g.hit} of {_s(g.inside, 'combination')}{outside}"


def _effect(g: Group) -> str:
    return "" if g.effect is None else _interval(g.effect, g.low, g.high)


def _interval(ratio: float, low: float | None, high: float | None) -> str:
    spoken = [end for end in (low, high) if end is not None]
    in_times = max(ratio, *spoken, ratio) >= 2
    show = _times if in_times else _percent
    low_text, high_text = ("?" if end is None else show(end) for end in (low, high))
    return show(ratio) if not spoken else f"{show(ratio)} [{low_text}, {high_text}]"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x"


def _percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{change:+.1f} %".replace("-", "−") if abs(change) < 10 else f"{change:+.0f} %".replace("-", "−")


def _share(x: float) -> str:
    return f"{100 * x:.1f} %" if x < 10 else "1000 %"


def _s(n: int, noun: str) -> str:
    return f"{n} {noun if n == 1 else noun + 's'}"
