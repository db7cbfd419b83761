"""How fast is what a team serves? Workloads come from a file that ``attnwatch workload import`` wrote."""

from pathlib import Path

from benchmarks import SUITE, backends_of
from harness.model.suite import Question
from harness.model.workloads import is_suite_file, read_suite

if is_suite_file(SUITE):
    _name, _workloads = read_suite(Path(SUITE))
    for _operation in dict.fromkeys(w.operation for w in _workloads):
        _suites = {SUITE: tuple(w for w in _workloads if w.operation == _operation)}
        _question = Question(_name, _operation, _suites, backends_of(_operation))
        globals()[f"attn_{_operation}"] = _question.benchmark(SUITE, f"attn_{_operation}")
