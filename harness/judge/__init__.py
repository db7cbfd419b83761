"""From stored runs to findings: what changed, measured again, gathered into incidents."""

from .night import judge_night
from .plan import JudgePlan

__all__ = ["JudgePlan", "judge_night"]
