"""Statuses, exit codes and ruler version: words that every other part uses."""

from __future__ import annotations

import enum

#: Raised by hand when the method of measuring changes; part of series identity.
RULER_VERSION = "1"

#: Option of a run that is one part, or is put together of the parts, of a sweep that was spread: "2/4".
SHARD = "shard"

#: Kind of a machine that is no device but what code was compiled for; its model is the architecture ("sm_90").
COMPILE_TARGET = "compile_target"

#: Version of the bundle's record layout; a reader refuses a newer one.
BUNDLE_SCHEMA = 1


class Status(enum.StrEnum):
    """How measuring one case ended. Only ``OK`` carries timings that may be judged."""

    OK = "ok"
    SKIPPED = "skipped"
    DESELECTED = "deselected"
    UNSUPPORTED = "unsupported"
    WRONG = "wrong"
    NON_FINITE = "non_finite"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    INVALID = "invalid"

    @property
    def failed(self) -> bool:
        """True where the case ran, or tried to, and gave nothing that can be judged."""
        return self in _BROKEN or self is Status.INVALID

    @property
    def absent(self) -> bool:
        """True where the backend does not offer the case here."""
        return self in (Status.UNSUPPORTED, Status.SKIPPED)

    @property
    def broken(self) -> bool:
        """True where the kernel is to blame: from ok to here is a regression. An invalid one blames the machine."""
        return self in _BROKEN


_BROKEN = frozenset({Status.WRONG, Status.NON_FINITE, Status.TIMED_OUT, Status.OUT_OF_MEMORY, Status.CRASHED})


class Reason(enum.StrEnum):
    """Why a run was made."""

    NIGHTLY = "nightly"
    PULL_REQUEST = "pull_request"
    MANUAL = "manual"
    BACKFILL = "backfill"


class VerdictKind(enum.StrEnum):
    """What a comparison says of one series."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


class TriageState(enum.StrEnum):
    """Where an incident stands with the people who look after it."""

    SUSPECT = "suspect"
    DISMISSED = "dismissed"
    NEW = "new"
    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"
    FIXED = "fixed"
    FALSE_POSITIVE = "false_positive"


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    CLEAN = 0
    FINDING = 1
    USAGE = 2
    INFRASTRUCTURE = 3


class AttnwatchError(Exception):
    """An error with a message for people. ``exit_code`` is what the command ends with."""

    exit_code: Exit = Exit.INFRASTRUCTURE


class InputError(AttnwatchError):
    """Bad usage or bad input. The message names file, line, field and remedy where they exist."""

    exit_code = Exit.USAGE


class InfrastructureError(AttnwatchError):
    """Something around the work failed: database, worker, device, disk."""

    exit_code = Exit.INFRASTRUCTURE
