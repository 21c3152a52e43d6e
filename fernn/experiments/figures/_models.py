"""Which models a figure compares, in which colours, and the runs it takes them from."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from fernn.experiments import paper
from fernn.experiments.recipes import SCALES, recipes
from fernn.experiments.results import Result, Results

COLOURS = {
    "cnn3d": "#8c8c8c",
    "grnn-plus": "#e69f00",
    "grnn": "#d55e00",
    "fernn-v1": "#56b4e9",
    "fernn-v2": "#0072b2",
    "rotation/fernn-v2": "#56b4e9",  # half of V^R_4, as V^T_1 is of V^T_2
    "fernn-v4": "#0072b2",
    "fernn-3": "#56b4e9",
    "fernn-7": "#0072b2",
    "fernn-11": "#003f63",
}
OTHER = "#009e73"
DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Model:
    """A line or a bar of a figure: the recipe behind it and how it is drawn."""

    recipe: str
    label: str
    colour: str
    dash: str = "-"
    row: str | None = None
    """The recipe that this one is a variant of: another readout, say."""


@dataclass(frozen=True)
class Chosen:
    """The models that have runs at one scale, those runs, and the recipes that have none."""

    models: tuple[Model, ...]
    runs: dict[str, list[Result]]
    scale: str | None
    missing: tuple[str, ...]
    settings: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What stands below the figure: scale, epochs, seeds, what was set, hardware."""
        runs = [run for group in self.runs.values() for run in group]
        if not runs:
            return ""
        seeds = sorted({len(group) for group in self.runs.values()})
        epochs = sorted({int(run.record.get("epochs", 0)) for run in runs})
        hardware = sorted({run.hardware for run in runs})
        counts = (_span(epochs, "epoch"), _span(seeds, "seed"))
        # Its titles are the paper's, whose velocities it has only some of.
        smaller = ("another, smaller task",) if self.scale == "quick" else ()
        about = (f"scale {self.scale}", *smaller, *counts, *self.settings)
        note = f"{', '.join(about)}; {', '.join(hardware)}"
        if all(run.same_data(runs[0]) for run in runs):
            return note
        return f"{note}; not on the same data: {', '.join(Results(tuple(runs)).data_of(runs))}"


def best_scale(models: Sequence[Model], results: Results) -> str | None:
    """The scale with runs of the most models, the largest of several; a variant is its row.

    Quick runs, another and smaller task, are drawn where there are no others. None where there are
    no runs at all.
    """
    return scale_of({model.recipe: model.row or model.recipe for model in models}, results)


def scale_of(rows: Mapping[str, str], results: Results) -> str | None:
    """The scale with runs of the most rows, of which recipes are variants; see `best_scale`."""
    have = {
        s: {rows[r.name] for r in results.found if r.scale == s and r.name in rows} for s in SCALES
    }
    larger = [scale for scale in SCALES if scale != "quick" and have[scale]]
    best = max(larger or ("quick",), key=lambda scale: len(have[scale]))  # the first, the largest
    return best if have[best] else None


def choose(models: Sequence[Model], results: Results, scale: str | None = None) -> Chosen:
    """The runs to draw in a panel that is a figure by itself; see `choose_each`."""
    return choose_each([models], results, scale)[0]


def choose_each(
    panels: Sequence[Sequence[Model]], results: Results, scale: str | None = None
) -> list[Chosen]:
    """The runs to draw in each panel of a figure, all at one scale: two would be two experiments.

    It is the given one, or the best for all of their models together.
    """
    every = [model for models in panels for model in models]
    at = best_scale(every, results) if scale is None else scale
    return [_chosen(models, results, at) for models in panels]


def _chosen(models: Sequence[Model], results: Results, at: str | None) -> Chosen:
    """A row of the paper is missing where neither it nor a variant has runs at the scale; where one
    variant of the other rows is drawn, it is that variant of it."""
    runs = {model.recipe: results.named(model.recipe, at) if at else [] for model in models}
    have = tuple(model for model in models if runs[model.recipe])
    shown = {name for m in have for name in (m.recipe, m.row)}
    ends = {m.recipe.removeprefix(m.row) for m in have if m.row}
    missing = tuple(
        _variant(m.recipe, ends) for m in models if m.row is None and m.recipe not in shown
    )
    kept = {m.recipe: runs[m.recipe] for m in have}
    return Chosen(have, kept, at, missing, results.settings)


def _variant(name: str, ends: Set[str]) -> str:
    """The variant of a recipe with the only one of these endings, where there is such a recipe."""
    others = [name + end for end in ends if len(ends) == 1 and name + end in recipes()]
    return others[0] if others else name


def table_models(prefix: str, results: Results) -> list[Model]:
    """The rows of one of the paper's tables, each followed by its variants that have results."""
    known = {value.recipe: value.row for value in paper.VALUES if value.recipe.startswith(prefix)}
    return models(known, results)


def figure_models(prefix: str, results: Results) -> list[Model]:
    """The recipes of a figure, each followed by its variants that have results."""
    every = {name: r.published.row for name, r in recipes().items() if name.startswith(prefix)}
    slugs = tuple(sorted(COLOURS, key=len))
    return models({n: row for n, row in every.items() if n.endswith(slugs)}, results)


def models(rows: dict[str, str], results: Results) -> list[Model]:
    """Rows by recipe, in colours of their own; a variant shares the colour of its row, lighter."""
    made: list[Model] = []
    for name, label in rows.items():
        slugs = ("/".join(name.split("/")[-2:]), name.rpartition("/")[2])
        colour = next((COLOURS[slug] for slug in slugs if slug in COLOURS), OTHER)
        made.append(Model(name, label, colour))
        variants = [v for v in results.names(name) if v != name and paper.base(v, rows) == name]
        for place, variant in enumerate(variants, start=1):
            words = variant.removeprefix(name).strip("-/").replace("-", " ")
            dash, lighter = DASHES[place % len(DASHES)], _lighter(colour, 0.3 * place)
            made.append(Model(variant, f"{label}, {words}", lighter, dash, row=name))
    return made


def _lighter(colour: str, amount: float) -> str:
    """A colour mixed with white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * min(amount, 0.8)):02x}" for part in parts)


def _span(numbers: Sequence[int], what: str) -> str:
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"{first} {what}{'s' * (first != 1)}"
    return f"{first} to {last} {what}s"
