"""Under which series and environment a record is stored."""

from __future__ import annotations

from harness.model import RULER_VERSION, Environment, content_key


def identity(environment: Environment) -> tuple[str, str]:
    """(machine fingerprint, environment hash) under the ruler that the record was measured with.

    The properties of the model use the ruler of this process; an older bundle must not join today's series.
    """
    machine = environment.machine
    if environment.ruler_version != RULER_VERSION:
        parts = ("machine", machine.device_kind, machine.device_model, machine.clock_policy)
        machine.__dict__["fingerprint"] = content_key(*parts, environment.ruler_version)[:16]
        environment.__dict__.pop("hash", None)
    return machine.fingerprint, environment.hash
