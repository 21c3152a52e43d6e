"""`fetch` of KTH: the list of videos and six zip files, whole or damaged."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from folders import fill, names, zip_bytes

from fernn.data import DataError, _fetch, fetch
from fernn.data._sequences import ACTIONS


@pytest.fixture
def tiny_kth(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A list of two videos for each action, and the six zip files."""
    monkeypatch.setattr(_fetch, "OFFICIAL_VIDEOS", 12)
    monkeypatch.setattr(_fetch, "OFFICIAL_RANGES", 24)
    lines, files = ["person13_handclapping_d3\t*missing*"], {}
    for action in ACTIONS:
        videos = [f"person{person:02}_{action}_d1" for person in (1, 2)]
        lines += [f"{video}\tframes\t1-40, 41-90" for video in videos]
        # One of them has a folder inside, as zip files found elsewhere do.
        inside = f"{action}/" if action == "boxing" else ""
        files[f"{action}.zip"] = zip_bytes(
            {f"{inside}{video}_uncomp.avi": video.encode() for video in videos}
        )
    return {"00sequences.txt": "\r\n".join(lines).encode(), **files}


def kth_names() -> list[str]:
    videos = [f"{a}/person{p:02}_{a}_d1_uncomp.avi" for a in ACTIONS for p in (1, 2)]
    return sorted(["00sequences.txt", *ACTIONS, *videos])


def test_kth(site, tiny_kth, tmp_path: Path) -> None:
    url, folder, requests = site
    fill(folder, tiny_kth)
    root = tmp_path / "root"
    fill(root / ".fernn-unpack-dead", {"half": b""})
    fill(root, {"00sequences.txt": tiny_kth["00sequences.txt"][:200]})
    calls = []
    fetch("kth", root, lambda *call: calls.append(call), mirrors=[url])
    assert names(root) == kth_names()
    video = root / "walking" / "person02_walking_d1_uncomp.avi"
    assert video.read_bytes() == b"person02_walking_d1"
    assert (2, 2, "unpacking walking.zip") in calls
    assert len(requests) == 7
    shutil.rmtree(root / "running")
    fetch("kth", root, mirrors=[url])
    assert requests[7:] == ["/running.zip"]
    assert names(root) == kth_names()


def test_kth_from_zip_files_put_there_by_hand(site, tiny_kth, tmp_path: Path) -> None:
    fill(tmp_path / "root", tiny_kth)
    fetch("kth", tmp_path / "root", mirrors=[site[0]])
    assert site[2] == []
    zips = [name for name in tiny_kth if name.endswith(".zip")]
    assert names(tmp_path / "root") == sorted([*kth_names(), *zips])


def test_kth_list_of_another_length(site, tiny_kth, tmp_path: Path, monkeypatch) -> None:
    fill(site[1], tiny_kth)
    monkeypatch.setattr(_fetch, "OFFICIAL_RANGES", 2391)
    with pytest.raises(DataError, match="lists 24 ranges of 12 videos, expected 2391 of 12"):
        fetch("kth", tmp_path / "root", mirrors=[site[0]])
    assert names(tmp_path / "root") == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: zip_bytes({"person01_walking_d1_uncomp.avi": b"v"}), "lacks 1 of 2 videos"),
        (lambda data: data[:-5], "truncated or damaged zip file"),
        (lambda data: data.replace(b"person01_walking_d1", b"../../../walking_d1"), "leads out of"),
        (lambda data: b"<html>moved</html>", "not a zip file"),
    ],
)
def test_kth_bad_zip(damage: Callable, message: str, site, tiny_kth, tmp_path: Path) -> None:
    fill(site[1], tiny_kth | {"walking.zip": damage(tiny_kth["walking.zip"])})
    with pytest.raises(DataError, match=message):
        fetch("kth", tmp_path / "root", mirrors=[site[0]])
    assert names(tmp_path / "root") == ["00sequences.txt"]
    assert names(tmp_path) == sorted(["root", "root/00sequences.txt", *names_of_site(site[1])])


def names_of_site(folder: Path) -> list[str]:
    return ["site", *[f"site/{name}" for name in names(folder)]]
