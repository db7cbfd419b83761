"""The bundle: JSON lines that any machine can write and any other can ingest.

Every line is one object ``{"kind": ..., "schema": 1, ...fields of the record}``:

=============  ==========================================================================
``run``        :class:`harness.model.Run`; comes before what belongs to it
``measurement``  ``run_id`` and :class:`harness.model.Measurement`
``controls``   ``run_id`` and ``values``: metric name -> :class:`harness.model.Value`
``end``        :class:`harness.model.RunEnd`
=============  ==========================================================================

Writing needs the standard library only (bare GPU images); reading needs msgspec, imported when reading.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from harness.bundle_mend import acceptable
from harness.model import BUNDLE_SCHEMA, InfrastructureError, InputError, Measurement, Run, RunEnd, Value
from harness.model.bounds import Wrong, wrong_in, wrong_in_values
from harness.model.params import NAME_CHARS, TEXT_CHARS

Kind = Literal["run", "measurement", "controls", "end"]

#: A longer line is no bundle line; the limit keeps reading flat in memory whatever the file is.
MAX_LINE_BYTES = 64 * 2**20

#: Enough to hold the head of any run that people make; a longer first line is taken for one of ours by its start.
_HEAD_BYTES = 1 << 20
_HEAD = b'{"kind":'

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Controls:
    """Frozen control kernels of one run: metric name -> value."""

    run_id: str
    values: dict[str, Value]


Record = Run | Measurement | Controls | RunEnd


@dataclass(frozen=True, slots=True)
class BundleLine:
    """One record and where it stands. ``number`` is the 1-based line; ``run_id`` the run it belongs to."""

    number: int
    kind: Kind
    run_id: str
    record: Record


def encode_line(kind: Kind, record: object, **extra: object) -> bytes:
    """One line, newline included, that every reader takes.

    Lone surrogates become their escaped text. What a reader would refuse is mended where it can be without losing
    the measurement (:func:`harness.bundle_mend.acceptable`), so that one odd number does not cost a night.
    Raises :class:`InputError` naming the field where it cannot be, such as parameters that mean nothing.
    """
    run_id = extra.get("run_id") or getattr(record, "run_id", None) or getattr(record, "id", None) or ""
    if not isinstance(run_id, str) or not 0 < len(run_id) <= NAME_CHARS:
        raise InputError(f"field run_id: {str(run_id)[:48]!r} has not 1 to {NAME_CHARS} characters; give another id")
    line: dict[str, object] = {"kind": kind, "schema": BUNDLE_SCHEMA, **extra, **_fields(acceptable(record))}
    text = json.dumps(line, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if _SURROGATE.search(text):
        text = _SURROGATE.sub(lambda m: f"\\\\u{ord(m.group()):04x}", text)
    return text.encode() + b"\n"


class BundleWriter:
    """Appends records to a bundle; several processes may write to one file.

    Each line is one write on an ``O_APPEND`` descriptor under an advisory lock, so lines never mix. A line that
    does not fit on the disk is taken back whole. A line that a killed process left half-written is moved to
    ``PATH.cut`` when the file is next opened for writing; ``recovered`` then says so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open ``path`` for appending, creating it. Raises InputError for a folder or a missing parent."""
        self.path = Path(path)
        self.recovered: str | None = None
        self._started: dict[str, float] = {}
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ENOENT, errno.ENOTDIR):
                raise InputError(
                    f"{self.path}: cannot write a bundle here ({error.strerror}); name a file in an existing folder"
                ) from error
            raise _write_failed(self.path, error) from error
        try:
            with self._locked():
                self._refuse_foreign()
                self._move_cut_line()
        except BaseException:
            self.close()
            raise

    def run(self, run: Run) -> None:
        """Write the head of a run; before its measurements."""
        self._append(encode_line("run", run))
        self._started[run.id] = run.started_at

    def measurement(self, run_id: str, measurement: Measurement) -> None:
        """Write one measurement of run ``run_id``."""
        self._append(encode_line("measurement", measurement, run_id=run_id))

    def controls(self, run_id: str, values: Mapping[str, Value]) -> None:
        """Write the values of the control kernels, metric name -> value."""
        self._append(encode_line("controls", Controls(run_id, dict(values))))

    def end(self, end: RunEnd) -> None:
        """Close a run and force the file to the disk. A clock that was set back ends it at its start, not before."""
        if end.finished_at < (start := self._started.get(end.run_id, 0.0)):
            end = dataclasses.replace(end, finished_at=start)
        self._append(encode_line("end", end))
        self.sync()

    def sync(self) -> None:
        """Force what was written to the disk."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # pipes and the like have nothing to force
                raise _write_failed(self.path, error) from error

    def close(self) -> None:
        """Close the descriptor; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        with self._locked():
            start = os.fstat(self._fd).st_size
            try:
                written = os.write(self._fd, line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, start)
                raise _write_failed(self.path, error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Some network file systems know no locks; single appends are still whole on those that matter.
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _refuse_foreign(self) -> None:
        """Nothing is written to a file that is not a bundle of this schema: it is somebody's data."""
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            return  # a pipe or a terminal holds nothing that could be spoilt
        first = os.pread(self._fd, _HEAD_BYTES, 0).split(b"\n", 1)
        if not first[0].strip() or (len(first) == 1 and first[0].startswith(_HEAD)):
            return  # empty, or one line that was cut off or is longer than what was read
        try:
            head = json.loads(first[0])
            version = head["schema"] if isinstance(head["kind"], str) else None
        except (ValueError, RecursionError, KeyError, TypeError):
            version = None
        if not isinstance(version, int):
            raise InputError(f"{self.path}:1: this file is no bundle and is left as it is; name another one")
        if version > BUNDLE_SCHEMA:
            raise InputError(
                f"{self.path}:1: a bundle of schema {version}, newer than {BUNDLE_SCHEMA}; upgrade attnwatch"
            )

    def _move_cut_line(self) -> None:
        size = os.fstat(self._fd).st_size
        end = size
        tail = b""
        while end > 0 and b"\n" not in tail:
            start = max(0, end - 65536)
            tail = os.pread(self._fd, end - start, start) + tail
            end = start
        cut = tail[tail.rfind(b"\n") + 1 :]
        if not cut:
            return
        if _is_complete(cut):
            os.write(self._fd, b"\n")
            return
        aside = self.path.with_name(self.path.name + ".cut")
        with aside.open("ab") as file:
            file.write(cut + b"\n")
        os.ftruncate(self._fd, size - len(cut))
        self.recovered = f"{self.path}: its last line was cut off and is kept in {aside}"


