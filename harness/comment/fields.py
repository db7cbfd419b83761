"""Fields of untrusted plain values, with messages that name file and field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.model import InputError
from harness.model.params import NAME_CHARS, TEXT_CHARS

_NONE: Any = object()
_BIGGEST = 1e18
_MOST_FIELDS = 256


class Fields:
    """One object of a report; ``path`` is where it stands, such as ``report.json: cases[3]``."""

    def __init__(self, data: Mapping[str, Any], path: str) -> None:
        self.data, self.path = data, path

    def fail(self, key: str, why: str) -> InputError:
        """The error to raise for a field."""
        joined = f"{self.path}.{key}" if "]" in self.path else f"{self.path}: field {key}"
        return InputError(f"{joined[:300]}: {why}")

    def objects(self, key: str, most: int, default: Any = _NONE) -> list[Fields]:
        """A list of objects."""
        held = self.data.get(key, default)
        if held is _NONE:
            raise self.fail(key, "is missing")
        if not isinstance(held, list):
            raise self.fail(key, "must be a list")
        if len(held) > most:
            raise self.fail(key, f"holds {len(held)} entries; at most {most} are read")
        base = self.path if "]" in self.path else f"{self.path}: field"
        joint = "." if "]" in self.path else " "
        return [self._object(item, f"{base}{joint}{key}[{i}]") for i, item in enumerate(held)]

    def named(self, key: str, most: int) -> Iterator[tuple[str, Fields]]:
        """An object of objects, with their names."""
        held = self.data.get(key)
        if not isinstance(held, dict) or len(held) > most:
            raise self.fail(key, f"must be an object with at most {most} entries")
        for name, item in held.items():
            if len(name) > NAME_CHARS:
                raise self.fail(key, f"a name has {len(name)} characters; at most {NAME_CHARS} are read")
            yield name, self._object(item, f"{self.path}: field {key}[{name[:40]!r}]")

    def child(self, key: str) -> Fields:
        """One object."""
        return self._object(self.data.get(key), f"{self.path}.{key}" if "]" in self.path else f"{self.path}: [{key}]")

    def _object(self, item: Any, path: str) -> Fields:
        if not isinstance(item, dict):
            raise InputError(f"{path}: must be an object")
        if len(item) > _MOST_FIELDS:
            raise InputError(f"{path}: has {len(item)} fields; at most {_MOST_FIELDS} are read")
        if any(len(k) > NAME_CHARS for k in item):
            raise InputError(f"{path}: a name has more than {NAME_CHARS} characters")
        return Fields(item, path)

    def text(self, key: str, default: str | None = None) -> str:
        """Text of bounded length; null is the default where there is one."""
        held = self.data.get(key)
        if held is None and default is not None:
            return default
        if not isinstance(held, str):
            raise self.fail(key, "must be text")
        if len(held) > TEXT_CHARS:
            raise self.fail(key, f"has {len(held)} characters; at most {TEXT_CHARS} are read")
        return held

    def texts(self, key: str, most: int) -> Sequence[str]:
        """The first ``most`` of a list of texts."""
        held = self.data.get(key, [])
        if not isinstance(held, list):
            raise self.fail(key, "must be a list")
        return [Fields({key: item}, self.path).text(key) for item in held[:most]]

    def choice(self, key: str, known: Sequence[str]) -> str | None:
        """One of the known words, or None."""
        held = self.data.get(key)
        if held is not None and held not in known:
            raise self.fail(key, f"{str(held)[:40]!r} is none of {', '.join(known)}")
        return held

    def number(self, key: str) -> float | None:
        """A finite number, or None."""
        held = self.data.get(key)
        if held is None:
            return None
        # Comparing first keeps whole numbers that no float holds from being converted.
        if isinstance(held, bool) or not isinstance(held, int | float) or not -_BIGGEST <= held <= _BIGGEST:
            raise self.fail(key, "must be a finite number or null")
        return float(held) if math.isfinite(held) else None

    def positive(self, key: str) -> float | None:
        """A number above zero, or None; an interval that reaches zero has no lower end."""
        held = self.number(key)
        if held is not None and held < 0:
            raise self.fail(key, "must not be below zero")
        return held or None

    def count(self, key: str) -> int:
        """A whole number from 0; 0 where it is missing."""
        held = self.data.get(key, 0)
        if isinstance(held, bool) or not isinstance(held, int) or not 0 <= held <= _BIGGEST:
            raise self.fail(key, "must be a whole number from 0")
        return held

    def interval(self, key: str) -> tuple[float | None, float | None]:
        """Both ends, None where nothing bounds one."""
        held = self.data.get(key)
        if held is None:
            return None, None
        if not isinstance(held, list) or len(held) != 2:
            raise self.fail(key, "must be two numbers")
        ends = Fields({f"{key}[{i}]": end for i, end in enumerate(held)}, self.path)
        return ends.positive(f"{key}[0]"), ends.positive(f"{key}[1]")

    def scalar(self, key: str) -> bool | int | float | str | None:
        """A value of a parameter."""
        held = self.data[key]
        if held is None or isinstance(held, bool):
            return held
        if isinstance(held, int) and abs(held) < 1 << 64:
            return held
        if isinstance(held, float) and math.isfinite(held):
            return held
        if isinstance(held, str):
            return self.text(key)
        raise self.fail(key, "must be text, a finite number, true, false or null")
