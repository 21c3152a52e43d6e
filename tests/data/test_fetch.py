"""`fetch`: downloads, locks and safe unpacking, against a server on this machine."""

import fcntl
import gzip
import http.server
import io
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fernn.data import DataError, _digits, _download, _fetch, fetch
from fernn.data._files import silent
from fernn.data._idx import idx_bytes
from fernn.data._lock import LOCK_NAME
from fernn.data._sequences import ACTIONS
from fernn.data._unpack import check_zip, unpack


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; what is below `/short/` ends in the middle."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path.startswith("/short/"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
        else:
            super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path, list[str]]]:
    """A server's address, the folder it serves and the paths it was asked for."""
    monkeypatch.setenv("no_proxy", "*")
    folder, requests = tmp_path / "site", []
    folder.mkdir()
    handler = type("Recorder", (Handler,), {"requests": requests})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(handler, directory=folder)
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder, requests
        server.shutdown()
        thread.join()


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Four small files that are the official ones for the time of a test, packed, by name."""
    plain, official = {}, []
    for count, file in enumerate(_digits.OFFICIAL, start=1):
        array = np.full((count, *file.shape[1:]), count, dtype=np.uint8)
        plain[f"{file.name}.gz"] = gzip.compress(idx_bytes(array))
        digest = _digits._digest("md5", idx_bytes(array))
        official.append(replace(file, shape=array.shape, digest=digest))
    monkeypatch.setattr(_digits, "OFFICIAL", tuple(official))
    return plain


def fill(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


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
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(DataError, match=r"(?s)Connection refused.*Download it by hand.*put it at"):
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


def test_two_at_once_download_once(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, requests = site
    fill(folder, tiny_mnist)
    failures = []

    def one() -> None:
        try:
            fetch("mnist", tmp_path / "root", mirrors=[url])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(requests) == 4
    assert names(tmp_path / "root") == sorted(tiny_mnist)


def test_lock_of_another_process_is_waited_for_and_dies_with_it(
    site, tiny_mnist, tmp_path: Path
) -> None:
    url, folder, _ = site
    fill(folder, tiny_mnist)
    root = tmp_path / "root"
    root.mkdir()
    code = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)"
    )
    code += "\nprint('locked', flush=True)\ntime.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root / LOCK_NAME)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        waiting, done = threading.Event(), threading.Event()

        def progress(*call: object) -> None:
            if call == (0, 0, f"waiting for another fetch into {root}"):
                waiting.set()

        def run() -> None:
            fetch("mnist", root, progress, mirrors=[url])
            done.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert waiting.wait(10)
        time.sleep(0.1)
        assert not done.is_set()
        assert names(root) == [LOCK_NAME]
        holder.send_signal(signal.SIGKILL)  # no chance to remove its lock file
        thread.join(10)
    assert done.is_set()
    assert names(root) == sorted(tiny_mnist)


def test_stale_lock_file_stops_nobody(site, tiny_mnist, tmp_path: Path) -> None:
    url, folder, _ = site
    fill(folder, tiny_mnist)
    fill(tmp_path / "root", {LOCK_NAME: b""})
    fetch("mnist", tmp_path / "root", mirrors=[url])
    assert names(tmp_path / "root") == sorted(tiny_mnist)


def test_lock_on_a_removed_file_is_not_enough(tmp_path: Path, monkeypatch) -> None:
    # Another process removes the file between our opening and our locking it.
    real, opened = fcntl.flock, []

    def flock(lock: int, how: int) -> None:
        if not opened:
            (tmp_path / LOCK_NAME).unlink()
        opened.append(lock)
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with _fetch.folder_lock(tmp_path, lambda: None):
        assert len(opened) == 2
        assert (tmp_path / LOCK_NAME).exists()


def zip_bytes(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return stream.getvalue()


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
