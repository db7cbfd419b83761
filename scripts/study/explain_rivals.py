"""What others make of the same tables: a decision tree of depth three, and pysubgroup's best subgroup.

Run by an interpreter that has scikit-learn and pysubgroup: reads ``{"rows": [...], "regressed": [...]}`` as JSON
lines on standard input, writes ``{"tree": [text, seconds], "subgroup": [text, seconds]}`` for each.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

Row = dict[str, Any]


def main() -> None:
    """One answer a line."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        given = json.loads(line)
        out = {}
        for name, method in (("tree", tree), ("subgroup", subgroup)):
            began = time.perf_counter()
            try:
                text = method(given["rows"], given["regressed"])
            except Exception as err:  # a rival that fails has not found it
                print(f"{name}: {err!r}", file=sys.stderr)
                text = "False"
            out[name] = [text, time.perf_counter() - began]
        print(json.dumps(out), flush=True)


def tree(rows: list[Row], regressed: list[bool]) -> str:
    """Paths to the leaves where most rows regressed, as one expression; text and gaps as one column a value."""
    import numpy as np
    from sklearn.tree import DecisionTreeClassifier

    tests: list[tuple[str, Any]] = []
    columns = []
    for name in rows[0]:
        cells = [r[name] for r in rows]
        if all(isinstance(c, int | float) and not isinstance(c, bool) for c in cells):
            tests.append((_ref(name), None))
            columns.append(cells)
        else:
            for value in sorted(set(cells), key=repr):
                tests.append((f"{_ref(name)} == {value!r}", value))
                columns.append([c == value for c in cells])
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(np.array(columns, dtype=float).T, regressed)
    t = model.tree_

    def paths(node: int, conditions: list[str]) -> list[str]:
        if t.children_left[node] < 0:
            yes = bool(model.classes_[int(np.argmax(t.value[node][0]))])
            return [" and ".join(conditions) or "True"] if yes else []
        text, _ = tests[t.feature[node]]
        numeric = " == " not in text
        left = f"{text} <= {t.threshold[node]}" if numeric else f"not ({text})"
        right = f"{text} > {t.threshold[node]}" if numeric else text
        below = paths(t.children_left[node], [*conditions, left])
        return below + paths(t.children_right[node], [*conditions, right])

    found = paths(0, [])
    return " or ".join(f"({p})" for p in found) or "False"


def subgroup(rows: list[Row], regressed: list[bool]) -> str:
    """The best subgroup of up to three selectors on the raw columns."""
    import pandas as pd
    import pysubgroup as ps

    frame = pd.DataFrame([{k: "none" if v is None else v for k, v in r.items()} for r in rows])
    frame["target"] = regressed
    space = ps.create_selectors(frame, nbins=10, ignore=["target"])
    for name in frame.columns:
        if name != "target" and frame[name].dtype.kind in "if":
            space += [ps.EqualitySelector(name, v) for v in sorted(set(frame[name]))]
    task = ps.SubgroupDiscoveryTask(
        frame, ps.BinaryTarget("target", True), space, result_set_size=1, depth=3, qf=ps.StandardQF(0.5)
    )
    best = ps.BeamSearch(beam_width=60).execute(task).to_descriptions()[0][1]
    parts = []
    for s in best.selectors:
        ref = _ref(s.attribute_name)
        if hasattr(s, "attribute_value"):
            value = s.attribute_value
            value = value.item() if hasattr(value, "item") else value
            parts.append(f"{ref} == {None if value == 'none' else value!r}")
        else:
            low, high = float(s.lower_bound), float(s.upper_bound)
            parts += [f"{ref} >= {low}"] * (low > -1e300) + [f"{ref} < {high}"] * (high < 1e300)
    return " and ".join(parts) or "True"


def _ref(name: str) -> str:
    return name if name.isidentifier() else f"col[{name!r}]"


if __name__ == "__main__":
    main()
