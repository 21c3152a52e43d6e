"""Lines: validation loss against steps, error against the forecast step, cost against |V|."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fernn.experiments.figures._models import (
    Chosen,
    Model,
    choose,
    choose_each,
    table_models,
)
from fernn.experiments.figures._panel import DARK, LIGHT, Panel
from fernn.experiments.recipes import recipes
from fernn.experiments.results import Result, Results
from fernn.experiments.typeset import as_mathtext

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

DATASETS = {"translation": "Translating MNIST, V^T_2", "rotation": "Rotating MNIST, V^R_4"}
LENGTH = 60  # frames beyond those observed, in Figures 4 and 13

Line = tuple[list[float], list[float]]


def learning(results: Results, scale: str | None) -> list[Panel]:
    """Figure 3: validation loss against the training step."""
    models = [table_models(f"table1/{part}/", results) for part in DATASETS]

    def line(run: Result) -> Line:
        points = [(p["step"], p["val_loss"]) for p in run.curve if p.get("val_loss") is not None]
        return [float(x) for x, _ in points], [float(y) for _, y in points]

    return [
        _lines(title, chosen, line, xlabel="training step", ylabel="validation loss (MSE)")
        for title, chosen in zip(
            DATASETS.values(), choose_each(models, results, scale), strict=True
        )
    ]


def lengths(results: Results, scale: str | None, part: str) -> Panel:
    """Figures 4 and 13: error at every step of a forecast much longer than those of training."""
    chosen = choose(table_models(f"table1/{part}/", results), results, scale)

    def line(run: Result) -> Line:
        found = run.metrics.get("mse_per_step_long", [])[:LENGTH]
        errors = [math.nan if error is None else float(error) for error in found]
        return [float(step) for step in range(1, len(errors) + 1)], errors

    trained = {
        len(run.metrics.get("mse_per_step", [])) for runs in chosen.runs.values() for run in runs
    }
    steps = next(iter(trained)) if len(trained) == 1 else 0

    def shade(axes: "Axes") -> None:
        if steps:
            axes.axvspan(0, steps, color="0.9", zorder=0, label="length of training")

    title = f"{DATASETS[part]}: error along the forecast"
    return _lines(title, chosen, line, xlabel="forecast step", ylabel="MSE", also=shade, start=0.0)


def cost(results: Results, scale: str | None) -> list[Panel]:
    """Figure 11: runtime and memory against the number of velocities."""
    names = sorted((name for name in recipes() if name.startswith("runtime/")), key=_velocities)
    models = [Model(name, name.rpartition("/")[2], DARK) for name in names]
    chosen = choose(models, results, scale)
    panels = []
    for title, ylabel, read in (
        ("Runtime", "ms a sequence", _milliseconds),
        ("Memory", "GiB at the peak", _gibibytes),
    ):
        points = [
            (_velocities(model.recipe), value)
            for model in chosen.models
            for run in chosen.runs[model.recipe]
            if (value := read(run)) is not None
        ]
        missing = chosen.missing
        if not points and chosen.models:  # a processor has no peak of GPU memory
            missing = (*missing, f"{title.lower()}, which is measured on a GPU")
        paint = _scatter(points, ylabel) if points else None
        title = f"{title} against |V|, training"
        panels.append(Panel(title, paint, missing, chosen.note, scale=chosen.scale))
    return panels


def _scatter(points: Sequence[tuple[int, float]], ylabel: str) -> Callable[["FigureBase"], None]:
    def paint(figure: "FigureBase") -> None:
        axes = figure.subplots()
        x, y = np.array(points, dtype=float).T
        axes.plot(x, y, "o", color="#0072b2")
        if len(set(x)) > 1:
            slope, intercept = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            label = f"{slope:.3g} |V| {'+' if intercept >= 0 else '−'} {abs(intercept):.3g}"
            axes.plot(ends, slope * ends + intercept, "--", color=LIGHT, lw=1, label=label)
            axes.legend(frameon=False, fontsize=8)
        axes.set(xlabel="|V|, x-velocities", ylabel=ylabel, ylim=(0, None))
        axes.set_xticks(sorted(set(x)))
        tidy(axes)

    return paint


def _lines(
    title: str,
    chosen: Chosen,
    read: Callable[[Result], Line],
    *,
    xlabel: str,
    ylabel: str,
    also: Callable[["Axes"], None] | None = None,
    start: float | None = None,
) -> Panel:
    """A line a model on a logarithmic scale: the mean of its seeds, and each of them thin."""
    lines: dict[str, list[Line]] = {
        model.recipe: [line for run in chosen.runs[model.recipe] if (line := read(run))[0]]
        for model in chosen.models
    }
    missing = (*chosen.missing, *(name for name, have in lines.items() if not have))

    def paint(figure: "FigureBase") -> None:
        axes = figure.subplots()
        for model in chosen.models:
            have = lines[model.recipe]
            if len(have) > 1:
                for x, y in have:
                    axes.plot(x, y, model.dash, color=model.colour, lw=0.6, alpha=0.45)
            together = [y for x, y in have if x == have[0][0]]
            if have:
                axes.plot(
                    have[0][0],
                    np.mean(together, 0),
                    model.dash,
                    color=model.colour,
                    lw=1.8,
                    marker="o" if len(have[0][0]) < 15 else None,
                    ms=3,
                    label=as_mathtext(model.label),
                )
        axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
        axes.locator_params("x", integer=True, min_n_ticks=1)
        if start is not None:
            axes.set_xlim(left=start)
        if also is not None:
            also(axes)
        tidy(axes)
        axes.legend(  # above the axes: curves go anywhere below
            frameon=False,
            fontsize=7,
            ncols=2,
            columnspacing=1.0,
            handlelength=1.6,
            loc="lower left",
            bbox_to_anchor=(-0.05, 1.0),
        )

    shown = paint if any(lines.values()) else None
    return Panel(title, shown, missing, chosen.note, scale=chosen.scale)


def tidy(axes: "Axes") -> None:
    """Less ink: no box, a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)


def _velocities(name: str) -> int:
    digits = name.rpartition("/v")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _milliseconds(run: Result) -> float | None:
    speed = run.record.get("sequences_per_second")
    return 1000 / float(speed) if speed else None


def _gibibytes(run: Result) -> float | None:
    memory = run.record.get("peak_memory_bytes")
    return float(memory) / 2**30 if memory else None
