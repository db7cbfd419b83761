"""Reading ``attnwatch.toml``: every complaint names file, line, key and remedy."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from harness.duration import seconds
from harness.model import InputError, content_key
from harness.model.expr import Expression, compile_expr
from harness.model.reading import read_text

from .records import SEVERITIES, Policy, QuietHours, Rule, Settings, Shadow

#: Taken from the working folder where neither ``--policy`` nor ``ATTNWATCH_POLICY`` names one.
DEFAULT_FILE = "attnwatch.toml"

_LIMIT_BYTES = 1 << 20
_BEYOND = "a whole number past 64 bits; give a smaller one"
_SETTINGS = ("minimum_effect", "severity", "owner", "quiet_hours")
_MATCH = ("benchmark", "backend", "metric")
_TOP = (*_SETTINGS, "shadow", "budget", "rule")
_RULE = ("name", *_MATCH, "where", *_SETTINGS)
_SHADOW = ("nights", "until", "always")
_BUDGET = ("night", "confirm")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: (\S+))?")
_HEADER = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([\w\-]+))\s*[=.]")


def find_policy(given: str | None = None) -> Policy:
    """The policy at ``given``, else that of the working folder, else what holds without one. InputError as below."""
    if given:
        return read_policy(given)
    return read_policy(DEFAULT_FILE) if Path(DEFAULT_FILE).exists() else Policy()


def read_policy(path: str) -> Policy:
    """Read and check a policy file. InputError names file, line, key and remedy; nothing unknown is passed over."""
    text = read_text(path, _LIMIT_BYTES)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InputError(_not_toml(path, text, str(err))) from None
    except ValueError:
        # Python converts no decimal of more digits than this, and tomllib passes its refusal on as it is.
        found = re.search(rf"[0-9_]{{{sys.get_int_max_str_digits()},}}", text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        raise InputError(f"{path}:{line}: {_BEYOND}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deep") from None
    reader = _Reader(path, _Lines(text))
    try:
        return replace(reader.policy(data), version=content_key("policy", text)[:12])
    except ValueError:
        # From a table in a value's place, which a message cannot show.
        raise InputError(f"{path}:{reader.lines.of(reader.table, reader.count, '')}: {_BEYOND}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deep") from None


def _not_toml(path: str, text: str, message: str) -> str:
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = (found and found[1]) or len(text.splitlines())
    return f"{path}:{line}: not TOML: {message[: found.start()] if found else message}"


class _Lines:
    """On which line each key stands; tomllib does not say. Where a key cannot be found, its table's line serves."""

    def __init__(self, text: str) -> None:
        self.at: dict[tuple[str, int, str], int] = {}
        table, count, counts = "", 0, {"rule": -1}
        quoted = ""
        for number, line in enumerate(text.splitlines(), 1):
            if quoted:
                quoted = "" if line.count(quoted) % 2 else quoted
                continue
            header = _HEADER.match(line)
            if header:
                table, count = header[1].strip("\"' "), 0
                if line.lstrip().startswith("[["):
                    count = counts[table] = counts.get(table, -1) + 1
                self.at.setdefault((table, count, ""), number)
                continue
            key = _KEY.match(line)
            if key:
                self.at.setdefault((table, count, key[1] or key[2] or key[3] or ""), number)
            quoted = next((q for q in ('"""', "'''") if line.count(q) % 2), "")

    def of(self, table: str, count: int, key: str) -> int:
        """Line of a key, 1 where it cannot be told."""
        # A table may be written in its parent's line: shadow = { nights = 3 }.
        return self.at.get((table, count, key)) or self.at.get((table, count, "")) or self.at.get(("", 0, table)) or 1


