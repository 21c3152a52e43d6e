"""Records: what was measured, with what, on what; tables and figures are made from them."""

import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import fernn
from fernn._files import written_whole

_UNKNOWN = "unknown"


def environment() -> dict[str, object]:
    """Commit, versions and hardware of this moment.

    Where a copy of the code runs without its git folder or beside an older one, as on a borrowed
    GPU, the variable FERNN_COMMIT says which commit it is a copy of; git is not asked then.
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    named = os.environ.get("FERNN_COMMIT")
    changes = None if named else _changes()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": named or _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
        "fernn": fernn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _installed("triton"),  # which kernels run depends on it
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }


def _changes() -> str | None:
    """What git knows to differ from the commit, and code that it does not know; None without it."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    unknown = _git("ls-files", "--others", "--exclude-standard", "--", "..")  # of the package
    return None if changed is None or unknown is None else changed + unknown


def commit(environment: dict[str, Any]) -> str:
    """The commit of an environment, with a plus where it was changed.

    >>> commit({"commit": "4a5b", "dirty": True}), commit({})
    ('4a5b+', 'unknown')
    """
    return (environment.get("commit") or _UNKNOWN) + "+" * bool(environment.get("dirty"))


def commits(record: dict[str, Any]) -> list[str]:
    """Every commit that took part in the run, oldest first."""
    return record.get("commits") or [commit(record.get("environment") or {})]


def known(record: dict[str, Any]) -> bool:
    """Whether all that a record is of can be had again: commits without changes."""
    return not any(name == _UNKNOWN or name.endswith("+") for name in commits(record))


def short(name: str) -> str:
    """A commit for a reader.

    >>> short("0123456789abcdef+")
    '0123456 and changes'
    """
    return name.rstrip("+")[:7] + " and changes" * name.endswith("+")


def to_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON, which has no numbers that are not finite: those are null.

    >>> to_text({"val_loss": [0.5, float("nan")]})
    '{"val_loss": [0.5, null]}'
    """
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def write(path: str | Path, record: dict[str, object]) -> None:
    """Write a record as JSON, all of it or nothing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(to_text(record, indent=1) + "\n", encoding="utf-8")


def _installed(name: str) -> str | None:
    """The version of a package, which is not imported for it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    """What git says of the checkout that holds this file, None where there is none.

    A package installed below somebody else's checkout is not part of it.
    """
    try:
        subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name],
            cwd=Path(__file__).parent,
            capture_output=True,
            timeout=10,
            check=True,
        )
        result = subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _cpu() -> str:
    """The processor's name, which platform does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
