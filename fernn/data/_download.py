"""One file over HTTP, from the first of several mirrors that has it whole and right."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from fernn._files import written_whole
from fernn.data._errors import DataError
from fernn.data._files import Progress, reason

TIMEOUT_S = 30.0
_CHUNK = 2**18


def download(
    urls: Sequence[str],
    target: Path,
    check: Callable[[Path], None],
    max_bytes: int,
    progress: Progress,
) -> None:
    """Puts the first of `urls` that passes `check` at `target`, whole, or raises."""
    failures = []
    for url in urls:
        try:
            with written_whole(target) as part:
                _stream(
                    url, part, max_bytes, lambda done, total: progress(done, total, target.name)
                )
                check(part)
            return
        except urllib.error.HTTPError as error:
            error.close()
            failures.append(f"{url}: HTTP {error.code} {error.reason}")
        except urllib.error.URLError as error:
            failures.append(f"{url}: {error.reason}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            failures.append(f"{url}: {reason(error)}")
    tried = "\n  ".join(failures)
    raise DataError(
        f"{target.name} could not be downloaded; is there no network?\n  {tried}\n"
        f"Download it by hand, on any machine, from {' or '.join(urls)}, put it at {target} and "
        "fetch again: what is there already is checked and kept."
    )


def _stream(url: str, part: Path, max_bytes: int, progress: Callable[[int, int], None]) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "fernn"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer, part.open("wb") as file:
        length = answer.headers.get("Content-Length", "")
        total, done = int(length) if length.isdecimal() else 0, 0
        while chunk := answer.read(_CHUNK):
            done += len(chunk)
            if max(done, total) > max_bytes:
                raise DataError(f"more than the {max_bytes} bytes that it should have at most")
            file.write(chunk)
            progress(done, total)
    # A connection that closes early looks like the end of the file.
    if total and done != total:
        raise DataError(f"ended after {done} of {total} bytes")
