"""What is not trained yet, and about how long it takes on one GPU: `python -m benchmarks.left`.

A time is estimated, not measured: the arithmetic of a recipe over the fastest rate of its kind, in
the benchmark or in a run, where its model was changed in a run with the same settings; of a kind
that was never timed over the rate of a matrix product, which it does not exceed. Evaluation is not
in it. The record goes to `left.json`; counting takes minutes, so pages are written from it.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.report import RECORD
from benchmarks.runs import origin
from fernn.experiments import records, results
from fernn.experiments.flops import flops_per_sequence
from fernn.experiments.numerals import duration
from fernn.experiments.recipes import Recipe, changed, find, from_json, of_training, recipes
from fernn.flows import Rotation

LEFT = RECORD.with_name("left.json")
RUNS = Path(__file__).parent.parent / "results"
SCALES = ("short", "paper")
SEQUENCES = {None: 54_000, "actions": 956, "kth": 1_517}
"""Of an epoch: digits of MNIST without the validation's, clips of the stand-in, ranges of KTH."""
LONGER = ("training.epochs=20", "training.batch_size=32", "training.clip=0.1")
NARROW = ("training.epochs=2", "options.hidden_channels=4", "options.frame=comoving")
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Table 1, translation": ("table1/translation/", ()),
    "Table 1, translation, twenty epochs in batches of 32": ("table1/translation/", LONGER),
    "Table 1, rotation, co-moving": ("table1/rotation/.*comoving", ()),
    "Table 1, rotation, the paper's SE(2)": ("table1/rotation/(?!.*comoving)", ()),
    "The same with 4 of 32 channels, in turning frames, two epochs": (
        "table1/rotation/(?!.*comoving)",
        NARROW,
    ),
    "Tables 2, 3 and 5, stand-in for KTH": ("table[235]/actions/", ()),
    "Tables 2, 3 and 5, KTH": ("table[235]/kth/", ()),
    "Table 4, Bouncing MNIST": ("table4/(?!.*mixing$)", ()),
    "Table 4, full V-mixing": ("table4/.*mixing$", ()),
    "Figure 5, translation": ("fig5/translation/", ()),
    "Figure 5, rotation, co-moving": ("fig5/rotation/.*comoving", ()),
    "Figure 5, rotation, SE(2)": ("fig5/rotation/(?!.*comoving)", ()),
    "Figure 6": ("fig6/", ()),
    "Figure 8, stand-in for KTH": ("fig8/actions/", ()),
    "Figure 8, KTH": ("fig8/kth/", ()),
    "Other sequence models, alone and wrapped": ("wrapper/", ()),
    "Larger baselines": ("larger/", ()),
}
"""The rows: how the names of their recipes begin, and what is changed in these, at `short` then."""


def count() -> dict[str, object]:
    """The runs that each family lacks at each scale, and the seconds of one seed."""
    found = results.load(RUNS)
    speeds, peak = _speeds(RECORD)
    for kind, rate in rates_of_runs(found.every).items():
        speeds[kind] = max(rate, speeds.get(kind, 0.0))
    families: dict[str, object] = {}
    for family, (_, settings) in FAMILIES.items():
        alike = trained_so(found, settings) if settings else ()
        rates = dict(speeds)
        if not of_training(settings):  # a narrower model does not reach the rate of its kind
            rates |= rates_of_runs(alike)
        scales = {}
        for scale in SCALES[: 1 if settings else None]:
            scales[scale] = lacking = {}
            for name in members(family):
                recipe = changed(find(name, scale), settings)
                seeds = recipe.seeds - len(having(found, name, scale, settings))
                if seeds > 0:
                    rate = rates.get(_kind(recipe))
                    flops = flops_per_sequence(recipe)
                    lacking[name] = {
                        "seeds": seeds,
                        "of": recipe.seeds,
                        "seconds": _sequences(recipe) * flops / (rate or peak),
                        "timed": rate is not None,
                    }
        families[family] = {"recipes": len(members(family)), **scales}
        print(family, scales, flush=True)
    return {"environment": records.environment(), "families": families}


