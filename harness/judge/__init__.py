"""From stored runs to findings: what changed, measured again, gathered into incidents."""

from .confirm import ConfirmPlan, confirm
from .incidents import gather
from .suspects import Judged, judge_run

__all__ = ["ConfirmPlan", "Judged", "confirm", "gather", "judge_run"]