def check_line(line: BundleLine, *, long_texts: bool = True) -> None:
    """Whether the values of a line can be, see :mod:`harness.model.bounds`; raises ``ValueError`` naming the field.

    ``long_texts`` is False where no text of the record can pass its limit, because the whole is shorter.
    """
    record, run_id = line.record, line.run_id
    if isinstance(record, Controls):
        wrong = wrong_in_values("values", record.values)
    else:
        wrong = wrong_in(record, long_texts=long_texts)
    if wrong is None and len(run_id) > NAME_CHARS:
        wrong = Wrong("run_id", run_id, f"has {len(run_id)} characters where {NAME_CHARS} are the limit; shorten it")
    if wrong is not None:
        raise ValueError(str(wrong))


class BundleReader:
    """Iterates over a bundle line by line; memory does not grow with the file.

    A last line that was cut off (no newline, not complete) is kept in ``truncated`` and named in ``warnings``
    once the iteration has ended. Any other bad line raises InputError naming ``file:line`` and the field.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.truncated: bytes | None = None
        self.warnings: list[str] = []

    def __iter__(self) -> Iterator[BundleLine]:
        decode = _decoder()
        self.truncated = None
        self.warnings = []
        try:
            with self.path.open("rb") as file:
                number = 0
                while raw := file.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    if number == 1:
                        raw = raw.removeprefix(b"\xef\xbb\xbf")
                    if not raw.strip():
                        continue
                    try:
                        line = decode(number, raw)
                    except (ValueError, RecursionError) as error:
                        if not raw.endswith(b"\n") and _may_be_cut(raw):
                            self._keep_truncated(number, raw)
                            return
                        raise InputError(f"{self.path}:{number}: {error}") from error
                    yield line
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot read this bundle ({error.strerror}); give the path of a readable file"
            ) from error

    def _keep_truncated(self, number: int, raw: bytes) -> None:
        self.truncated = raw
        self.warnings.append(
            f"{self.path}:{number}: the last line is cut off after {len(raw)} bytes (truncated) and was left out; "
            "the run it belongs to can be resumed"
        )


def read_bundle(path: str | os.PathLike[str]) -> BundleReader:
    """A streaming reader of the bundle at ``path``; see :class:`BundleReader`."""
    return BundleReader(path)


def bundle_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line."""
    from harness.bundle_schema import line_schema

    return line_schema(Controls)


