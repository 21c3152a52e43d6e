"""Accuracy under camera motions that training did not show: Figure 8."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fernn.experiments import paper
from fernn.experiments.figures._curves import tidy
from fernn.experiments.figures._models import COLOURS, Chosen, Model, choose_each
from fernn.experiments.figures._panel import DARK, LIGHT, Panel
from fernn.experiments.results import Result, Results, mean_and_spread
from fernn.experiments.typeset import as_mathtext

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

TRAINED = (0, 1)
MOTIONS = ("V^T_0", "V^T_1", "V^T_2")
_NAMES = {"kth": "KTH", "actions": "clips that stand in for KTH"}


def motions(results: Results, scale: str | None, archive: str) -> list[Panel]:
    """Figure 8: trained on V^T_0 or V^T_1, tested on V^T_0, V^T_1 and V^T_2.

    KTH and its stand-in are drawn apart; what a run was evaluated on decides.
    """
    found = tuple(r for r in results.found if r.stand_in == (archive != "kth"))
    right = replace(results, found=found)
    rows = {value.recipe.rpartition("/")[2]: value.row for value in paper.rows("2")}
    models = [
        [Model(f"fig8/{archive}/v{radius}/{s}", row, COLOURS[s]) for s, row in rows.items()]
        for radius in TRAINED
    ]
    chosen = choose_each(models, right, scale)
    return [_panel(*both, archive) for both in zip(chosen, TRAINED, strict=True)]


def _panel(chosen: Chosen, radius: int, archive: str) -> Panel:
    title = f"Trained on {_NAMES[archive]}, V^T_{radius}"
    if not any(_values(run) for runs in chosen.runs.values() for run in runs):
        return Panel(title, None, chosen.missing, scale=chosen.scale)
    paint = partial(_paint, chosen=chosen, radius=radius)
    return Panel(title, paint, chosen.missing, chosen.note, scale=chosen.scale)


def _values(run: Result) -> dict[str, float]:
    return dict(run.metrics.get("accuracy_per_motion") or {})


def _most_frequent(runs: Sequence[Result]) -> float | None:
    """The accuracy of always answering the most frequent class of the test, where that is known and
    the same for all runs: the share of the largest row of a confusion, whose rows are the truth."""
    counts = {tuple(map(sum, run.metrics.get("confusion") or ())) for run in runs}
    known = counts.pop() if len(counts) == 1 else ()
    return max(known) / sum(known) if sum(known) else None


def _paint(figure: "FigureBase", chosen: Chosen, radius: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    axes = figure.subplots()
    wide = 0.84 / len(chosen.models)
    for place, model in enumerate(chosen.models):
        for spot, motion in enumerate(MOTIONS):
            values = [v[motion] for r in chosen.runs[model.recipe] if motion in (v := _values(r))]
            if not values:
                continue
            mean, spread = mean_and_spread(values)
            x = spot + (place - (len(chosen.models) - 1) / 2) * wide
            axes.bar(
                x,
                mean,
                wide * 0.94,
                yerr=spread,
                error_kw={"lw": 1, "ecolor": "0.25"},
                color=model.colour,
                label=as_mathtext(model.label) if spot == 0 else None,
            )
            top = min(mean + (spread or 0.0), 1.0) + 0.01
            text = f"{mean:.2f}".removeprefix("0")  # the bars are no wider than that
            label = axes.text(x, top, text, ha="center", va="bottom", fontsize=8, color=DARK)
            label.set_path_effects([withStroke(linewidth=2, foreground="white")])
    for spot in range(len(MOTIONS)):
        if spot > radius:
            axes.axvspan(spot - 0.5, spot + 0.5, color="#fdf0e1", zorder=0)
            axes.text(spot, 1.15, "unseen", ha="center", va="top", fontsize=7, color=LIGHT)
    share = _most_frequent([run for runs in chosen.runs.values() for run in runs])
    if share is not None:
        axes.axhline(share, color=DARK, lw=1, ls="--", label=f"most frequent class, {share:.2f}")
    axes.set_xticks(range(len(MOTIONS)), [f"tested on {as_mathtext(m)}" for m in MOTIONS])
    axes.set(ylabel="accuracy", ylim=(0, 1.16), xlim=(-0.5, len(MOTIONS) - 0.5))
    tidy(axes)
    handles, _ = axes.get_legend_handles_labels()
    handles.sort(key=lambda handle: isinstance(handle, Line2D))  # the line after the bars
    axes.legend(
        handles=handles,
        frameon=False,
        fontsize=7.5,
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
    )
