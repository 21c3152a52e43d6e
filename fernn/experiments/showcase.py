"""Pretrained models side by side: sixty frames from ten, six times as far as in training."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fernn.data._show import caption
from fernn.experiments import figures, strips
from fernn.experiments.figures import Panel
from fernn.experiments.recipes import from_json
from fernn.experiments.testdata import TestData
from fernn.models import load_pretrained, pretrained_record

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

PAIR = ("translating-mnist/grnn", "translating-mnist/fernn-v2")
HORIZON = 60
_COLUMNS, _CELL = 6, 0.75  # frames of a strip, and inches a frame


def forecast(names: Iterable[str] = PAIR, *, horizon: int = HORIZON) -> strips.Forecast:
    """What each model makes of the first test sequence of the digits inside the package.

    The models must share their data.
    """
    made: dict[str, Tensor] = {}
    for name in names:
        recipe = from_json(pretrained_record(name)["recipe"])
        batch = TestData(recipe).videos(horizon=horizon, size=1).batch([0], epoch=0)
        observed = recipe.data.observed
        with torch.no_grad():
            predicted = load_pretrained(name)(batch.frames[:, :observed], horizon)
        made[f"{recipe.published.row}, {recipe.options['readout']}"] = predicted[0, :, 0]
    frames = batch.frames[0, :, 0]
    return strips.Forecast(frames[:observed], frames[observed:], made, ", ".join(caption(batch, 0)))


def panel(shown: strips.Forecast) -> Panel:
    """Truth, models and their errors, blue where too dark and red where too bright."""
    steps = strips.times(len(shown.truth), _COLUMNS)

    def paint(figure: "FigureBase") -> None:
        strips.strip(figure, shown, steps)

    rows = 1 + 2 * len(shown.models)
    size = (1.5 + _CELL * (len(steps) + 2), 0.8 + _CELL * rows)
    title = f"{len(shown.truth)} frames forecast from {len(shown.observed)}"
    return Panel(title, paint, note=errors(shown), size=size)


def draw(shown: strips.Forecast, path: Path) -> None:
    """Write the panel as a picture that knows the weights it is of."""
    figures.save(figures.compose([panel(shown)]), path, about=weights())


def weights(names: Iterable[str] = PAIR) -> str:
    """Which weights a picture of these models is of."""
    return ", ".join(f"{name} {pretrained_record(name)['weights']['sha256']}" for name in names)


def errors(shown: strips.Forecast) -> str:
    """The mean squared error of each model on this sequence, in words."""
    each = (
        f"{label} {float((predicted - shown.truth).square().mean()):.1e}"
        for label, predicted in shown.models.items()
    )
    return f"MSE of this sequence: {'; '.join(each)}"
