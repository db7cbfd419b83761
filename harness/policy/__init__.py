"""What people want to be told of: the policy file ``attnwatch.toml``."""

from .reading import DEFAULT_FILE, find_policy, read_policy
from .records import DEFAULT_EFFECT, NO_POLICY, Policy, QuietHours, Rule, Settings, Shadow

__all__ = [
    "DEFAULT_EFFECT",
    "DEFAULT_FILE",
    "NO_POLICY",
    "Policy",
    "QuietHours",
    "Rule",
    "Settings",
    "Shadow",
    "find_policy",
    "read_policy",
]
