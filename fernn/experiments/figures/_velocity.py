"""Error by the velocity of the digits: unseen ones in Figure 5, those between in Figure 6."""

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fernn.experiments.figures._curves import tidy
from fernn.experiments.figures._models import (
    Chosen,
    Model,
    choose,
    choose_each,
    figure_models,
)
from fernn.experiments.figures._panel import DARK, LIGHT, PANEL, Panel
from fernn.experiments.recipes import Recipe, from_json, recipes
from fernn.experiments.results import Result, Results
from fernn.experiments.typeset import as_mathtext
from fernn.flows import Translation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

Errors = dict[tuple[float, ...], float]

_ACROSS = 2  # grids side by side
_SIDE_BY_SIDE = 4  # models with bars side by side
_LABEL = 26  # letters of a label that still has another beside it
_HATCH = "////"

_FIG5 = {
    "translation": "Trained on V^T_1, tested at every velocity",
    "rotation": "Trained on V^R_1, tested at every velocity",
}


def unseen(results: Results, scale: str | None) -> list[Panel]:
    """Figure 5: models trained on few velocities, at each velocity of the test."""
    models = [figure_models(f"fig5/{part}/", results) for part in _FIG5]
    return list(map(_panel, _FIG5.values(), choose_each(models, results, scale)))


def between(results: Results, scale: str | None) -> list[Panel]:
    """Figure 6: x-velocities −5 to 5, models whose V holds some of them."""
    known = recipes()
    models = [
        replace(model, label=_velocity_set(known[model.recipe]) + _variant(model))
        for model in figure_models("fig6/", results)
        if model.recipe in known
    ]
    return [_panel("Error by x-velocity", choose(models, results, scale))]


def _variant(model: Model) -> str:
    """The words after a label that only names V."""
    return "" if model.row is None else ", transported"


def _velocity_set(recipe: Recipe) -> str:
    """V of a model in one dimension, such as {0, ±3} or [−5, 5]."""
    values = sorted(int(velocity[-1]) for velocity in recipe.options["flow"].velocities.tolist())
    if len(values) > 1 and values == list(range(values[0], values[-1] + 1)):
        return f"V = [{values[0]}, {values[-1]}]".replace("-", "−")
    if values == [-value for value in reversed(values)]:
        return f"V = {{{', '.join(f'±{v}' if v else '0' for v in values if v >= 0)}}}"
    return f"V = {{{', '.join(map(str, values))}}}".replace("-", "−")


def errors(runs: list[Result]) -> Errors:
    """The error at each velocity, the mean over seeds; empty where none was measured."""
    tables = [
        {
            tuple(entry["velocity"]): float(entry["mse"])
            for entry in run.metrics["mse_per_velocity"]
            if entry["mse"]  # neither none, where it is not finite, nor zero: the axis has no place
        }
        for run in runs
        if run.metrics.get("mse_per_velocity")
    ]
    if not tables:
        return {}
    shared = set.intersection(*(set(table) for table in tables))
    return {v: float(np.mean([table[v] for table in tables])) for v in tables[0] if v in shared}


def _panel(title: str, chosen: Chosen) -> Panel:
    found = {model.recipe: errors(chosen.runs[model.recipe]) for model in chosen.models}
    drawn = [model for model in chosen.models if found[model.recipe]]
    missing = (*chosen.missing, *(m.recipe for m in chosen.models if not found[m.recipe]))
    if not drawn:
        return Panel(title, None, missing, scale=chosen.scale)
    moving = {i for table in found.values() for v in table for i, c in enumerate(v) if c}
    if len(moving) > 1:
        size = (PANEL[0], 0.4 + 2.1 * math.ceil(len(drawn) / _ACROSS))
        note = f"{chosen.note}; white frame: velocities of training"
        grids = partial(_grids, drawn=drawn, found=found, chosen=chosen)
        return Panel(title, grids, missing, note, size, chosen.scale)
    axis = moving.pop() if moving else 0
    bands = _bands(drawn)
    size = (PANEL[0], 1.2 + 2.4 * len(bands))
    bars = partial(_bars, bands=bands, found=found, chosen=chosen, axis=axis)
    return Panel(title, bars, missing, chosen.note, size, chosen.scale)


def _bands(drawn: list[Model]) -> list[list[Model]]:
    """The models whose bars share axes: all, or rows and variants apart, or bars would be thin."""
    if len(drawn) <= _SIDE_BY_SIDE:
        return [drawn]
    bands = ([m for m in drawn if m.row is None], [m for m in drawn if m.row is not None])
    return [band for band in bands if band]


