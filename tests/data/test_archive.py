"""`ClipArchive`: one format for labelled clips."""

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy

from fernn.data import ClipArchive, DataError, _npz

LENGTHS = (3, 1, 4)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


def arrays() -> dict[str, np.ndarray]:
    """A valid archive of three clips of different lengths, 5×6."""
    frames = np.arange(sum(LENGTHS) * 30).astype(np.uint8).reshape(-1, 5, 6)
    return {
        "frames": frames,
        "length": np.array(LENGTHS),
        "label": np.array([1, 0, 1]),
        "subject": np.array([7, 8, 9]),
        "clip": np.array(["a", "b", "a"]),
        "start": np.array([1, 10, 20]),
        "split": np.array(["train", "val", "train"]),
        "classes": np.array(["walk", "run"]),
        "name": np.array("tiny"),
    }


def write(path: Path, **changes: np.ndarray | None) -> Path:
    """Writes `arrays()` with some changed, or removed by None."""
    kept = {key: value for key, value in (arrays() | changes).items() if value is not None}
    np.savez_compressed(path, **kept)
    return path


def assert_equal(one: ClipArchive, other: ClipArchive) -> None:
    for key in ("frames", "length", "label", "subject", "start"):
        assert torch.equal(getattr(one, key), getattr(other, key)), key
    for key in ("name", "clip", "split", "classes"):
        assert getattr(one, key) == getattr(other, key), key


def test_clips_of_different_lengths(tmp_path: Path) -> None:
    archive = ClipArchive.load(write(tmp_path / "a.npz"))
    assert len(archive) == 3
    assert archive.name == "tiny"
    assert archive.classes == ("walk", "run")
    assert archive.offset.tolist() == [0, 3, 4]
    for index, frames in enumerate(np.split(arrays()["frames"], [3, 4])):
        assert np.array_equal(archive[index].numpy(), frames)
    assert [len(clip) for clip in archive] == list(LENGTHS)
    assert archive.indices("train").tolist() == [0, 2]
    assert archive.indices("test").tolist() == []
    with pytest.raises(DataError, match="`split` must be one of train, val, test, got 'valid'"):
        archive.indices("valid")


def test_clips_of_one_length_are_the_uniform_case(tmp_path: Path) -> None:
    frames = np.arange(3 * 4 * 30).astype(np.uint8).reshape(3, 4, 5, 6)
    archive = ClipArchive.load(write(tmp_path / "even.npz", frames=frames, length=None, name=None))
    assert archive.name == "even"  # that of the file
    assert archive.length.tolist() == [4, 4, 4]
    assert np.array_equal(archive[2].numpy(), frames[2])


def test_sha256_is_of_what_is_learned_and_not_of_names(tmp_path: Path) -> None:
    def digest(**changes: np.ndarray | None) -> str:
        return ClipArchive.load(write(tmp_path / "a.npz", **changes)).sha256

    frames = arrays()["frames"]
    frames[-1, -1, -1] += 1
    unlike = {
        digest(),
        digest(frames=frames),
        digest(length=np.array([1, 3, 4])),
        digest(label=np.array([0, 0, 1])),
        digest(split=np.array(["train", "test", "train"])),
        digest(classes=np.array(["walk", "jump"])),
    }
    assert len(unlike) == 6
    assert digest(name=np.array("other"), clip=np.array(["x", "y", "z"])) == digest()


def test_sha256_of_the_stand_in_is_that_of_the_results(shared: Path) -> None:
    archive = ClipArchive.load(shared / "actions" / "mocap_actions.npz")
    about = Path(__file__).parents[2] / "results" / "README.md"
    assert f"`{archive.sha256}`" in about.read_text(encoding="utf-8")


@pytest.mark.parametrize("uniform", [False, True])
def test_save_then_load(uniform: bool, tmp_path: Path) -> None:
    changes = {"frames": np.zeros((3, 4, 5, 6), np.uint8), "length": None} if uniform else {}
    archive = ClipArchive.load(write(tmp_path / "a.npz", **changes))
    archive.save(tmp_path / "b.npz")
    assert_equal(archive, ClipArchive.load(tmp_path / "b.npz"))
    with np.load(tmp_path / "b.npz", allow_pickle=False) as plain:
        assert plain["frames"].ndim == (4 if uniform else 3)
        assert ("length" in plain) is not uniform
    archive.save(tmp_path / "c.npz")
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()


def test_the_stand_in_loads_as_it_is(shared: Path) -> None:
    archive = ClipArchive.load(shared / "actions" / "mocap_actions.npz")
    assert archive.name == "mocap_actions"
    assert archive.frames.shape == (1494 * 32, 32, 32)
    assert archive.classes == ("walk", "run", "jump", "box", "signal", "dance")
    counts = [len(archive.indices(split)) for split in ("train", "val", "test")]
    assert counts == [956, 219, 319]
    assert archive[1493].shape == (32, 32, 32)


def test_the_name_of_a_file_makes_no_kth_of_it(tmp_path: Path) -> None:
    assert ClipArchive.load(write(tmp_path / "kth.npz", name=None)).name == "unnamed clips"
    assert ClipArchive.load(write(tmp_path / "other.npz", name=None)).name == "other"


