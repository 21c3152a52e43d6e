"""Forecasts to look at: strips of frames and animations of truth, models and their errors.

Forecasts are made from the weights that a run kept, on the first sequences of its test split.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fernn import models
from fernn._files import written_whole
from fernn.data._show import caption
from fernn.experiments.datasets import Source
from fernn.experiments.recipes import from_json
from fernn.experiments.results import Result
from fernn.experiments.runs import BEST
from fernn.experiments.testdata import TestData
from fernn.experiments.typeset import as_mathtext
from fernn.flows import Flow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase
    from PIL.Image import Image

ERROR_COLOURS, ERROR = "bwr", "error, blue −1, red +1"  # blue: the forecast is too dark
ACROSS = 8  # frames side by side in a strip
BEFORE = 2  # observed frames that a strip begins with
_ZOOM, _GAP, _LINE = 4, 8, 15  # pixels of an animation
_PAUSE = 125  # milliseconds from one frame of it to the next
_GREYS = 128  # of the 256 colours of an animation; the rest is for errors


@dataclass(frozen=True)
class Forecast:
    """One sequence: observed frames and truth [T, H, W], and what each model made of it, by label,
    [horizon, H, W]."""

    observed: Tensor
    truth: Tensor
    models: dict[str, Tensor]
    caption: str = ""


Cache = dict[tuple[Path | str, Flow | None, int], Tensor]
"""Forecasts made before, by weights, flow and sequence: a shorter one is the longer one's start."""


def forecast(
    runs: dict[str, Result],
    *,
    horizon: int,
    which: int = 0,
    flow: Flow | None = None,
    root: Source | None = None,
    device: str | torch.device = "cpu",
    cache: Cache | None = None,
) -> Forecast:
    """What each run's model predicts for test sequence `which`; `flow` replaces that of the test.

    The runs must share their data, as those of one figure do.
    """
    cache = {} if cache is None else cache
    first = from_json(next(iter(runs.values())).record["recipe"])
    data = TestData(first, root=root, device=device)
    videos = data.videos(flow=flow, horizon=horizon, size=which + 1)
    batch = videos.batch([which], epoch=0)
    observed = first.data.observed
    made: dict[str, Tensor] = {}
    for label, run in runs.items():
        key = (weights(run), flow, which)
        if key not in cache or len(cache[key]) < horizon:
            model = models.load(weights(run)).float().to(device).eval()
            with torch.no_grad():
                cache[key] = model(batch.frames[:, :observed], horizon)[0, :, 0].float().cpu()
        made[label] = cache[key][:horizon]
    frames = batch.frames[0, :, 0].cpu()
    return Forecast(frames[:observed], frames[observed:], made, ", ".join(caption(batch, 0)))


def weights(run: Result) -> Path:
    """The file with the weights of a run."""
    path = run.weights
    if path is None:
        raise FileNotFoundError(
            f"`run` must keep its weights to forecast, got {run.folder} without {BEST}, or with "
            "another than its record is of. Train it again, or copy the file there."
        )
    return path