def table(record: dict) -> str:
    """A row a family, with what it lacks: one seed of what has none, and all seeds."""
    rows = []
    for family, about in record["families"].items():
        cells: list[str] = []
        for scale in SCALES:
            lacking = list(about.get(scale, {}).values())
            none = [{**row, "seeds": 1} for row in lacking if row["seeds"] == row["of"]]
            cells += [_cell(none), _cell(lacking)]
        if any(cell != "–" for cell in cells):
            rows.append([family, *cells])
    columns = ["not trained"]
    for scale in SCALES:
        columns += [f"`{scale}`, a first seed", f"`{scale}`, all seeds"]
    return markdown.table(
        columns, rows, words=range(len(columns)), about=origin(record["environment"])
    )


def members(family: str) -> list[str]:
    """The recipes of a family."""
    return [name for name in recipes() if re.match(FAMILIES[family][0], name)]


def trained_so(found: results.Results, settings: tuple[str, ...]) -> list[results.Result]:
    """The runs that were changed so; of no settings those of the recipes as they are."""
    return [run for run in found.every if sorted(run.changes) == sorted(settings)]


def having(
    found: results.Results, name: str, scale: str, settings: tuple[str, ...]
) -> list[results.Result]:
    """The runs of one recipe, a seed each."""
    return [r for r in trained_so(found, settings) if (r.name, r.scale) == (name, scale)]


def _cell(lacking: list[dict[str, Any]]) -> str:
    """How many runs, and how long they take together; "at least" where a kind was never timed."""
    if not lacking:
        return "–"
    runs = sum(row["seeds"] for row in lacking)
    seconds = sum(row["seeds"] * row["seconds"] for row in lacking)
    about = "" if all(row["timed"] for row in lacking) else "at least "
    return f"{runs} run{'s' * (runs > 1)}, {about}{duration(seconds)}"


def _sequences(recipe: Recipe) -> int:
    return recipe.training.epochs * SEQUENCES[recipe.data.archive]


def _kind(recipe: Recipe) -> str:
    """The row of the benchmark that runs the same kernels, or a name of what has no row."""
    options = recipe.options
    if recipe.model == "Classifier":
        if options.get("transport") == "learned":
            return "G-RNN+"
        count = len(options["flow"])  # few images of few channels do not fill a GPU
        small = count < 25 and options["hidden_channels"] <= 128
        return f"Clips, |V| = {count}" if small else "Clips, FERNN-V^T_2"
    if recipe.model == "SequenceForecaster":
        return f"{options['sequence']}, |V| = {len(options['flow'])}"
    if recipe.model != "Forecaster":
        return recipe.model
    if options.get("mixing") is not None:
        return "full mixing" if options["mixing"] == "full" else "FERNN-V^T_2, V-mixing"
    flow = options["flow"]
    if isinstance(flow, Rotation):
        co_moving = options.get("frame") == "comoving"
        return "FERNN-V^R_4, co-moving" if co_moving else "FERNN-V^R_4, SE(2)"
    return {1: "G-RNN", 9: "FERNN-V^T_1"}.get(len(flow), "FERNN-V^T_2")


def rates_of_runs(runs: Iterable[results.Result]) -> dict[str, float]:
    """Operations a second of each kind, of its fastest run on a GPU at a scale of the paper's."""
    rates: dict[str, float] = {}
    for run in runs:
        record = run.record
        if run.scale in SCALES and record["device"].startswith("cuda"):
            kind = _kind(from_json(record["recipe"]))
            rate = record["flops_per_sequence"] * record["sequences_per_second"]
            rates[kind] = max(rate, rates.get(kind, 0.0))
    return rates


def _speeds(path: Path) -> tuple[dict[str, float], float]:
    """Operations a second of each row of the benchmark, as a graph, and of a matrix product."""
    record = json.loads(path.read_text(encoding="utf-8"))
    peak = record["matmul_flops_per_second"]
    return {name: row["fraction_of_floor"] * peak for name, row in record["rows"].items()}, peak


if __name__ == "__main__":
    records.write(LEFT, count())