def write_schema(path: str | os.PathLike[str]) -> None:
    """Write :func:`bundle_schema` as the published file."""
    Path(path).write_text(json.dumps(bundle_schema(), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _fields(record: object) -> dict[str, object]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}  # type: ignore[arg-type]


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if callable(item := getattr(value, "item", None)):  # numpy scalars
        return item()
    raise TypeError(f"{type(value).__name__} has no place in a bundle")


def _write_failed(path: Path, error: OSError) -> InfrastructureError:
    remedy = {
        errno.ENOSPC: "free some space or ",
        errno.EDQUOT: "raise the quota or ",
        errno.EFBIG: "raise the limit on file sizes or ",
    }.get(error.errno or 0, "")
    remedy += "choose another place with --out"
    return InfrastructureError(f"{path}: cannot write the bundle ({error.strerror}); {remedy}")


def _is_complete(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _may_be_cut(raw: bytes) -> bool:
    # A file of another kind may lack a final newline too; only the start of an object (or the zeros that a power
    # failure leaves) can be a line of ours that was cut off. A complete object that is wrong was not cut off.
    return len(raw) <= MAX_LINE_BYTES and raw[:1] in (b"{", b"\0") and not _is_complete(raw)


def _decoder() -> Callable[[int, bytes], BundleLine]:
    """A function from (line number, bytes) to a checked line; it raises ``ValueError`` naming the field."""
    import msgspec

    class Head(msgspec.Struct):
        kind: str
        schema: int
        run_id: str = ""

    head = msgspec.json.Decoder(Head)
    decoders: dict[str, Callable[[bytes], Record]] = {
        "run": msgspec.json.Decoder(Run).decode,
        "measurement": msgspec.json.Decoder(Measurement).decode,
        "controls": msgspec.json.Decoder(Controls).decode,
        "end": msgspec.json.Decoder(RunEnd).decode,
    }

    def decode(number: int, raw: bytes) -> BundleLine:
        if len(raw) > MAX_LINE_BYTES:
            raise ValueError(f"longer than {MAX_LINE_BYTES} bytes: not a line of a bundle")
        try:
            top = head.decode(raw)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a bundle record: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"not valid JSON ({error}); a bundle holds one JSON object per line") from error
        if top.schema > BUNDLE_SCHEMA:
            raise ValueError(
                f"field schema: {top.schema} is newer than {BUNDLE_SCHEMA}, the newest this attnwatch reads; "
                "upgrade attnwatch"
            )
        if top.schema < 1:
            raise ValueError(f"field schema: {top.schema} is not a bundle schema (they start at 1)")
        if (decoder := decoders.get(top.kind)) is None:
            raise ValueError(f"field kind: {top.kind!r} is none of {', '.join(decoders)}")
        try:
            record = decoder(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"bad {top.kind} record: {error}") from error
        run_id = record.id if isinstance(record, Run) else top.run_id
        if not run_id:
            raise ValueError(f"bad {top.kind} record: its run id is empty or missing")
        line = BundleLine(number, top.kind, run_id, record)  # type: ignore[arg-type]
        check_line(line, long_texts=len(raw) > TEXT_CHARS)
        return line

    return decode


if __name__ == "__main__":
    write_schema(sys.argv[1] if len(sys.argv) > 1 else "docs/bundle.schema.json")
