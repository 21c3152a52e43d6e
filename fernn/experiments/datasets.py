"""The dataset of a recipe: its training and validation sequences."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fernn.data import (
    BouncingMNIST,
    ClipArchive,
    DataError,
    FlowingMNIST,
    MovingClips,
    Videos,
    load_digits,
)
from fernn.experiments.glimpses import glimpses
from fernn.experiments.recipes import Recipe
from fernn.flows import Translation

Source = str | os.PathLike[str]
_KTH = "kth"  # the name that an archive of the real videos bears
_KTH_CLIPS = 2370  # of all 599 videos, ranges shorter than a clip left out


def videos(
    recipe: Recipe,
    split: str,
    *,
    seed: int = 0,
    root: Source | None = None,
    archive: ClipArchive | None = None,
    device: str | torch.device = "cpu",
) -> Videos:
    """The sequences of a split. `root` has MNIST's files, None means the digits in the package."""
    data = recipe.data
    flow = data.test_flow if split == "test" else data.flow
    size = {"train": data.train_size, "val": data.val_size, "test": data.test_size}[split]
    digits: dict[str, Any] = {
        "root": root,
        "canvas": data.canvas,
        "length": data.observed + data.horizon,
        "size": size,
        "seed": seed,
        "device": device,
    }
    if data.kind == "flowing":
        return FlowingMNIST(flow, split, **digits)
    if not isinstance(flow, Translation):
        raise ValueError(f"`data.flow` must be a Translation for {data.kind}, got {flow!r}.")
    if data.kind == "bouncing":
        return BouncingMNIST(flow, split, **digits)
    if archive is None:
        raise ValueError(f"`archive` must be given for {recipe.name!r}, which classifies clips.")
    return MovingClips(
        archive, flow, split, redraw=data.redraw, switch=data.switch, seed=seed, device=device
    )


def source(recipe: Recipe, root: Source | None, archive: ClipArchive | None) -> str:
    """What the sequences of a run are made from, in a word; what is not there raises.

    The digits inside the package are a tenth of MNIST: what is trained on them is no result of
    the paper's, so they serve the scale "quick" alone.
    """
    if archive is not None:
        return archive.name
    if root is None and recipe.scale != "quick":
        raise ValueError(
            f"`--data` must be a folder with MNIST's files at scale {recipe.scale!r}, got none; "
            "`fernn data fetch mnist` downloads them, and --scale quick needs none."
        )
    if root is not None:
        check_digits(root)
    return digits_of(root)


def digits_of(root: Source | None) -> str:
    """What sequences of digits are made from, in a word."""
    return "embedded digits" if root is None else "MNIST"


def check_digits(root: Source) -> None:
    """Raise where MNIST's files are not in the folder, those of the test included."""
    with named_as_option():
        load_digits(root, train=True)
        load_digits(root, train=False)


@contextmanager
def named_as_option() -> Iterator[None]:
    """Errors about `root`, as the library calls it, speak of what a user typed."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace("`root`", "`--data`")) from None


def open_clips(path: Source) -> ClipArchive:
    """The archive of this path."""
    try:
        return ClipArchive.load(path)
    except DataError as error:
        raise DataError(f"`--clips` must be an archive of labelled clips: {error}") from None


def clips(recipe: Recipe, path: Source | None) -> ClipArchive | None:
    """The archive of a recipe that classifies clips, None for one that does not.

    A recipe on KTH takes KTH alone, and one on a stand-in anything else, so that what is measured
    on the one is never filed under the other. At scale "quick" a stand-in needs no file.
    """
    if recipe.data.kind != "clips":
        return None
    if path is None and recipe.scale == "quick" and recipe.data.archive != _KTH:
        return glimpses()
    if path is None:
        if recipe.data.archive == _KTH:
            which = "the archive of KTH that `fernn data prepare kth` writes"
        else:
            which = "an .npz archive of labelled clips, not KTH's; at scale quick none is needed"
        raise ValueError(
            f"`--clips` must be given for {recipe.name!r} at scale {recipe.scale!r}: {which}."
        )
    archive = open_clips(path)
    if (archive.name == _KTH) != (recipe.data.archive == _KTH):
        raise ValueError(
            f"`--clips` must be the archive that {recipe.name!r} is about, "
            f"{recipe.data.archive!r}, got {archive.name!r} in {path}. Recipes on {_KTH} and on a "
            "stand-in have other names."
        )
    canvas = tuple(archive.frames.shape[1:])
    if canvas != recipe.data.canvas:
        raise ValueError(
            f"`--clips` must have frames of {recipe.data.canvas}, the `data.canvas` of "
            f"{recipe.name!r} at scale {recipe.scale!r}, got {canvas} in {path}. `fernn train "
            f"--set 'data.canvas={canvas}'` takes these."
        )
    known, told_apart = len(archive.classes), recipe.settings()["options.classes"]
    if known != told_apart:
        raise ValueError(
            f"`--clips` must have the {told_apart} classes that the model of {recipe.name!r} tells "
            f"apart, got {known} in {path}. `fernn train --set options.classes={known}` changes "
            "the model."
        )
    if archive.name == _KTH and recipe.scale != "quick" and len(archive.clip) != _KTH_CLIPS:
        raise ValueError(
            f"`--clips` must be all of KTH at scale {recipe.scale!r}, {_KTH_CLIPS} clips, got "
            f"{len(archive.clip)} in {path}. `fernn data prepare kth` says what it lacks."
        )
    return archive