def test_save_keeps_the_old_file_on_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.npz")
    before = path.read_bytes()
    archive = ClipArchive.load(path)

    def fill_the_disk(file, **arrays) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fill_the_disk)
    with pytest.raises(DataError, match=r"a\.npz cannot be written: No space left"):
        archive.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_into_nowhere(tmp_path: Path) -> None:
    archive = ClipArchive.load(write(tmp_path / "a.npz"))
    with pytest.raises(DataError, match="cannot be written: No such file or directory"):
        archive.save(tmp_path / "nowhere" / "a.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": None, "person": np.ones(3)}, "has type float64, expected integers or text"),
        ({"split": None}, r"`keys` must be frames, .*; absent \['split'\], unknown \[\]"),
        ({"person": np.ones(3, int)}, r"absent \[\], unknown \['person'\]"),
        ({"length": None}, r"`frames` must be .* got \[8, 5, 6\] without `length`"),
        ({"frames": np.zeros((3, 1, 5, 6), np.uint8)}, r"got \[3, 1, 5, 6\] with `length`"),
        ({"frames": np.zeros((8, 30), np.uint8)}, r"`frames` must be .* got \[8, 30\]"),
        ({"frames": np.zeros((8, 5, 6), np.int16)}, "`frames` must be uint8, got int16"),
        ({"label": np.array([0, 1, 2])}, "`label` must be in 0 to 1, .* got 0 to 2"),
        ({"label": np.array([0, -1, 1])}, "`label` must be in 0 to 1, .* got -1 to 1"),
        ({"label": np.array([0, 1])}, "must have one entry for each of the 2 labels, got 3"),
        ({"label": np.zeros(3, np.int32)}, r"`label` must be int64 \[N\], got int32 \[3\]"),
        ({"label": np.zeros((3, 1), int)}, r"`label` must be int64 \[N\], got int64 \[3, 1\]"),
        ({"subject": np.array([1, 2])}, "`subject` must have one entry .* 3 labels, got 2"),
        ({"subject": np.array([7, 7, 7])}, "got subject 7 in both train and val"),
        ({"clip": np.array([1, 2, 3])}, r"`clip` must be text of 1 dimensions, got int64 \[3\]"),
        ({"split": np.array(["train", "valid", "train"])}, r"`split` must be .* got \['valid'\]"),
        ({"classes": np.array(["a", "a"])}, "`classes` must differ from each other"),
        ({"length": np.array([3, 1, 3])}, "add up to the 8 frames, got 1 to 3, 7 together"),
        ({"length": np.array([8, 0, 0])}, "`length` must be positive"),
        ({"length": np.array([2**62, 2**62, 2**62])}, "`length` must be positive and add up"),
        ({"frames": np.zeros((0, 5, 6), np.uint8)}, r"shape \[0, 5, 6\], .* none of them empty"),
        ({"label": np.array([0, 1, 1], dtype=object)}, "has type object, expected integers or"),
        ({"name": np.array(["a"])}, r"`name` must be text of 0 dimensions, got <U1 \[1\]"),
    ],
)
def test_load_refuses(changes: dict, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.npz", **changes)
    with pytest.raises(DataError, match=rf"bad\.npz.*{message}"):
        ClipArchive.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"frames": torch.zeros(1, 2, 2)},
            r"torch.uint8 \[F, H, W\], got torch.float32 \[1, 2, 2\]",
        ),
        ({"frames": np.zeros((1, 2, 2), np.uint8)}, r"torch.uint8 \[F, H, W\], got ndarray"),
        (
            {"label": torch.tensor([0], dtype=torch.int32)},
            r"torch.int64 \[N\], got torch.int32 \[1\]",
        ),
        ({"label": torch.tensor([0.0])}, r"torch.int64 \[N\], got torch.float32 \[1\]"),
        ({"label": [0]}, r"torch.int64 \[N\], got list"),
        ({"subject": torch.tensor([[0]])}, r"torch.int64 \[N\], got torch.int64 \[1, 1\]"),
        ({"start": None}, r"torch.int64 \[N\], got NoneType"),
        ({"length": torch.tensor([1.0])}, r"torch.int64 \[N\], got torch.float32 \[1\]"),
        ({"length": 1}, r"torch.int64 \[N\], got int"),
    ],
)
def test_construction_is_checked_too(changes: dict, message: str) -> None:
    (key,) = changes
    right = {key: torch.tensor([1]) for key in ("length", "subject", "start")} | {
        "name": "x",
        "classes": ("a",),
        "frames": torch.zeros(1, 2, 2, dtype=torch.uint8),
        "label": torch.tensor([0]),
        "clip": ("c",),
        "split": ("train",),
    }
    assert len(ClipArchive(**right)) == 1
    with pytest.raises(DataError, match=rf"`{key}` must be a tensor, {message}\."):
        ClipArchive(**right | changes)


def test_load_absent_or_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npz does not exist"):
        ClipArchive.load(tmp_path / "absent.npz")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        ClipArchive.load(tmp_path)


