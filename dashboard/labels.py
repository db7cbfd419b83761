"""Short names for cases that are shown together: only what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable

from db.queries import CaseRow
from harness.model.params import PARAMETERS, SEQ_LEN


def short_names(cases: Iterable[CaseRow]) -> tuple[dict[str, str], str]:
    """Case key -> the parameters that vary among ``cases``, and the text of those that do not.

    Equal query and key lengths are one ``seq_len`` where every case has them equal.
    """
    rows = {c.key: dict(c.params) for c in cases}
    if rows and all(r.get("q_len") is not None and r.get("q_len") == r.get("kv_len") for r in rows.values()):
        for row in rows.values():
            row[SEQ_LEN] = row.pop("q_len")
            del row["kv_len"]
    seen: dict[str, set[str]] = {}
    for row in rows.values():
        for name in row:
            seen.setdefault(name, set())
    for name, values in seen.items():
        values.update(repr(row.get(name)) for row in rows.values())
    order = [SEQ_LEN, *PARAMETERS]
    names = sorted(seen, key=lambda n: (order.index(n) if n in order else len(order), n))
    varying = [n for n in names if len(seen[n]) > 1]
    same = [n for n in names if len(seen[n]) == 1]
    if not varying:
        varying, same = names, []
    first = next(iter(rows.values()), {})
    return (
        {key: " ".join(f"{n}={row[n]}" for n in varying if row.get(n) is not None) for key, row in rows.items()},
        " ".join(f"{n}={first[n]}" for n in same if first.get(n) is not None),
    )
