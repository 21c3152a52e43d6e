"""Zip files that unpack into their folder alone, within limits, or not at all."""

import stat
import zipfile
from pathlib import Path

import pytest
from folders import names, zip_bytes

from fernn.data import DataError
from fernn.data._files import silent
from fernn.data._unpack import check_zip, unpack


def entry(name: str, mode: int = 0, system: int = 3) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = system, mode << 16
    return info


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        (entry("/etc/passwd"), "leads out of its folder"),
        (entry("../up"), "leads out of its folder"),
        (entry("a/../../up"), "leads out of its folder"),
        (entry("..\\up"), "leads out of its folder"),
        (entry("C:/up"), "leads out of its folder"),
        (entry("a\x1b[2Kb"), "hides a part of its name"),
        (entry("a\u202egpj.b"), "hides a part of its name"),
        (entry("link", stat.S_IFLNK | 0o777), "is neither a file nor a folder"),
        (entry("pipe", stat.S_IFIFO | 0o666), "is neither a file nor a folder"),
        (entry("GOOD"), "is there twice"),
    ],
)
def test_unpack_refuses_entries(info: zipfile.ZipInfo, problem: str, tmp_path: Path) -> None:
    archive, target = tmp_path / "a.zip", tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("good", b"1")
        file.writestr(info, b"/etc")
    with pytest.raises(DataError, match=rf"a\.zip has an entry .* that {problem}; nothing was"):
        unpack(archive, target, 1000, silent)
    assert names(tmp_path) == ["a.zip", "deep", "deep/target"]


def test_unpack_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, target = tmp_path / "a.zip", tmp_path / "target"
    target.mkdir()
    archive.write_bytes(zip_bytes({"a": bytes(600), "b/c": bytes(400)}))
    with pytest.raises(DataError, match="unpacks to 1000 bytes, expected at most 999"):
        unpack(archive, target, 999, silent)
    assert names(target) == []
    assert sorted(unpack(archive, target, 1000, silent)) == [target / "a", target / "b" / "c"]
    monkeypatch.setattr("fernn.data._unpack.MAX_ENTRIES", 1)
    with pytest.raises(DataError, match="has 2 entries, expected at most 1"):
        unpack(archive, target, 1000, silent)


def test_unpack_refuses_a_size_that_lies(tmp_path: Path) -> None:
    # The directory says 10 bytes where a million follow: no more than 10 are unpacked.
    data = bytearray(zip_bytes({"bomb": bytes(1_000_000)}))
    directory = data.index(b"PK\1\2")
    data[directory + 24 : directory + 28] = (10).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"truncated or damaged zip file .*CRC"):
        unpack(tmp_path / "a.zip", tmp_path, 100, silent)
    assert (tmp_path / "bomb").stat().st_size <= 10


def test_check_zip_finds_a_wrong_byte(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a", b"hello world")
    check_zip(tmp_path / "a.zip", 100)
    data = (tmp_path / "a.zip").read_bytes().replace(b"hello", b"hallo")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match="bad checksum of a"):
        check_zip(tmp_path / "a.zip", 100)


def test_unpack_refuses_a_file_that_is_also_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"x": b"1", "x/y": b"2"}))
    (tmp_path / "target").mkdir()
    with pytest.raises(DataError, match=r"a\.zip cannot be unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "target", 100, silent)
