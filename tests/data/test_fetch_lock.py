"""`fetch`: several at once into one folder, and the lock between them."""

import fcntl
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from folders import fill, names

from fernn.data import _fetch, fetch
from fernn.data._lock import LOCK_NAME


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
