"""`prepare_kth`: the official videos and list into an archive."""

import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from fernn.data import ClipArchive, DataError, _kth, prepare_kth
from fernn.data._sequences import ACTIONS, Sequences, read_sequences

av = pytest.importorskip("av", reason="PyAV, of the extra `kth`, is not installed")


def luma(count: int, height: int = 120, width: int = 160, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (count, height, width), dtype=np.uint8)


def write_avi(
    path: Path, frames: np.ndarray, codec: str = "rawvideo", pixels: str = "yuv420p"
) -> Path:
    """An AVI file with the given luma; uncompressed unless told otherwise, so it decodes to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = frames.shape[1:]
    with av.open(str(path), "w", format="avi") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        for plane in frames:
            chroma = np.full((height // 2, width), 128, np.uint8)
            picture = av.VideoFrame.from_ndarray(np.concatenate([plane, chroma]), format="yuv420p")
            container.mux(stream.encode(picture.reformat(format=pixels)))
        container.mux(stream.encode())
    return path


def write_list(folder: Path, *lines: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00sequences.txt").write_bytes("\r\n".join([*lines, ""]).encode())


def reference_grey(frame: np.ndarray) -> np.ndarray:
    """Area averaging by brute force: every pixel cut into 32×32 pieces, in exact fractions."""
    out = np.zeros((32, 32), dtype=np.uint8)
    fine = frame.astype(np.int64).repeat(32, axis=0).reshape(32, 120, 160).sum(axis=1)
    for row in range(32):
        for column in range(32):
            mean = Fraction(int(fine[row, 5 * column : 5 * column + 5].sum()), 120 * 5)
            grey = (mean - 16) * 255 / 219
            out[row, column] = min(255, max(0, math.floor(grey + Fraction(1, 2))))
    return out


def test_official_list(shared: Path) -> None:
    videos = read_sequences(shared / "kth" / "00sequences.txt")
    assert len(videos) == 600
    assert [video.name for video in videos if not video.ranges] == ["person13_handclapping_d3"]
    ranges = [item for video in videos for item in video.ranges]
    assert len(ranges) == 2391
    assert sum(last - first + 1 < 32 for first, last in ranges) == 21
    assert {video.person for video in videos} == set(range(1, 26))
    assert {video.action for video in videos} == set(ACTIONS)
    assert videos[0] == Sequences(
        "person01_boxing_d1", 1, "boxing", ((1, 95), (96, 185), (186, 245), (246, 360))
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("person01_boxing_d1 frames", "line 2: expected `personPP_ACTION_dD .*again"),
        ("person01_boxing_d1 frames 1-", "got 'person01_boxing_d1 frames 1-'"),
        ("person01_boxing_d5 frames 1-40", "line 2: expected `personPP"),
        ("person01_boxing_d1 1-40", "line 2: expected `personPP"),
        ("person01_boxing_d1 *missing* 1-40", "line 2: expected `personPP"),
        ("person01_boxing_d1 frames 1-1000000", "line 2: expected `personPP"),
        ("../../etc/passwd frames 1-40", "line 2: expected `personPP"),
        ("person26_boxing_d1 frames 1-40", "expected person 01 to 25 and one of walking, "),
        ("person01_dancing_d1 frames 1-40", "expected person 01 to 25 and one of walking, "),
        ("person01_boxing_d1 frames 40-1", "a range must count from 1 upwards, got '40-1'"),
        ("person01_boxing_d1 frames 0-40", "a range must count from 1 upwards, got '0-40'"),
        ("person02_boxing_d1 frames 1-40", "line 2: person02_boxing_d1 is listed twice"),
        ("person01_b\xf6xing_d1 frames 1-40", "line 2: expected `personPP"),
    ],
)
def test_list_out_of_form(line: str, message: str, tmp_path: Path) -> None:
    write_list(tmp_path, "person02_boxing_d1 frames 1-40", line)
    with pytest.raises(DataError, match=rf"00sequences\.txt, .*{message}"):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


def test_list_absent_empty_or_endless(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"00sequences\.txt does not exist; .*fernn data fetch kth"):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    write_list(tmp_path)
    with pytest.raises(DataError, match="lists no video"):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    (tmp_path / "00sequences.txt").write_bytes(b"\n" * (2**20 + 1))
    with pytest.raises(DataError, match="is longer than 1048576 bytes"):
        prepare_kth(tmp_path, tmp_path / "out.npz")


def test_grey_is_the_exact_mean_over_areas() -> None:
    frames = np.concatenate([luma(2), np.full((1, 120, 160), 16), np.full((1, 120, 160), 235)])
    found = _kth._grey(frames.astype(np.uint8))
    for frame, grey in zip(frames, found, strict=True):
        assert np.array_equal(grey, reference_grey(frame))
    assert found[2].max() == 0
    assert found[3].min() == 255
    # A single lit row shows in the two areas that share it, in the ratio of its shares.
    single = np.zeros((1, 120, 160), np.uint8)
    single[0, 3] = 32
    sums = _kth.area_average(single, 32, 32)[0, :, 0]
    assert sums[:3].tolist() == [24 * 32 * 160, 8 * 32 * 160, 0]


def test_prepare(tmp_path: Path) -> None:
    write_list(
        tmp_path,
        "person01_boxing_d1\t\tframes\t1-40, 10-75",
        "",
        "person17_handwaving_d2    \tframes\t3-34",
        "person21_walking_d4\t\tframes\t1-32, 33-63",
        "person13_handclapping_d3\t*missing*",
    )
    boxing, waving, walking = luma(80, seed=1), luma(34, seed=2), luma(70, seed=3)
    write_avi(tmp_path / "person01_boxing_d1_uncomp.avi", boxing)
    write_avi(tmp_path / "handwaving" / "person17_handwaving_d2_uncomp.avi", waving)
    write_avi(tmp_path / "walking" / "person21_walking_d4_uncomp.avi", walking)
    calls = []
    summary = prepare_kth(tmp_path, tmp_path / "out.npz", lambda *call: calls.append(call))
    archive = ClipArchive.load(tmp_path / "out.npz")
    assert archive.name == "kth"
    assert archive.classes == ACTIONS
    assert archive.clip == (*["person01_boxing_d1"] * 2, "person17_handwaving_d2", archive.clip[3])
    assert archive.length.tolist() == [40, 66, 32, 32]
    assert archive.start.tolist() == [1, 10, 3, 1]
    assert archive.label.tolist() == [3, 3, 4, 0]
    assert archive.subject.tolist() == [1, 1, 17, 21]
    assert archive.split == ("train", "train", "val", "test")
    assert np.array_equal(archive[1].numpy(), _kth._grey(boxing[9:75]))
    assert np.array_equal(archive[2].numpy(), _kth._grey(waving[2:34]))
    assert (summary.clips, summary.frames, summary.videos) == (4, 170, 3)
    assert [str(item) for item in summary.of_kind("short")] == ["person21_walking_d4 (33-63)"]
    assert len(summary.left_out) == 2
    text = str(summary)
    for part in (
        "out.npz: 4 clips, 170 frames, from 3 videos",
        "train 2, val 1, test 1",
        "not the official list: 5 ranges of 3 videos",
        "listed as missing: 1\n    person13_handclapping_d3",
        "ranges shorter than 32 frames: 1",
    ):
        assert part in text
    assert calls == [
        (0, 4, "person01_boxing_d1"),
        (1, 4, "person17_handwaving_d2"),
        (2, 4, "person21_walking_d4"),
        (3, 4, "person13_handclapping_d3"),
        (4, 4, "writing"),
    ]
    again = tmp_path / "again.npz"
    prepare_kth(tmp_path, again)
    assert again.read_bytes() == (tmp_path / "out.npz").read_bytes()


def test_people_are_split_16_4_5() -> None:
    splits = [_kth.split_of(person) for person in range(1, 26)]
    assert splits == ["train"] * 16 + ["val"] * 4 + ["test"] * 5


def test_prepare_skips_and_names_what_is_wrong(tmp_path: Path) -> None:
    names = [f"person{person:02}_boxing_d1" for person in range(1, 9)]
    write_list(tmp_path, *[f"{name} frames 1-40, 41-80" for name in names])
    good, cut, text, large, grey, audio, ends, garbled = (
        tmp_path / f"{name}_uncomp.avi" for name in names
    )
    write_avi(good, luma(80))
    whole = write_avi(cut, luma(80)).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    text.write_text("not a video at all")
    write_avi(large, luma(80, 240, 320))
    write_avi(grey, luma(80), "mjpeg", "yuvj420p")
    write_avi(ends, luma(79))
    garbled.write_bytes(whole[:12] + bytes(len(whole) - 12))
    with av.open(str(audio), "w", format="avi") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        stream.layout = "mono"
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
    (tmp_path / "holiday.avi").write_bytes(b"")
    summary = prepare_kth(tmp_path, tmp_path / "out.npz")
    assert (summary.clips, summary.videos) == (3, 2)
    damaged = {item.name: item.detail for item in summary.of_kind("damaged")}
    for name, detail in zip(
        [names[i] for i in (1, 2, 3, 4, 5, 7)],
        [
            r"truncated: \d+ of the \d+ bytes that its header promises",
            "foreign: not an AVI file",
            "foreign: yuv420p 320x240, KTH is yuv420p 160x120",
            "foreign: yuvj420p 160x120",
            "foreign: no video inside",
            "cannot be decoded: .+|foreign: no video inside",
        ],
        strict=True,
    ):
        assert re.match(detail, damaged.pop(name))
    assert not damaged
    beyond = [str(item) for item in summary.of_kind("beyond")]
    assert beyond == ["person07_boxing_d1 (41-80 of 79 frames)"]
    assert [item.name for item in summary.of_kind("unlisted")] == ["holiday.avi"]
    assert "truncated, foreign or unreadable: 6\n    person02_boxing_d1 (trunc" in str(summary)
    assert len(ClipArchive.load(tmp_path / "out.npz")) == 3


def test_prepare_without_a_single_clip(tmp_path: Path) -> None:
    write_list(tmp_path, *[f"person{person:02}_boxing_d1 frames 1-40" for person in range(1, 9)])
    (tmp_path / "out.npz").write_bytes(b"old")
    with pytest.raises(DataError, match=r"(?s)gives no clip.*not in the source: 8.*and 3 more"):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("out", ["nowhere/out.npz", "."])
def test_prepare_into_nowhere_fails_before_decoding(out: str, tmp_path: Path) -> None:
    write_list(tmp_path, "person01_boxing_d1 frames 1-40")
    with pytest.raises(DataError, match="`out` must be a file in a folder that can be written to"):
        prepare_kth(tmp_path, tmp_path / out, progress=lambda *call: pytest.fail("too late"))


def test_prepare_leaves_nothing_when_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_list(tmp_path, "person01_boxing_d1 frames 1-40")
    write_avi(tmp_path / "person01_boxing_d1_uncomp.avi", luma(40))
    before = sorted(tmp_path.iterdir())

    def interrupt(file, **arrays) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    assert sorted(tmp_path.iterdir()) == before


def test_prepare_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"`prepare_kth` needs PyAV.*pip install fernn\[kth\]"):
        prepare_kth(tmp_path, tmp_path / "out.npz")


def test_real_video(shared: Path, tmp_path: Path) -> None:
    summary = prepare_kth(shared / "kth", tmp_path / "out.npz")
    assert (summary.clips, summary.frames, summary.videos) == (4, 360, 1)
    assert (summary.listed_videos, summary.listed_ranges) == (599, 2391)
    assert [item.name for item in summary.of_kind("missing")] == ["person13_handclapping_d3"]
    assert len(summary.of_kind("absent")) == 598
    assert "not the official list" not in str(summary)
    archive = ClipArchive.load(tmp_path / "out.npz")
    assert archive.length.tolist() == [95, 90, 60, 115]
    assert archive.frames.shape == (360, 32, 32)
    # FFmpeg's own conversion to grey, averaged by PyTorch: other code, the same picture.
    with av.open(str(shared / "kth" / "person01_boxing_d1_uncomp.avi")) as container:
        grey = np.stack([f.to_ndarray(format="gray") for f in container.decode(video=0)])
    fine = torch.from_numpy(grey).repeat_interleave(4, 1)[:, None].double()
    means = torch.nn.functional.avg_pool2d(fine, (15, 5))[:, 0]
    assert (archive.frames - means).abs().max() < 1.0


def test_real_video_truncated(shared: Path, tmp_path: Path) -> None:
    name = "person01_boxing_d1_uncomp.avi"
    (tmp_path / name).write_bytes((shared / "kth" / name).read_bytes()[:1_000_000])
    write_list(tmp_path, "person01_boxing_d1 frames 1-95")
    with pytest.raises(DataError, match="truncated: 1000000 of the 1617926 bytes"):
        prepare_kth(tmp_path, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()
