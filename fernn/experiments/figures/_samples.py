"""Pictures of sequences: forecasts beside the truth, and clips under a moving camera."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch

from fernn.data import Batch, ClipArchive, MovingClips
from fernn.experiments import lacking, strips
from fernn.experiments.datasets import Source, digits_of
from fernn.experiments.evaluate import at_velocity
from fernn.experiments.figures._models import (
    Chosen,
    Model,
    choose_each,
    figure_models,
    table_models,
)
from fernn.experiments.figures._panel import Panel
from fernn.experiments.recipes import from_json
from fernn.experiments.results import KTH, Result, Results
from fernn.flows import Flow, Translation

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

MOST = 4  # models in a strip; more would be too many to compare
_ENDS = {"translation": ("grnn", "fernn-v2"), "rotation": ("grnn", "fernn-v4")}
_FRAMES = 8  # of a clip
_CELL, _ROW = 0.62, 0.7  # inches a frame, and from one row of frames to the next


@dataclass(frozen=True)
class Sources:
    """Where sequences come from, and where models run."""

    root: Source | None = None
    archive: Source | None = None
    device: str | torch.device = "cpu"
    cache: strips.Cache = field(default_factory=dict, compare=False, repr=False)

    def forecast(
        self, runs: dict[str, Result], horizon: int, *, which: int = 0, flow: Flow | None = None
    ) -> strips.Forecast:
        """What the models of these runs make of a test sequence."""
        return strips.forecast(
            runs,
            horizon=horizon,
            which=which,
            flow=flow,
            root=self.root,
            device=self.device,
            cache=self.cache,
        )


@dataclass(frozen=True)
class Strips:
    """The runs that a strip compares, under their labels, and what is missing."""

    runs: dict[str, Result]
    missing: tuple[str, ...]
    note: str
    scale: str | None


def in_distribution(parts: Iterable[str], results: Results, scale: str | None) -> list[Strips]:
    """The runs of Figure 12: every row of Table 1."""
    return _kept([table_models(f"table1/{part}/", results) for part in parts], results, scale)


def extremes(part: str, results: Results, scale: str | None) -> Strips:
    """The runs of Figures 4 and 14: the G-RNN and the FERNN with the largest V."""
    models = [m for m in table_models(f"table1/{part}/", results) if _is_end(m, part)]
    return _kept([models], results, scale)[0]


def unseen(parts: Iterable[str], results: Results, scale: str | None) -> list[Strips]:
    """The runs of Figure 15: trained on few velocities."""
    return _kept([figure_models(f"fig5/{part}/", results) for part in parts], results, scale)


def fastest(run: Result) -> Flow:
    """The flow at the two fastest velocities of a model's V: those that training did not show."""
    recipe = from_json(run.record["recipe"])
    velocities = recipe.options["flow"].velocities
    speeds = velocities.abs().sum(-1)
    chosen = velocities[speeds == speeds.max()].tolist()
    if isinstance(recipe.data.test_flow, Translation):
        return Translation(velocities=[[int(c) for c in v] for v in chosen])
    return at_velocity(recipe.data.test_flow, [float(v[0]) for v in chosen])


def strip_panel(
    title: str,
    found: Strips,
    sources: Sources,
    *,
    horizon: int | None = None,
    columns: int = 10,
    flow: Flow | None = None,
    which: int = 0,
    errors: bool = True,
) -> Panel:
    """One test sequence and what the models make of it."""
    if not found.runs:
        return Panel(title, None, found.missing, scale=found.scale)
    steps = horizon or from_json(next(iter(found.runs.values())).record["recipe"]).data.horizon
    rows = 1 + (2 if errors else 1) * len(found.runs)

    def paint(figure: "FigureBase") -> None:
        made = sources.forecast(found.runs, steps, which=which, flow=flow)
        strips.strip(figure, made, strips.times(steps, columns), errors=errors)

    here, note = digits_of(sources.root), found.note
    if others := {run.data for run in found.runs.values()} - {here, "unknown"}:
        note += f"; frames are made of {here}, runs of {', '.join(sorted(others))}"
    count, wide = strips.bands(min(steps, columns) + strips.BEFORE)
    size = (1.3 + _CELL * wide, count * (0.4 + _ROW * rows))
    return Panel(title, paint, found.missing, note, size, found.scale)


def clips(radius: int, sources: Sources, *, rows: int = 3) -> Panel:
    """Figures 7 and 10: clips under a camera that moves with V^T_radius."""
    if sources.archive is None:
        return Panel(f"Moving KTH, V^T_{radius}", None, (lacking.ARCHIVE,))
    archive = ClipArchive.load(sources.archive)
    name = "Moving KTH" if archive.name == KTH else f"{archive.name}, which stands in for KTH"
    videos = MovingClips(archive, Translation(radius=radius), "test")
    # Clips are sorted by class, so equal steps through them show different ones.
    batch = videos.batch([i * len(videos) // rows for i in range(rows)], epoch=0)
    size = (1.3 + _CELL * _FRAMES, 0.7 + _CELL * rows)

    def paint(figure: "FigureBase") -> None:
        _frames(figure, batch, archive.classes)

    return Panel(f"{name}, V^T_{radius}", paint, size=size)


def _frames(figure: "FigureBase", batch: Batch, classes: tuple[str, ...]) -> None:
    grid = figure.subplots(len(batch.frames), 1, squeeze=False)[:, 0]
    times = [column * batch.frames.shape[1] // _FRAMES for column in range(_FRAMES)]
    for row, (axes, video) in enumerate(zip(grid, batch.frames[:, :, 0], strict=True)):
        moved = "  ".join(f"{c:+d}" if c else "0" for c in batch.velocities[row, 0].tolist())
        label = f"{classes[int(batch.labels[row])]}\n{moved}"
        above = [f"t = {time}" for time in times] if row == 0 else None
        strips.film(axes, list(video[times]), label, above)


def _few(models: Sequence[Model]) -> list[Model]:
    """No more models than can be seen, in their order: first one of each row, then variants."""
    rows: dict[str, list[Model]] = {}
    for model in models:
        rows.setdefault(model.row or model.recipe, []).append(model)
    turns = [m for turn in zip_longest(*rows.values()) for m in turn if m is not None]
    return [model for model in models if model in turns[:MOST]]


def _is_end(model: Model, part: str) -> bool:
    slug = model.recipe.rpartition("/")[2]
    return any(slug == end or slug.startswith(f"{end}-") for end in _ENDS[part])


def _kept(panels: Sequence[Sequence[Model]], results: Results, scale: str | None) -> list[Strips]:
    """For each panel the first seed of each model, among the runs whose weights are there."""
    kept = replace(results, found=tuple(r for r in results.found if r.weights))
    every = choose_each(panels, kept, scale)
    return [_strips(*both, results) for both in zip(panels, every, strict=True)]


def _strips(models: Sequence[Model], chosen: Chosen, results: Results) -> Strips:
    runs = {model.label: chosen.runs[model.recipe][0] for model in _few(chosen.models)}
    recorded = {r.name for r in results.found if chosen.scale in (None, r.scale)}
    missing: list[str] = []
    for row in chosen.missing:
        without = [m.recipe for m in models if row in (m.recipe, m.row) and m.recipe in recorded]
        missing += [lacking.weights_of(name) for name in without] or [row]
    seeds = sorted({run.seed for run in runs.values()})
    about = (f"scale {chosen.scale}, seed {', '.join(map(str, seeds))}", *chosen.settings)
    note = ", ".join(about) if runs else ""
    return Strips(runs, tuple(missing), note, chosen.scale)