def times(horizon: int, most: int) -> list[int]:
    """At most `most` forecast steps, spread evenly, the last one among them.

    >>> times(60, 6), times(3, 10)
    ([9, 19, 29, 39, 49, 59], [0, 1, 2])
    """
    count = min(horizon, most)
    return [(step + 1) * horizon // count - 1 for step in range(count)]


def bands(frames: int) -> tuple[int, int]:
    """How many bands a strip of so many frames has, and the frames of a band: no wider than a page.

    >>> bands(7), bands(14), bands(37)
    ((1, 7), (2, 7), (5, 8))
    """
    count = math.ceil(frames / ACROSS)
    return count, math.ceil(frames / count)


def strip(
    figure: "FigureBase", shown: Forecast, steps: Sequence[int], *, errors: bool = True
) -> None:
    """Rows of frames: truth, then each model and its error; the last observed frames come first.

    What is longer than a page is wide goes on in bands below.
    """
    before = min(BEFORE, len(shown.observed))
    empty = [None] * before
    rows: list[tuple[str, list[Tensor | None], bool]] = [
        ("truth", [*shown.observed[len(shown.observed) - before :], *shown.truth[steps]], False)
    ]
    for label, predicted in shown.models.items():
        error = predicted - shown.truth
        rows.append((label, [*empty, *predicted[steps]], False))
        if errors:
            rows.append((ERROR, [*empty, *error[steps]], True))
    times = [f"{time}" for time in range(1 - before, 1)] + [f"+{step + 1}" for step in steps]
    count, wide = bands(len(times))
    parts = figure.subfigures(count, 1, squeeze=False)[:, 0] if count > 1 else [figure]
    for band, part in enumerate(parts):
        here = slice(band * wide, (band + 1) * wide)
        rest = [None] * (wide - len(times[here]))  # frames of the last band are no larger
        grid = part.subplots(len(rows), 1, squeeze=False)[:, 0]
        for place, (axes, (label, frames, signed)) in enumerate(zip(grid, rows, strict=True)):
            above = [*times[here], *("" for _ in rest)] if place == 0 else None
            film(axes, [*frames[here], *rest], label, above, signed=signed)


def film(
    axes: "Axes",
    frames: Sequence[Tensor | None],
    label: str,
    times: Sequence[str] | None,
    *,
    signed: bool = False,
) -> None:
    """Frames [H, W] side by side as one picture, blank where there is none; times stand above."""
    from matplotlib import colormaps

    height, width = next(frame.shape for frame in frames if frame is not None)
    gap = max(1, width // 14)
    wide = width + gap
    picture = np.full((height, len(frames) * wide - gap), np.nan)
    for place, frame in enumerate(frames):
        if frame is not None:
            picture[:, place * wide : place * wide + width] = frame.numpy()
    colours = colormaps[ERROR_COLOURS if signed else "gray"].with_extremes(bad="white")
    low = -1 if signed else 0
    axes.imshow(picture, cmap=colours, vmin=low, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if times is not None:
        middles = [place * wide + (width - 1) / 2 for place in range(len(frames))]
        axes.set_xticks(middles, times, fontsize=7, color="0.4")
        axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False, pad=1)
    lines = [part for line in label.replace(", ", "\n").splitlines() for part in wrap(line, 14)]
    axes.set_ylabel(
        as_mathtext("\n".join(lines)),
        rotation=0,
        ha="right",
        va="center",
        fontsize=7 if signed else 8,
        color="0.5" if signed else "0.15",
    )


def animation(shown: Forecast, path: Path) -> None:
    """Write a GIF that repeats: truth and models in a row, their errors below."""
    stills = _stills(shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        stills[0].save(
            part,
            format="GIF",
            save_all=True,
            append_images=stills[1:],
            duration=_PAUSE,
            loop=0,
            disposal=1,
        )


def _stills(shown: Forecast) -> list["Image"]:
    """The frames of the animation, all on one palette so that nothing flickers."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(11)
    labels = {label: label.split(", ") for label in ("truth", *shown.models)}
    lines = max(len(words) for words in labels.values())
    text = max(font.getlength(word) for words in labels.values() for word in words)
    height, width = (_ZOOM * size for size in shown.truth.shape[-2:])
    wide = max(width, round(text) + _GAP)
    top = 2 * _GAP + (1 + lines) * _LINE  # below the time and the labels
    size = (len(labels) * (wide + _GAP) + _GAP, top + 2 * (height + _GAP))
    stills = []
    for step in range(-len(shown.observed), len(shown.truth)):
        image = Image.new("P", size, _grey(1.0))
        image.putpalette(_palette())
        draw = ImageDraw.Draw(image)
        word = f"observed, frame {step}" if step < 0 else f"forecast, step {step + 1}"
        draw.text((_GAP, _GAP), word, fill=_grey(0.1), font=font)
        truth = shown.observed[step] if step < 0 else shown.truth[step]
        for column, (label, words) in enumerate(labels.items()):
            left = _GAP + column * (wide + _GAP)
            draw.text((left, top - lines * _LINE), "\n".join(words), fill=_grey(0.1), font=font)
            seen = truth if column == 0 or step < 0 else shown.models[label][step]
            image.paste(_zoomed(seen.clamp(0, 1).numpy() * (_GREYS - 1)), (left, top))
            below = top + height + _GAP
            if column == 0:
                words = ERROR.replace("−", "-").split(", ")  # as far as this font goes
                draw.text((left, below), "\n".join(words), fill=_grey(0.45), font=font)
            elif step >= 0:
                error = (seen - truth).clamp(-1, 1).numpy()
                image.paste(_zoomed(_GREYS + (error + 1) / 2 * (255 - _GREYS)), (left, below))
        stills.append(image)
    return stills


def _grey(level: float) -> int:
    return round(level * (_GREYS - 1))


def _palette() -> list[int]:
    """Greys, then blue over white to red."""
    from matplotlib import colormaps

    greys = np.repeat(np.linspace(0, 255, _GREYS)[:, None], 3, axis=1)
    signed = colormaps[ERROR_COLOURS](np.linspace(0, 1, 256 - _GREYS))[:, :3] * 255
    return [int(value) for value in np.concatenate([greys, signed]).round().flatten()]


def _zoomed(levels: "np.ndarray[tuple[int, ...], np.dtype[np.floating]]") -> "Image":
    from PIL import Image

    pixels = np.round(np.nan_to_num(levels)).astype(np.uint8).repeat(_ZOOM, 0).repeat(_ZOOM, 1)
    return Image.fromarray(pixels)
