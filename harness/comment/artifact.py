"""A report that a stranger's workflow uploaded: taken apart in memory, and refused for anything out of order.

What a fork's code wrote decides nothing but what the comment shows: which pull request and commit it is about comes
from GitHub's own event, and a report that claims another one is refused.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
import zlib
from io import BytesIO

from harness.model import InputError
from harness.model.reading import read_bounded

#: What an artifact holds, and nothing else: the report, and what it says it is about.
REPORT, CLAIM = "report.json", "claim.json"

_MOST_ZIP, _MOST_FILE = 16 << 20, 48 << 20
_MOST_CLAIM = 4096
_FILES = {REPORT: _MOST_FILE, CLAIM: _MOST_CLAIM}
#: Reports are text that repeats itself; more than this and the file was made to burst.
_MOST_RATIO = 200

_SECRETS = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,}|npm_[A-Za-z0-9]{30,}"
    r"|sk-[A-Za-z0-9_-]{32,}|eyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.|-----BEGIN [A-Z ]*PRIVATE KEY)"
)


def read_artifact(path: str, *, number: int, sha: str) -> str:
    """The text of the report in an uploaded zip, for pull request ``number`` with the head ``sha``.

    InputError says what is wrong: no zip, other files, paths, links, encryption, a size out of proportion, text that
    looks like a secret, or a claim about another pull request or commit.
    """
    files = _unpacked(read_bounded(path, _MOST_ZIP), path)
    texts = {}
    for name in sorted(_FILES):
        if name not in files:
            raise InputError(f"{path}: holds no {name}")
        try:
            texts[name] = files[name].decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{path}: {name} is not UTF-8") from None
        if looks_secret(texts[name]):
            raise InputError(f"{path}: {name} holds text that looks like a secret; it is shown to nobody")
    _claim(texts[CLAIM], path, number, sha)
    return texts[REPORT]


def looks_secret(text: str) -> bool:
    """Whether there is anything in it that looks like a token or a private key, JSON escapes decoded too."""
    # What JSON would decode counts: a token spelt in escapes is a token, and the n of a line break is no letter.
    plain = re.sub(r"\\u00([2-7][0-9a-fA-F])|\\.", lambda m: chr(int(m[1], 16)) if m[1] else " ", text)
    return bool(_SECRETS.search(text) or _SECRETS.search(plain))


def _unpacked(data: bytes, path: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return {i.filename: _entry(archive, i, path) for i in _entries(archive, path)}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as err:
        raise InputError(f"{path}: no sound zip file: {type(err).__name__}") from None


def _entries(archive: zipfile.ZipFile, path: str) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > len(_FILES):
        raise InputError(f"{path}: holds {len(entries)} files; only {' and '.join(sorted(_FILES))} are taken")
    names = [e.orig_filename for e in entries]
    for entry, name in zip(entries, names, strict=True):
        if name not in _FILES:
            raise InputError(f"{path}: holds {name[:60]!r}; only {' and '.join(sorted(_FILES))} are taken")
        if names.count(name) > 1:
            raise InputError(f"{path}: holds {name} twice")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InputError(f"{path}: {name} is no plain file")
        if entry.flag_bits & 1:
            raise InputError(f"{path}: {name} is encrypted")
    return entries


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str) -> bytes:
    # The sizes that the file states are its author's; what counts is how much really comes out.
    most = min(_FILES[entry.filename], max(1 << 16, _MOST_RATIO * entry.compress_size))
    with archive.open(entry) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{path}: {entry.filename} unpacks to more than {most} bytes")
    return data


def _claim(text: str, path: str, number: int, sha: str) -> None:
    try:
        claim = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: {CLAIM} is not JSON") from None
    if not isinstance(claim, dict) or set(claim) != {"number", "sha"}:
        raise InputError(f"{path}: {CLAIM} must hold number and sha, and nothing else")
    if claim["number"] != number or isinstance(claim["number"], bool):
        raise InputError(f"{path}: {CLAIM}: number: claims another pull request than {number}, which GitHub names")
    if claim["sha"] != sha:
        raise InputError(f"{path}: {CLAIM}: sha: claims another commit than {sha[:12]}, which GitHub names")
