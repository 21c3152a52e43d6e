"""`load_digits` and the strict IDX reader."""

import gzip
import hashlib
import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fernn.data import DataError, _digits, _idx, load_digits, read_idx
from fernn.data._idx import idx_bytes
from fernn.data.embedded.build import build, choose

PACKED = sorted(_digits.EMBEDDED_FOLDER.glob("*.gz"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx")


def header(*sizes: int, magic: bytes = b"\0\0\x08") -> bytes:
    return magic + struct.pack(f">B{len(sizes)}I", len(sizes), *sizes)


@pytest.mark.parametrize(("train", "per_class"), [(True, 600), (False, 100)])
def test_embedded_digits(train: bool, per_class: int) -> None:
    digits = load_digits(train=train)
    assert digits.images.shape == (10 * per_class, 28, 28)
    assert digits.images.dtype == torch.uint8
    assert digits.labels.dtype == torch.int64
    assert digits.labels.bincount().tolist() == [per_class] * 10
    assert len(digits) == 10 * per_class
    assert digits.source.startswith("embedded MNIST subset")
    # The official order is kept, so the classes are mixed.
    assert digits.labels[:20].unique().numel() > 5


def test_embedded_digits_are_small_and_attributed() -> None:
    assert len(PACKED) == 4
    assert sum(path.stat().st_size for path in PACKED) < 1_500_000
    attribution = (_digits.EMBEDDED_FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")
    for word in ("Yann LeCun", "Corinna Cortes", "Attribution-ShareAlike 3.0", "NIST"):
        assert word in attribution


def test_embedded_digits_are_those_recorded() -> None:
    for file in _digits.EMBEDDED:
        data = gzip.decompress((_digits.EMBEDDED_FOLDER / f"{file.name}.gz").read_bytes())
        assert hashlib.sha256(data).hexdigest() == file.sha256


def test_embedded_digits_can_be_built_again(shared: Path, tmp_path: Path) -> None:
    sums = build(shared / "mnist", tmp_path)
    assert sums == {file.name: file.sha256 for file in _digits.EMBEDDED}
    for path in PACKED:
        again = (tmp_path / path.name).read_bytes()
        assert gzip.decompress(again) == gzip.decompress(path.read_bytes())
        if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng packs the same bytes otherwise
            assert again == path.read_bytes()


def test_choose_is_even_and_in_order() -> None:
    labels = np.tile(np.arange(10, dtype=np.uint8), 7)
    chosen = choose(labels, per_class=2)
    assert chosen.tolist() == [*range(10), *range(30, 40)]


def test_official_digits_contain_the_embedded_ones(shared: Path) -> None:
    official, embedded = load_digits(shared / "mnist", train=False), load_digits(train=False)
    assert official.images.shape == (10000, 28, 28)
    assert official.labels[:5].tolist() == [7, 2, 1, 0, 4]
    chosen = choose(official.labels.numpy().astype(np.uint8), per_class=100)
    assert torch.equal(official.images[chosen], embedded.images)
    assert torch.equal(official.labels[chosen], embedded.labels)


def test_root_may_hold_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_digits, "OFFICIAL", _digits.EMBEDDED)
    for path in PACKED:
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for train in (True, False):
        assert torch.equal(load_digits(tmp_path, train).images, load_digits(train=train).images)


def test_root_without_the_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"`root` must be .* train-images.*fernn data fetch mnist"):
        load_digits(tmp_path)
    with pytest.raises(DataError, match=r"found neither in .*nowhere"):
        load_digits(tmp_path / "nowhere")


def test_root_with_other_digits(tmp_path: Path) -> None:
    other = np.zeros((60000, 28, 28), dtype=np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(other))
    expected = r"idx3-ubyte has SHA-256 \w{64} .*expected ba891046\w{56}; .*download"
    with pytest.raises(DataError, match=expected):
        load_digits(tmp_path)


def test_root_with_the_files_of_another_split(shared: Path, tmp_path: Path) -> None:
    test_images = shared / "mnist" / "t10k-images-idx3-ubyte.gz"
    (tmp_path / "train-images-idx3-ubyte.gz").symlink_to(test_images)
    with pytest.raises(DataError, match=r"\(10000, 28, 28\), expected \(60000, 28, 28\); is it"):
        load_digits(tmp_path)


def test_root_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by chmod, which does not stop root.
    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(DataError, match=r"`root` .* cannot be read: Permission denied"):
        load_digits(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "digits"
    path.write_bytes(header(1) + b"\0")
    path.chmod(0)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read_idx(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_read_idx(pack, tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a").write_bytes(pack(idx_bytes(array)))
    found = read_idx(tmp_path / "a", shape=(2, 3, 4))
    assert found.dtype == np.uint8
    assert np.array_equal(found, array)
    assert torch.from_numpy(found).shape == (2, 3, 4)  # writable, else torch warns


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not an IDX file: it begins with 0x,"),
        (b"RIFF....", "is not an IDX file: it begins with 0x52494646"),
        (header(1, magic=b"\0\0\x0d") + bytes(4), "IDX type 0x0d, expected 0x08"),
        (header(*[1] * 5) + b"\0", "has 5 dimensions, expected 1 to 4"),
        (header(), "has 0 dimensions"),
        (header(3, 28, 28)[:-1], "ends inside its header"),
        (
            header(3, 28, 28) + bytes(3 * 784 - 1),
            "header promises 2352 bytes of values, found 2351",
        ),
        (header(2, 28, 28) + bytes(3 * 784), "goes on after the 1568 bytes of values"),
        (header(3, 0, 28), r"shape \(3, 0, 28\), 0 bytes, expected 1 to"),
        (header(*[2**32 - 1] * 4), "the header is damaged or the file is not MNIST"),
    ],
)
def test_read_idx_refuses(data: bytes, message: str, pack, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(pack(data))
    with pytest.raises(DataError, match=rf"bad .*{message}"):
        read_idx(tmp_path / "bad")


def test_read_idx_absent_or_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent does not exist"):
        read_idx(tmp_path / "absent")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_idx(tmp_path)


@pytest.mark.parametrize("cut", [1, 5, 20, 400])
def test_read_idx_truncated_gzip(cut: int, tmp_path: Path) -> None:
    packed = (_digits.EMBEDDED_FOLDER / "t10k-labels-idx1-ubyte.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(packed[:-cut])
    with pytest.raises(DataError, match="truncated or damaged gzip"):
        read_idx(tmp_path / "cut.gz")


def test_read_idx_damaged_gzip(tmp_path: Path) -> None:
    packed = bytearray((_digits.EMBEDDED_FOLDER / "t10k-labels-idx1-ubyte.gz").read_bytes())
    packed[-6] ^= 1  # in the checksum
    (tmp_path / "bad.gz").write_bytes(packed)
    with pytest.raises(DataError, match=r"truncated or damaged gzip.*CRC"):
        read_idx(tmp_path / "bad.gz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(10) + bytes(2**26), "goes on after the 10 bytes"),  # a bomb behind a small header
        (header(_idx.MAX_BYTES) + bytes(10), "header promises 268435456 bytes of values, found 10"),
    ],
)
def test_read_idx_allocates_what_is_there(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(data, compresslevel=1))
    del data
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            read_idx(tmp_path / "bomb.gz")
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def check_reader(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        found = read_idx(path)
    except DataError:  # and nothing else
        return
    assert idx_bytes(found) == (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


@given(
    start=st.sampled_from([b"", b"\0\0\x08", b"\x1f\x8b", b"\x1f\x8b\x08\0", header(2, 2)]),
    rest=st.binary(max_size=64),
)
def test_read_idx_survives_random_bytes(scratch: Path, start: bytes, rest: bytes) -> None:
    check_reader(scratch / "random", start + rest)


@given(data=st.data(), packed=st.booleans())
def test_read_idx_survives_damage(scratch: Path, data: st.DataObject, packed: bool) -> None:
    whole = idx_bytes(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
    whole = gzip.compress(whole, mtime=0) if packed else whole
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        if place < len(damaged):
            damaged[place] = data.draw(st.integers(0, 255))
    check_reader(scratch / "damaged", bytes(damaged))


def test_import_needs_torch_and_numpy_alone() -> None:
    code = "import sys, fernn.data; print(*{'av', 'rich', 'typer', 'matplotlib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
