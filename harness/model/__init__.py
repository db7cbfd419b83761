"""Records, terms and the expression language that all parts share. Imports the standard library only."""

from .canonical import Params, Scalar, canonical_json, content_key, label, parse_label
from .doctor import BackendReport
from .metrics import METRICS, PRIMARY, Metric, metric
from .options import MeasureOptions
from .records import (
    Case,
    Environment,
    Machine,
    Measurement,
    Revision,
    Run,
    RunEnd,
    Value,
    Workload,
)
from .terms import (
    BUNDLE_SCHEMA,
    RULER_VERSION,
    AttnwatchError,
    Exit,
    InfrastructureError,
    InputError,
    Reason,
    Status,
    TriageState,
    VerdictKind,
)

__all__ = [
    "BUNDLE_SCHEMA",
    "METRICS",
    "PRIMARY",
    "RULER_VERSION",
    "AttnwatchError",
    "BackendReport",
    "Case",
    "Environment",
    "Exit",
    "InfrastructureError",
    "InputError",
    "Machine",
    "MeasureOptions",
    "Measurement",
    "Metric",
    "Params",
    "Reason",
    "Revision",
    "Run",
    "RunEnd",
    "Scalar",
    "Status",
    "TriageState",
    "Value",
    "VerdictKind",
    "Workload",
    "canonical_json",
    "content_key",
    "label",
    "metric",
    "parse_label",
]
