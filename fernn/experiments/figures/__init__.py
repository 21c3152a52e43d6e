"""The paper's figures from records alone, and from the weights of a run where it forecasts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fernn import _check
from fernn._nearest import nearest
from fernn.experiments import counterexample, lacking
from fernn.experiments.figures import _bars, _curves, _samples, _velocity
from fernn.experiments.figures._curves import DATASETS
from fernn.experiments.figures._models import best_scale, scale_of, table_models
from fernn.experiments.figures._panel import Panel, compose, drawn, form, save
from fernn.experiments.figures._samples import Sources, extremes
from fernn.experiments.recipes import SCALES
from fernn.experiments.results import Results

__all__ = [
    "DATASETS",
    "FIGURES",
    "OF_DATA",
    "Panel",
    "Sources",
    "compose",
    "draw",
    "drawn",
    "extremes",
    "panels",
    "save",
    "usual",
    "with_settings",
]

Maker = Callable[[Results, str | None, Sources], list[Panel]]


def _four(results: Results, scale: str | None, sources: Sources) -> list[Panel]:
    models = table_models("table1/translation/", results)
    at = best_scale(models, results) if scale is None else scale
    found = _samples.extremes("translation", results, at)
    title = f"{DATASETS['translation']}: forecasts beyond the length of training"
    strip = _samples.strip_panel(title, found, sources, horizon=_curves.LENGTH, columns=12)
    return [_curves.lengths(results, at, "translation"), strip]


def _twelve(results: Results, scale: str | None, sources: Sources) -> list[Panel]:
    every = _samples.in_distribution(DATASETS, results, scale)
    return [
        _samples.strip_panel(f"{title}: forecasts", found, sources)
        for title, found in zip(DATASETS.values(), every, strict=True)
    ]


def _fourteen(results: Results, scale: str | None, sources: Sources) -> list[Panel]:
    found = _samples.extremes("translation", results, scale)
    title = f"{DATASETS['translation']}: 70 frames forecast, every second one shown"
    return [
        _samples.strip_panel(title, found, sources, horizon=70, columns=35, which=1, errors=False)
    ]


def _fifteen(results: Results, scale: str | None, sources: Sources) -> list[Panel]:
    made, parts = [], {"translation": "V^T_1", "rotation": "V^R_1"}
    every = _samples.unseen(parts, results, scale)
    for trained, found in zip(parts.values(), every, strict=True):
        fast = _samples.fastest(list(found.runs.values())[-1]) if found.runs else None
        title = f"Trained on {trained}, tested at the fastest velocities of the FERNN's V"
        made.append(_samples.strip_panel(title, found, sources, flow=fast))
    return made


FIGURES: dict[str, tuple[str, Maker]] = {
    "3": ("Validation loss against training steps", lambda r, s, _: _curves.learning(r, s)),
    "4": ("Forecasts longer than those of training, translation", _four),
    "5": ("Velocities that training did not show", lambda r, s, _: _velocity.unseen(r, s)),
    "6": ("Velocities between those of V", lambda r, s, _: _velocity.between(r, s)),
    "7": ("Clips under a moving camera", lambda _, __, at: [_samples.clips(2, at, rows=5)]),
    "8": ("Accuracy under unseen motion, KTH", lambda r, s, _: _bars.motions(r, s, "kth")),
    "8-actions": (
        "Accuracy under unseen motion, stand-in for KTH",
        lambda r, s, _: _bars.motions(r, s, "actions"),
    ),
    "10": (
        "Clips under V^T_0, V^T_1 and V^T_2",
        lambda _, __, at: [_samples.clips(radius, at) for radius in (0, 1, 2)],
    ),
    "11": ("Runtime and memory against |V|", lambda r, s, _: _curves.cost(r, s)),
    "12": ("Forecasts at the velocities of training", _twelve),
    "13": (
        "Forecasts longer than those of training, rotation",
        lambda r, s, _: [_curves.lengths(r, s, "rotation")],
    ),
    "14": ("Forecasts of 70 frames, translation", _fourteen),
    "15": ("Forecasts at velocities that training did not show", _fifteen),
}


COUNTEREXAMPLE = ("2", "9")
"""The counter-example: G-RNN and FERNN in one picture, which needs no run."""
OF_DATA = ("7", "10")
"""Figures of sequences alone, which need no run either."""


def panels(
    number: str, results: Results, *, scale: str | None = None, sources: Sources | None = None
) -> list[Panel]:
    """The panels of a figure of the paper, each with its data or with what it lacks."""
    if number not in FIGURES:
        known = sorted((*COUNTEREXAMPLE, *FIGURES), key=lambda n: (int(n.partition("-")[0]), n))
        raise ValueError(
            f"`figure` must be one of {', '.join(known)}, got {number!r}.{nearest(number, known)}"
        )
    if scale is not None:
        _check.choice("scale", scale, SCALES)
    return FIGURES[number][1](results, scale, Sources() if sources is None else sources)


def usual(number: str) -> Path:
    """Where a figure is drawn to, unless a user says otherwise."""
    return Path(f"out/figure{number}.png")


def with_settings(number: str, results: Results) -> list[str]:
    """The commands that draw a figure of runs whose training was changed, one for each change."""
    return [lacking.drawing(number, alike) for alike in _others(number, results)]


def _others(number: str, results: Results) -> list[Results]:
    """The runs whose training was changed, change by change, of which a figure can be drawn."""
    groups = results.by_settings()
    return [alike for alike in groups if any(panel.paint for panel in panels(number, alike))]


def draw(
    number: str,
    results: Results,
    path: Path,
    *,
    scale: str | None = None,
    sources: Sources | None = None,
    settings: Sequence[str] = (),
) -> list[str]:
    """Draw a figure to a file; returns what it lacks and how to get it, in lines.

    It is of the recipes as they are, or of those that were trained as `settings` ask. One that
    lacks everything is not drawn.
    """
    form(path)
    if settings and number in (*COUNTEREXAMPLE, *OF_DATA):
        raise ValueError(f"`--set` must be left out, for figure {number} is of no run.")
    if scale is not None:
        _check.choice("scale", scale, SCALES)
    if number in COUNTEREXAMPLE:
        save(counterexample.drawn(counterexample.counterexample()), path)
        return []
    chosen = results.set_to(settings) if settings else results
    sources = Sources() if sources is None else sources
    made = panels(number, chosen, scale=scale, sources=sources)
    given = lacking.Given(sources.root, sources.archive, None if path == usual(number) else path)
    told = _told(number, made, results, chosen, scale, given)
    if not any(panel.paint for panel in made):
        raise FileNotFoundError("\n  ".join((f"figure {number} has nothing to draw.", *told)))
    save(compose(made), path)
    return told


def _told(
    number: str,
    made: Sequence[Panel],
    results: Results,
    chosen: Results,
    scale: str | None,
    given: lacking.Given,
) -> list[str]:
    """What a figure lacks, then the ways to it: runs that are there first, training last."""
    missing = [name for panel in made for name in panel.missing]
    if not missing:
        return []
    rest = replace(results, changed=tuple(r for r in results.changed if r not in chosen.found))
    others = _others(number, rest if scale is None else rest.at(scale))
    lost = any(map(lacking.are_weights, missing))

    def place(alike: Results) -> tuple[bool, bool]:
        """First what was asked for and more, then what has the weights that this has not."""
        return not {*chosen.settings} <= {*alike.settings}, lost and not _have_weights(alike)

    told = lacking.lines(missing)
    for alike in sorted(others, key=place):
        what = "runs with weights" if lost and _have_weights(alike) else "trained otherwise"
        told.append(f"{what}: {lacking.drawing(number, alike, given)}")
    names = [lacking.recipe_of(name) for name in missing]
    drawn_at = next((panel.scale for panel in made if panel.scale), None)
    at = scale or drawn_at or scale_of({name: name for name in names}, results)
    if way := lacking.remedy(missing, chosen, at, given):
        told.append(f"to get it: {way}")
    other = f"{number}-actions"  # on the clips that stand in for KTH
    if other in FIGURES and any(panel.paint for panel in panels(other, results)):
        told.append(lacking.instead("figure", other, results))
    return told


def _have_weights(results: Results) -> bool:
    return any(r.weights for r in results.found)