def zip_of(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def npy_of(shape: tuple[int, ...], descr: str, values: bytes) -> bytes:
    stream = io.BytesIO()
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(stream, fields)
    return stream.getvalue() + values


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"readme.txt": b"hello"}, "holds 'readme.txt', expected .npy arrays alone"),
        ({"frames.npy": b"hello"}, "frames.npy is not an array"),
        ({"frames.npy": b"\x93NUMPY\1\0\4\0((((" + bytes(9)}, "frames.npy is not an array"),
        ({"frames.npy": npy_of((2**40,), "|u1", bytes(9))}, "1099511627776 bytes, but 9 follow"),
        ({"frames.npy": npy_of((-1,), "|u1", b"")}, r"shape \[-1\]"),
        ({"frames.npy": npy_of((1,), "<U0", b"")}, "has type <U0"),
        ({"frames.npy": npy_of((1,) * 5, "|u1", b"1")}, "at most 4 dimensions"),
    ],
)
def test_load_refuses_crafted_zip(members: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        ClipArchive.load(zip_of(tmp_path / "bad.npz", members))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({6: 99}, "damaged one .zip file version 9.9"),
        ({9: 8, 46: 0xFF}, "damaged one .'utf-8' codec"),  # a name that is not the UTF-8 it says
        ({20: 1}, "damaged one"),  # the packed size
        ({42: 255}, "damaged one"),  # where the member begins
    ],
)
def test_load_refuses_a_damaged_directory(changes: dict, message: str, tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "bad.npz").read_bytes())
    directory = data.index(b"PK\1\2")
    for offset, value in changes.items():
        data[directory + offset] = value
    (tmp_path / "bad.npz").write_bytes(data)
    with pytest.raises(DataError, match=message):
        ClipArchive.load(tmp_path / "bad.npz")


def test_load_refuses_unknown_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.npz", clip=None)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("clip.npy", npy_of((3,), "<U1", b"\xff" * 12))
    with pytest.raises(DataError, match="`clip` must be text, got characters that do not exist"):
        ClipArchive.load(path)


def test_load_refuses_other_packing_and_bombs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = {"frames.npy": npy_of((9,), "|u1", bytes(9))}
    with pytest.raises(DataError, match="packed by another method than deflate"):
        ClipArchive.load(zip_of(tmp_path / "lzma.npz", member, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as file:
        file.writestr("frames.npy", member["frames.npy"])
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("frames.npy", member["frames.npy"])
    with pytest.raises(DataError, match="holds an array twice"):
        ClipArchive.load(tmp_path / "twice.npz")
    monkeypatch.setattr(_npz, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="claims more than 100 bytes"):
        ClipArchive.load(write(tmp_path / "large.npz"))


def test_load_refuses_a_size_that_cannot_be(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "bad.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "bad.npz") as file:
        size = file.getinfo("frames.npy").file_size
    directory = data.index(b"PK\1\2")
    assert int.from_bytes(data[directory + 24 : directory + 28], "little") == size
    data[directory + 24 : directory + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "bad.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"claims 2147483648 bytes out of \d+, which no zip file"):
        ClipArchive.load(tmp_path / "bad.npz")


@given(
    start=st.sampled_from([b"", b"PK\3\4", b"\x93NUMPY\1\0", b"PK\5\6"]),
    rest=st.binary(max_size=80),
)
def test_load_survives_random_bytes(scratch: Path, start: bytes, rest: bytes) -> None:
    (scratch / "r.npz").write_bytes(start + rest)
    with pytest.raises(DataError, match=r"r\.npz"):
        ClipArchive.load(scratch / "r.npz")


@pytest.fixture(scope="module")
def whole(scratch: Path) -> bytes:
    # Stored and not packed, so that damage reaches the headers of the arrays.
    path = scratch / "whole.npz"
    np.savez(path, **arrays())
    return path.read_bytes()


@given(data=st.data())
def test_load_survives_truncation(scratch: Path, whole: bytes, data: st.DataObject) -> None:
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    (scratch / "cut.npz").write_bytes(cut)
    with pytest.raises(DataError, match=r"cut\.npz"):
        ClipArchive.load(scratch / "cut.npz")


@given(data=st.data())
def test_load_survives_damage(scratch: Path, whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    directory = whole.index(b"PK\1\2")
    # Half of the places in the directory of the zip file, where the parser believes most.
    places = st.integers(0, len(whole) - 1) | st.integers(directory, len(whole) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    (scratch / "damaged.npz").write_bytes(damaged)
    with contextlib.suppress(DataError):  # and nothing else
        ClipArchive.load(scratch / "damaged.npz")


@given(shape=st.lists(st.integers(-2, 2**70), max_size=6), text=st.text(max_size=12))
def test_load_survives_strange_arrays(scratch: Path, shape: list[int], text: str) -> None:
    fields = repr({"descr": text or "|u1", "fortran_order": False, "shape": tuple(shape)})
    head = fields.encode() + b"\n"
    member = b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + bytes(8)
    zip_of(scratch / "s.npz", {"frames.npy": member})
    with pytest.raises(DataError, match=r"s\.npz"):
        ClipArchive.load(scratch / "s.npz")
