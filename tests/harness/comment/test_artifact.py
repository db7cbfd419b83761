"""What a stranger's workflow uploads is taken apart, or refused for a reason that is told."""

from __future__ import annotations

import json
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comment.artifact import looks_secret, read_artifact
from harness.model import InputError

from . import samples
from .server import HEAD

REPORT = json.dumps(samples.clean())
CLAIM = json.dumps({"number": 7, "sha": HEAD})


def packed(folder: Path, files: dict[str, str | bytes], how: int = zipfile.ZIP_DEFLATED) -> str:
    path = folder / "artifact.zip"
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


def read(path: str) -> str:
    return read_artifact(path, number=7, sha=HEAD)


def test_a_sound_one_is_read(tmp_path: Path) -> None:
    assert read(packed(tmp_path, {"report.json": REPORT, "claim.json": CLAIM})) == REPORT


def token(kind: str) -> str:
    """Text that looks like a token of this kind; made here, so that no scanner finds one in this file."""
    return {"github": "gh" + "p_" + "a" * 36, "fine": "github" + "_pat_" + "B" * 40, "aws": "AK" + "IA" + "Q" * 16,
            "key": "-----BEGIN " + "RSA PRIVATE KEY", "slack": "xo" + "xb-" + "1" * 12, "hub": "hf" + "_" + "c" * 34,
            "jwt": "ey" + "J" + "a" * 20 + ".ey" + "J" + "b" * 20 + ".c"}[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"report.json": REPORT, "claim.json": json.dumps({"number": 8, "sha": HEAD})}, "claims another pull request"),
        ({"report.json": REPORT, "claim.json": json.dumps({"number": True, "sha": HEAD})}, "another pull request"),
        ({"report.json": REPORT, "claim.json": json.dumps({"number": 7, "sha": "9" * 40})}, "claims another commit"),
        ({"report.json": REPORT, "claim.json": json.dumps({"number": 7})}, "must hold number and sha"),
        ({"report.json": REPORT, "claim.json": "[" * 4000}, "is not JSON"),
        ({"report.json": REPORT, "claim.json": "[" * 5000}, "unpacks to more than 4096 bytes"),
        ({"report.json": REPORT}, "holds no claim.json"),
        ({"claim.json": CLAIM}, "holds no report.json"),
        ({"../report.json": REPORT, "claim.json": CLAIM}, "holds '../report.json'"),
        ({"/etc/passwd": REPORT, "claim.json": CLAIM}, "holds '/etc/passwd'"),
        ({"a\\..\\report.json": REPORT, "claim.json": CLAIM}, "only claim.json and report.json"),
        ({"report.json": REPORT, "claim.json": CLAIM, "run.sh": "x"}, "holds 3 files"),
        ({"report.json": b"\xff\xfe", "claim.json": CLAIM}, "is not UTF-8"),
        ({"report.json": b"0" * (32 << 20), "claim.json": CLAIM}, "unpacks to more than"),
    ],
)  # fmt: skip
def test_what_is_out_of_order_is_refused(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(InputError) as told:
        read(packed(tmp_path, files))
    assert message in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("kind", ["github", "fine", "aws", "key", "slack", "hub", "jwt"])
def test_text_that_looks_like_a_secret_is_refused_and_not_told(tmp_path: Path, kind: str) -> None:
    secret = token(kind)
    spelt = "".join(f"\\u{ord(c):04x}" for c in secret)
    for inside in (json.dumps(secret), json.dumps(f"a\n{secret}"), f'"{spelt}"'):
        text = REPORT.replace('"left_out"', f'"note": {inside}, "left_out"')
        with pytest.raises(InputError, match="looks like a secret") as told:
            read(packed(tmp_path, {"report.json": text, "claim.json": CLAIM}))
        assert secret[8:] not in str(told.value)


def test_commits_and_hashes_are_no_secrets() -> None:
    assert not looks_secret(
        json.dumps({"sha": "a" * 40, "key": "0" * 64, "label": "mask-" + "a" * 40, "x": "hf_attention"})
    )


def test_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("report.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("claim.json", CLAIM)
    with pytest.raises(InputError, match="no plain file"):
        read(str(path))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("report.json", REPORT)
        archive.writestr("report.json", "{}")
    with pytest.raises(InputError, match="twice"):
        read(str(path))


def test_a_stated_size_is_not_believed(tmp_path: Path) -> None:
    """A bomb that calls itself small: what comes out counts."""
    path = Path(packed(tmp_path, {"report.json": b"0" * (30 << 20), "claim.json": CLAIM}))
    data = bytearray(path.read_bytes())
    real = struct.pack("<L", 30 << 20)
    for at in [i for i in range(len(data) - 4) if data[i : i + 4] == real]:
        data[at : at + 4] = struct.pack("<L", 100)
    path.write_bytes(bytes(data))
    with pytest.raises(InputError):
        read(str(path))


def test_encrypted_entries_are_refused(tmp_path: Path) -> None:
    path = Path(packed(tmp_path, {"report.json": REPORT, "claim.json": CLAIM}))
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="encrypted"):
        read(str(path))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_spoilt_zip_is_refused_or_read_whole(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("zip")
    path = Path(packed(folder, {"report.json": REPORT, "claim.json": CLAIM}))
    held = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(held[: data.draw(st.integers(0, len(held)))]) if data.draw(st.booleans()) else bytes(held))
    try:
        assert json.loads(read(str(path))) is not None
    except InputError as err:
        assert "\n" not in str(err)


def test_what_is_not_there_or_no_zip(tmp_path: Path) -> None:
    for text in (b"", b"PK", b"hello"):
        (tmp_path / "x.zip").write_bytes(text)
        with pytest.raises(InputError, match="no sound zip file"):
            read(str(tmp_path / "x.zip"))
    with pytest.raises(InputError, match="no such file"):
        read(str(tmp_path / "nothing.zip"))
