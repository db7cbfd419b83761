"""How fast is what a team serves? Workloads come from a file that ``attnwatch workload import`` wrote."""

import os
from pathlib import Path

from benchmarks import backends_of
from harness.model.suite import SUITE_VARIABLE, Question
from harness.model.workloads import is_suite_file, read_suite

_file = os.environ.get(SUITE_VARIABLE, "")

if is_suite_file(_file):
    _name, _workloads = read_suite(Path(_file))
    for _operation in dict.fromkeys(w.operation for w in _workloads):
        _suites = {_file: tuple(w for w in _workloads if w.operation == _operation)}
        globals()[f"attn_{_operation}"] = Question(_name, _operation, _suites, backends_of(_operation)).benchmark()
