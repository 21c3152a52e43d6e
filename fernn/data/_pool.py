"""The digits that a split draws from, shared by all datasets that use them on one device."""

import os
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fernn import _check
from fernn.data._digits import Digits, load_digits
from fernn.data._random import Stream, permutation

DIGIT_SIZE = 28
_HELD_OUT = 10  # one in ten of the training files' digits is for validation


def canvases(digits: Digits, chosen: Tensor, canvas: tuple[int, int], levels: Tensor) -> Tensor:
    """Digits in the middle of a black canvas: int64 [*S] → float32 [*S, H, W]."""
    top, left = ((size - DIGIT_SIZE) // 2 for size in canvas)
    placed = levels.new_zeros(*chosen.shape, *canvas)
    inside = placed[..., top : top + DIGIT_SIZE, left : left + DIGIT_SIZE]
    inside.copy_(levels[digits.images[chosen].int()])
    return placed


def load_pool(root: str | os.PathLike[str] | None, split: str, device: torch.device) -> Digits:
    """The digits of a split: 54 000, 6 000 and 10 000 of the full files, a tenth of the embedded.

    Which training digits are held out for validation is fixed: no seed changes it.
    """
    return _load(None if root is None else Path(root).resolve(), split, device)


@lru_cache(maxsize=6)
def _load(root: Path | None, split: str, device: torch.device) -> Digits:
    digits = load_digits(root, train=split != "test")
    images, labels = digits.images, digits.labels
    if split != "test":
        order = permutation(0, len(labels), Stream.HOLD_OUT)
        held = len(labels) // _HELD_OUT
        chosen = (order[:held] if split == "val" else order[held:]).sort().values
        images, labels = images[chosen], labels[chosen]
    return Digits(images.to(device), labels.to(device), digits.source)


def check_canvas(canvas: tuple[int, int]) -> tuple[int, int]:
    """`canvas`, checked: a pair of whole numbers that hold a digit."""
    try:
        rows, columns = (_check.count("canvas", size, least=DIGIT_SIZE) for size in canvas)
    except (TypeError, ValueError):  # no pair, or not of such numbers
        raise ValueError(
            f"`canvas` must be (rows, columns) of at least {DIGIT_SIZE} each, the size of a digit, "
            f"got {canvas!r}."
        ) from None
    return rows, columns
