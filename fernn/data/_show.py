"""Pictures of a batch: a contact sheet and an animation, with velocities and labels as captions."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fernn import _check
from fernn._files import written_whole
from fernn.data._errors import DataError
from fernn.data._files import reason
from fernn.data._videos import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from PIL.Image import Image

# Inches, and points for text.
_MARGIN, _GAP, _TITLE, _TIMES = 0.15, 0.05, 0.3, 0.15
_LINE = 0.17
_DARK, _LIGHT = "0.15", "0.5"


def contact_sheet(
    batch: Batch,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    classes: Sequence[str] | None = None,
    sequences: int = 6,
    frames: int = 10,
) -> None:
    """Writes a PNG: a row for each sequence, its frames from left to right at equal steps of time.

    At most `sequences` rows and `frames` columns are shown; `classes` names the labels.
    """
    _check.count("sequences", sequences, least=1)
    _check.count("frames", frames, least=1)
    video = _video(batch)[:sequences]
    rows, steps, height, width = video.shape
    stride = -(-steps // frames)
    times = range(0, steps, stride)
    wide = 0.9 * max(1.0, width / height)
    tall = wide * height / width
    top = _MARGIN + (_TITLE if title else 0.0) + _TIMES
    figure = _figure(
        2 * _MARGIN + len(times) * (wide + _GAP) - _GAP, top + rows * (tall + _LINE + 0.12), title
    )
    for row in range(rows):
        y = top + row * (tall + _LINE + 0.12)
        for column, time in enumerate(times):
            axes = _axes(figure, _MARGIN + column * (wide + _GAP), y, wide, tall)
            _draw(axes, video[row, time])
            if row == 0:
                axes.set_title(f"t = {time}", fontsize=7, color=_LIGHT, pad=3)
            if column == 0:
                text = "    ".join(caption(batch, row, classes))
                axes.annotate(
                    text,
                    (0, 0),
                    (0, -3),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    va="top",
                    fontsize=8,
                    color=_DARK,
                    annotation_clip=False,
                )
    _save(path, lambda part: figure.savefig(part, format="png", dpi=120))


def animation(
    batch: Batch,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    classes: Sequence[str] | None = None,
    sequences: int = 8,
    columns: int = 4,
    rate: float = 8.0,
) -> None:
    """Writes a GIF that repeats: the sequences side by side, at `rate` frames a second."""
    _check.count("sequences", sequences, least=1)
    _check.count("columns", columns, least=1)
    if not 0 < rate <= 50:
        raise ValueError(f"`rate` must be above 0 and at most 50 frames a second, got {rate!r}.")
    video = _video(batch)[:sequences]
    captions = [caption(batch, index, classes) for index in range(len(video))]
    columns = min(columns, len(video))
    rows, (height, width) = -(-len(video) // columns), video.shape[-2:]
    wide = 1.6 * max(1.0, width / height)
    tall = wide * height / width
    below = _LINE * max(len(lines) for lines in captions) + 0.12
    top = _MARGIN + (_TITLE if title else 0.0)
    figure = _figure(_MARGIN + columns * (wide + _MARGIN), top + rows * (tall + below), title)
    pictures = []
    for index, lines in enumerate(captions):
        row, column = divmod(index, columns)
        axes = _axes(
            figure, _MARGIN + column * (wide + _MARGIN), top + row * (tall + below), wide, tall
        )
        axes.set_xlabel("\n".join(lines), fontsize=8, color=_DARK, labelpad=3)
        pictures.append(_draw(axes, video[index, 0]))
    stills = []
    for time in range(video.shape[1]):
        for picture, frames in zip(pictures, video, strict=True):
            picture.set_data(frames[time].numpy())
        stills.append(_still(figure))
    pause = round(1000 / rate)
    _save(
        path,
        lambda part: stills[0].save(
            part, format="GIF", save_all=True, append_images=stills[1:], duration=pause, loop=0
        ),
    )


def caption(batch: Batch, index: int, classes: Sequence[str] | None = None) -> list[str]:
    """What moves in a sequence, and how, in a line each.

    >>> import torch
    >>> caption(Batch(torch.empty(0), torch.tensor([[[1, -2], [0, 0]]]), torch.tensor([[7, 3]])), 0)
    ['7 moves (+1, −2)', '3 rests']
    """
    labels, velocities = batch.labels[index], batch.velocities[index]
    names = [str(n) if classes is None else classes[n] for n in labels.reshape(-1).tolist()]
    if labels.ndim == 0:
        return [names[0], *("then " * (k > 0) + _motion(v) for k, v in enumerate(velocities))]
    first = velocities[0] if velocities.ndim == 3 else velocities  # those at the first frame
    return [f"{name} {_motion(v)}" for name, v in zip(names, first, strict=True)]


def _motion(velocity: Tensor) -> str:
    """A velocity in words: rows and columns, or degrees, a frame."""
    if not bool(velocity.any()):
        return "rests"
    parts = [f"{c:+g}".replace("-", "−") if c else "0" for c in velocity.tolist()]
    return f"turns {parts[0]}°" if len(parts) == 1 else f"moves ({', '.join(parts)})"


def _video(batch: Batch) -> Tensor:
    _check.kind("batch", batch, Batch, "dataset.batch(range(8), epoch=0)")
    frames = batch.frames
    if frames.ndim != 5 or frames.shape[2] != 1 or 0 in frames.shape:
        raise ValueError(
            f"`batch` must have frames [B, T, 1, H, W], got shape {tuple(frames.shape)}. Make it "
            "with `dataset.batch(indices, epoch)`."
        )
    return frames[:, :, 0].detach().cpu()


def _figure(width: float, height: float, title: str) -> "Figure":
    """An empty figure in inches, with a title; no window, no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed: pip install fernn[experiments]"
        ) from error
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.text(
            _MARGIN / width, 1 - _MARGIN / height, title, va="top", fontsize=11, color=_DARK
        )
    return figure


def _axes(figure: "Figure", x: float, y: float, width: float, height: float) -> "Axes":
    """Axes of a given size in inches, at a place counted from the top left corner."""
    w, h = figure.get_figwidth(), figure.get_figheight()
    axes = figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _draw(axes: "Axes", frame: Tensor) -> "AxesImage":
    return axes.imshow(
        frame.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto"
    )


def _still(figure: "Figure") -> "Image":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image  # matplotlib needs it, so it is there

    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    # Grey is enough, and its palette is the same in every frame: nothing flickers.
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("L")


def _save(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Writes a file whole, or leaves what was there."""
    try:
        with written_whole(Path(path)) as part:
            write(part)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {reason(error)}.") from error
