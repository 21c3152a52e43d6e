"""Weights that come with the package: float16, each beside the record of its training."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from fernn._files import sha256
from fernn._nearest import nearest
from fernn.models._io import load

FOLDER = Path(__file__).parent / "weights"


def pretrained() -> tuple[str, ...]:
    """The names that `load_pretrained` takes."""
    files = sorted(FOLDER.glob("*/*.safetensors"))
    return tuple(file.relative_to(FOLDER).with_suffix("").as_posix() for file in files)


def load_pretrained(name: str) -> nn.Module:
    """A trained model, in float32 and in evaluation mode; `pretrained()` names them.

    It forecasts videos such as `fernn.data.FlowingMNIST` gives: [B, T, 1, H, W] with values in
    [0, 1], digits bright on dark, 28×28 under translation, where edges wrap around, and 40×40 under
    rotation; it was trained to see ten frames and to forecast ten.

    >>> load_pretrained("translating-mnist/fernn-v2").flow
    Translation(radius=2)
    """
    path, expected = weights_path(name), pretrained_record(name)["weights"]["sha256"]
    found = sha256(path)
    if found != expected:
        raise ValueError(
            f"{path} must be the file that its record describes, with SHA-256 {expected}, got "
            f"{found}: it is damaged or was changed. Install fernn again, or read a file of your "
            "own with `fernn.load`."
        )
    return load(path).float().eval()


def pretrained_record(name: str) -> dict[str, Any]:
    """How pretrained weights came about and what they reach.

    The record of the run; `weights`, which describes the file; and `check`, the errors of these
    very weights on the first test sequences of the digits inside the package.
    """
    path = weights_path(name).with_suffix(".json")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def weights_path(name: str) -> Path:
    """The file with these weights; a name that nobody has suggests the nearest."""
    known = pretrained()
    if name not in known:
        raise ValueError(
            f"`name` must be one of {', '.join(known)}, got {name!r}.{nearest(name, known)}"
        )
    return FOLDER / f"{name}.safetensors"
