"""Where the real data lies, when it lies anywhere, and a local server with small data."""

import gzip
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fernn.data import _digits
from fernn.data._idx import idx_bytes


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped without it."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data is not beside this checkout, in ../shared/data")
    return folder


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
        digest = hashlib.sha256(idx_bytes(array)).hexdigest()
        official.append(replace(file, shape=array.shape, sha256=digest))
    monkeypatch.setattr(_digits, "OFFICIAL", tuple(official))
    return plain