class _Reader:
    def __init__(self, path: str, lines: _Lines) -> None:
        self.path, self.lines = path, lines
        self.table, self.count = "", 0

    def fail(self, key: str, why: str) -> InputError:
        line = self.lines.of(self.table, self.count, key)
        name = f"{self.table}.{key}" if self.table and key else key or self.table
        return InputError(f"{self.path}:{line}: {name}: {why}")

    def policy(self, data: Mapping[str, Any]) -> Policy:
        self.known(data, _TOP)
        defaults = self.settings(data)
        shadow, (night, confirm) = Shadow(), (None, None)
        if "shadow" in data:
            shadow = self.inside("shadow", data["shadow"], self.shadow)
        if "budget" in data:
            night, confirm = self.inside("budget", data["budget"], self.budget)
        rules = data.get("rule", [])
        if not isinstance(rules, list):
            raise self.fail("rule", "rules are written [[rule]], one table each")
        found = tuple(self.inside("rule", rule, self.rule, i) for i, rule in enumerate(rules))
        return Policy(defaults, found, shadow, night, confirm, self.path)

    def inside(self, table: str, value: Any, read: Callable[[Mapping[str, Any]], Any], count: int = 0) -> Any:
        if not isinstance(value, dict):
            raise self.fail(table, f"must be a table, not {value!r}")
        self.table, self.count = table, count
        made = read(value)
        self.table, self.count = "", 0
        return made

    def known(self, data: Mapping[str, Any], names: Iterable[str]) -> None:
        names = tuple(names)
        for key, value in data.items():
            if _beyond(value):
                raise self.fail(key, _BEYOND)
            if key not in names:
                near = difflib.get_close_matches(key, names, n=3, cutoff=0.5) or names
                raise self.fail(key, f"unknown key; did you mean {', '.join(near)}?")

    def settings(self, data: Mapping[str, Any]) -> Settings:
        effect, severity = data.get("minimum_effect"), data.get("severity")
        if effect is not None and not (_number(effect) and 0 <= effect < 10):
            raise self.fail("minimum_effect", f"must be a share between 0 and 10, as 0.02 for 2 %, not {effect!r}")
        if severity is not None and severity not in SEVERITIES:
            raise self.fail("severity", f"must be one of {', '.join(SEVERITIES)}, not {severity!r}")
        quiet = self.text(data, "quiet_hours")
        return Settings(
            None if effect is None else float(effect), severity, self.text(data, "owner"),
            None if quiet is None else self.hours(quiet),
        )  # fmt: skip

    def rule(self, data: Mapping[str, Any]) -> Rule:
        self.known(data, _RULE)
        settings = self.settings(data)
        if settings == Settings():
            raise self.fail("", f"the rule sets nothing; give one of {', '.join(_SETTINGS)}")
        benchmark, backend, metric = (self.patterns(data, key) for key in _MATCH)
        line = self.lines.of("rule", self.count, "")
        return Rule(settings, benchmark, backend, metric, self.where(data), self.text(data, "name") or "", line)

    def patterns(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        given = data.get(key, ())
        many = [given] if isinstance(given, str) else given
        if not isinstance(many, list | tuple) or not all(isinstance(p, str) and p for p in many):
            raise self.fail(key, f"must be a name or pattern such as 'sdpa_*', or a list of them, not {given!r}")
        if key in data and not many:
            raise self.fail(key, "an empty list matches nothing; leave the key out to match everything")
        return tuple(many)

    def where(self, data: Mapping[str, Any]) -> Expression | None:
        text = self.text(data, "where")
        if text is None:
            return None
        line = self.lines.of("rule", self.count, "where")
        return compile_expr(text, f"{self.path}:{line}: rule.where")

    def shadow(self, data: Mapping[str, Any]) -> Shadow:
        self.known(data, _SHADOW)
        nights, until, always = data.get("nights", 0), data.get("until"), data.get("always", False)
        if isinstance(nights, bool) or not isinstance(nights, int) or nights < 0:
            raise self.fail("nights", f"must be a whole number of nights, not {nights!r}")
        if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
            raise self.fail("until", f"must be a date such as 2027-01-31, without quotes and time, not {until!r}")
        if not isinstance(always, bool):
            raise self.fail("always", f"must be true or false, not {always!r}")
        return Shadow(nights, until, always)

    def budget(self, data: Mapping[str, Any]) -> tuple[float | None, float | None]:
        self.known(data, _BUDGET)
        night, confirm = (self.duration(data, key) for key in _BUDGET)
        return night, confirm

    def duration(self, data: Mapping[str, Any], key: str) -> float | None:
        text = self.text(data, key)
        if text is None:
            return None
        try:
            return seconds(text, key)
        except InputError:
            raise self.fail(key, f"{text!r} is no duration; give '90s', '15m' or '2h'") from None

    def text(self, data: Mapping[str, Any], key: str) -> str | None:
        value = data.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.fail(key, f"must be text in quotes, not {value!r}")
        return value

    def hours(self, text: str) -> QuietHours:
        found = _HOURS.fullmatch(text)
        if found is None:
            raise self.fail("quiet_hours", f"{text!r} is no range; give '22:00-07:00' or '22:00-07:00 Europe/Berlin'")
        zone = found[5] or "UTC"
        try:
            if zone != "UTC":
                ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            raise self.fail("quiet_hours", f"no time zone {zone!r}; give one such as Europe/Berlin, or none") from None
        a, b, c, d = (int(x) for x in found.groups()[:4])
        return QuietHours(a * 60 + b, c * 60 + d, zone)


def _beyond(value: Any) -> bool:
    """Whether a whole number that TOML does not have (hexadecimal ones parse at any length) stands in ``value``."""
    if isinstance(value, list):
        return any(map(_beyond, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
