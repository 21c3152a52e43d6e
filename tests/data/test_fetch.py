"""`fetch`: what it downloads, repairs and keeps, and what it says when it cannot."""

import gzip
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from folders import fill, names

from fernn.data import DataError, _digits, _download, _fetch, fetch
from fernn.data._files import silent
from fernn.data._idx import idx_bytes


def test_mirrors_are_public() -> None:
    assert all(url.startswith("https://") for urls in _fetch.MIRRORS.values() for url in urls)
    assert len(_fetch.MIRRORS["mnist"]) == 2


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`name` must be one of mnist, kth, got 'cifar'"):
        fetch("cifar", tmp_path)


def test_mnist(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, requests = site
    fill(folder, tiny_mnist)
    calls = []
    root = fetch("mnist", tmp_path / "a" / "b", lambda *call: calls.append(call), mirrors=[url])
    assert root == tmp_path / "a" / "b"
    assert names(root) == sorted(tiny_mnist)
    assert all((root / name).read_bytes() == data for name, data in tiny_mnist.items())
    for name, data in tiny_mnist.items():
        assert (len(data), len(data), name) in calls
    assert len(_digits.load_digits(root, train=False)) == 4
    fetch("mnist", root, mirrors=[url])
    assert len(requests) == 4  # what is there is not asked for again


def test_mnist_for_real(site, shared: Path, tmp_path: Path) -> None:
    url, folder, _ = site
    (folder / "mnist").symlink_to(shared / "mnist")
    root = fetch("mnist", tmp_path / "root", mirrors=[url + "mnist"])
    assert len(_digits.load_digits(root)) == 60000


def test_mnist_repairs_and_keeps_plain_files(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, requests = site
    fill(folder, tiny_mnist)
    kept, *others = tiny_mnist
    root = tmp_path / "root"
    fill(root, {kept.removesuffix(".gz"): gzip.decompress(tiny_mnist[kept])})
    fill(root, {others[0]: tiny_mnist[others[0]][:-9], f".{others[0]}.00aa.part": b"left behind"})
    fetch("mnist", root, mirrors=[url])
    assert [request.strip("/") for request in requests] == others
    assert names(root) == sorted([kept.removesuffix(".gz"), *others])


def test_mnist_with_a_wrong_plain_file(site, tiny_mnist, tmp_path: Path) -> None:
    fill(site[1], tiny_mnist)
    fill(tmp_path / "root", {"train-images-idx3-ubyte": b"wrong"})
    with pytest.raises(DataError, match="idx3-ubyte is not the official file; remove it and fetch"):
        fetch("mnist", tmp_path / "root", mirrors=[site[0]])
    assert names(tmp_path / "root") == ["train-images-idx3-ubyte"]


def test_next_mirror_is_tried(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, _ = site
    fill(folder / "good", tiny_mnist)
    fill(
        folder / "other",
        {name: gzip.compress(idx_bytes(np.zeros((9,), np.uint8))) for name in tiny_mnist},
    )
    mirrors = [url + path for path in ("absent/", "short/", "other/", "good/")]
    root = fetch("mnist", tmp_path / "root", mirrors=["strange:address", *mirrors])
    assert names(root) == sorted(tiny_mnist)


def test_all_mirrors_fail(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, _ = site
    name = next(iter(tiny_mnist))
    fill(folder / "other", {name: tiny_mnist["t10k-labels-idx1-ubyte.gz"]})
    root = tmp_path / "root"
    with pytest.raises(DataError) as caught:
        fetch("mnist", root, mirrors=[url + "absent", url + "short", url + "other"])
    message = str(caught.value)
    for part in (
        f"{name} could not be downloaded; is there no network?",
        f"{url}absent/{name}: HTTP 404",
        f"{url}short/{name}: ended after 4 of 1000 bytes",
        "expected (1, 28, 28)",
        f"put it at {root / name}",
    ):
        assert part in message
    assert names(root) == []


def test_no_network(tiny_mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"  # bound, so nobody else's, and deaf
        with pytest.raises(DataError, match=r"(?s)Connection refused.*Download it by.*put it at"):
            fetch("mnist", tmp_path / "root", mirrors=[url])
    assert names(tmp_path / "root") == []


def test_endless_download(site, tmp_path: Path) -> None:
    url, folder, _ = site
    fill(folder, {"a": bytes(1000)})
    with pytest.raises(DataError, match="more than the 999 bytes"):
        _download.download([url + "a"], tmp_path / "a", lambda path: None, 999, silent)
    assert not (tmp_path / "a").exists()


def test_root_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"`root` .*file cannot be written to: File exists"):
        fetch("mnist", tmp_path / "file")

    # Not by chmod, which does not stop root.
    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"`root` .* cannot be written to: Permission denied"):
        fetch("mnist", tmp_path)