def _grids(
    figure: "FigureBase", drawn: list[Model], found: dict[str, Errors], chosen: Chosen
) -> None:
    """A square a velocity of the plane, one grid a model, all on one logarithmic colour scale."""
    from matplotlib.colors import LogNorm

    every = [error for table in found.values() for error in table.values() if error > 0]
    norm = LogNorm(min(every), max(every))
    across = min(_ACROSS, len(drawn))
    grid = list(figure.subplots(math.ceil(len(drawn) / across), across, squeeze=False).flat)
    for axes in grid[len(drawn) :]:
        axes.set_axis_off()
    for axes, model in zip(grid, drawn, strict=False):
        table = found[model.recipe]
        rows, columns = (sorted({v[i] for v in table}) for i in (0, 1))
        image = np.full((len(rows), len(columns)), np.nan)
        for (row, column), error in table.items():
            image[rows.index(row), columns.index(column)] = max(error, min(every))
        shown = axes.imshow(image, cmap="viridis", norm=norm)
        axes.set_xticks(range(len(columns)), [f"{c:g}" for c in columns], fontsize=7)
        axes.set_yticks(range(len(rows)), [f"{r:g}" for r in rows], fontsize=7)
        axes.set_title(as_mathtext(model.label).replace(", ", "\n"), fontsize=8, color=DARK)
        axes.set_xlabel("columns a frame", fontsize=8)
        axes.set_ylabel("rows a frame", fontsize=8)
        _outline(axes, chosen.runs[model.recipe][0], rows, columns)
    bar = figure.colorbar(shown, ax=grid, shrink=0.8)
    bar.set_label("MSE", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def _outline(axes: "Axes", run: Result, rows: list[float], columns: list[float]) -> None:
    """A white frame around the velocities of training."""
    from matplotlib.patches import Rectangle

    trained = from_json(run.record["recipe"]).data.flow.velocities.tolist()
    inside = [(rows.index(r), columns.index(c)) for r, c in trained if r in rows and c in columns]
    if not inside:
        return
    (top, left), (bottom, right) = min(inside), max(inside)
    corner, width, height = (left - 0.5, top - 0.5), right - left + 1, bottom - top + 1
    axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor="white", lw=2))


def _bars(
    figure: "FigureBase",
    bands: list[list[Model]],
    found: dict[str, Errors],
    chosen: Chosen,
    axis: int,
) -> None:
    """Bars side by side at each velocity, hatched where it is not in the model's V."""
    every = sorted({v[axis] for table in found.values() for v in table})
    grid = figure.subplots(len(bands), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, drawn in zip(grid, bands, strict=True):
        _band(axes, drawn, found, chosen, axis, every)
    for axes in grid[:-1]:
        axes.set_xlabel("")


def _band(
    axes: "Axes",
    drawn: list[Model],
    found: dict[str, Errors],
    chosen: Chosen,
    axis: int,
    every: list[float],
) -> None:
    from matplotlib.patches import Patch

    outside = False
    wide = 0.84 / len(drawn)
    flows = [from_json(chosen.runs[m.recipe][0].record["recipe"]) for m in drawn]
    for place, (model, recipe) in enumerate(zip(drawn, flows, strict=True)):
        table = {v[axis]: error for v, error in found[model.recipe].items()}
        known = {v[axis] for v in recipe.options["flow"].velocities.tolist()}
        for spot, velocity in enumerate(every):
            if velocity not in table:
                continue
            outside |= velocity not in known
            axes.bar(
                spot + (place - (len(drawn) - 1) / 2) * wide,
                table[velocity],
                wide,
                color=model.colour,
                hatch=None if velocity in known else _HATCH,
                edgecolor="white",
                lw=0.4,
            )
    degrees = "" if isinstance(flows[0].data.flow, Translation) else "°"
    axes.set_xticks(range(len(every)), [f"{v:g}{degrees}" for v in every])
    unit = "degrees" if degrees else "pixels"
    axes.set(xlabel=f"velocity, {unit} a frame", ylabel="MSE", yscale="log")
    trained = {v[axis] for v in flows[0].data.flow.velocities.tolist()}
    if trained < set(every):  # shade what was trained on, unless that is everything
        spots = [spot for spot, velocity in enumerate(every) if velocity in trained]
        axes.axvspan(min(spots) - 0.5, max(spots) + 0.5, color="0.93", zorder=0)
        axes.text(
            (min(spots) + max(spots)) / 2,
            0.985,
            "trained",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=7,
            color=LIGHT,
        )
    axes.margins(y=0.12)  # above the bars there is room for a word
    tidy(axes)
    handles = [Patch(color=m.colour, label=as_mathtext(m.label)) for m in drawn]
    if outside:
        hatched = Patch(facecolor="0.7", edgecolor="white", hatch=_HATCH)
        hatched.set_label("ν not in the model's V")
        handles.append(hatched)
    axes.legend(
        handles=handles,
        frameon=False,
        fontsize=7.5,
        ncols=2 if max(len(m.label) for m in drawn) <= _LABEL else 1,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        borderaxespad=0.2,
    )
