"""What is not trained yet, and about how long it takes on one GPU: `python -m benchmarks.left`.

A time is estimated, not measured: the arithmetic of a recipe over the fastest rate of its kind, in
the benchmark or in a run. Evaluation, some tens of seconds a run, is not in it. The record goes to
`left.json`; counting takes a minute, so README is written from it.
"""

import json
import re
from pathlib import Path

from benchmarks import markdown
from benchmarks.report import RECORD
from fernn.experiments import records, results
from fernn.experiments.flops import flops_per_sequence
from fernn.experiments.numerals import duration
from fernn.experiments.recipes import Recipe, find, from_json, recipes
from fernn.flows import Rotation

LEFT = RECORD.with_name("left.json")
RUNS = Path(__file__).parent.parent / "results"
SCALES = ("short", "paper")
DIGITS, CLIPS = 54_000, 956
"""Sequences of an epoch: digits of MNIST without the validation's, clips of the stand-in."""
FAMILIES = {
    "Table 1, translation": "table1/translation/",
    "Table 1, rotation, co-moving": "table1/rotation/.*comoving",
    "Table 1, rotation, the paper's SE(2)": "table1/rotation/(?!.*comoving)",
    "Table 2, stand-in for KTH": "table2/actions/",
    "Table 3, stand-in for KTH": "table3/actions/",
    "Table 4, Bouncing MNIST": "table4/",
    "Table 5, stand-in for KTH": "table5/actions/",
    "Figure 5, translation": "fig5/translation/",
    "Figure 5, rotation, co-moving": "fig5/rotation/.*comoving",
    "Figure 5, rotation, SE(2)": "fig5/rotation/(?!.*comoving)",
    "Figure 6": "fig6/",
    "Figure 8, stand-in for KTH": "fig8/actions/",
    "Other sequence models, alone and wrapped": "wrapper/",
    "Larger baselines": "larger/(mnist|actions)",
}
"""The rows, and how the names of their recipes begin."""


def count() -> dict[str, object]:
    """The recipes of each family that have no run at each scale, and the seconds of one seed."""
    found = results.load(RUNS)
    speeds = rates_of_runs(found)
    for kind, rate in _speeds(RECORD).items():
        speeds[kind] = max(rate, speeds.get(kind, 0.0))
    families: dict[str, object] = {}
    for family in FAMILIES:
        names = members(family)
        flops = {
            name: flops_per_sequence(find(name)) for name in names if _kind(find(name)) in speeds
        }
        scales = {}
        for scale in SCALES:
            done = {run.name for run in found.at(scale).found}
            scales[scale] = {
                name: _seconds(find(name, scale), flops.get(name), speeds)
                for name in names
                if name not in done
            }
        families[family] = {"recipes": len(names), **scales}
        print(family, scales, flush=True)
    return {"environment": records.environment(), "families": families}


def table(record: dict) -> str:
    """A row a family, with what it lacks."""
    rows = []
    for family, about in record["families"].items():
        cells = [_cell(about[scale], about["recipes"]) for scale in SCALES]
        if any(cells):
            rows.append([family, *(cell or "–" for cell in cells)])
    return markdown.table(
        ["not trained yet", "scale `short`", "scale `paper`"], rows, words=range(3)
    )


def members(family: str) -> list[str]:
    """The recipes of a family."""
    return [name for name in recipes() if re.match(FAMILIES[family], name)]


def _cell(lacking: dict[str, float | None], total: int) -> str:
    if not lacking:
        return ""
    known = [seconds for seconds in lacking.values() if seconds is not None]
    parts = [f"{len(lacking)} left of {total}" if len(lacking) < total else f"all {total}"]
    if known:
        parts.append(f"about {duration(sum(known))}")
    if len(known) < len(lacking):
        unknown = len(lacking) - len(known)
        parts.append(f"{unknown} of unknown speed" if known else "of unknown speed")
    return ", ".join(parts)


def _seconds(recipe: Recipe, flops: float | None, speeds: dict[str, float]) -> float | None:
    """The training of one seed, or None for a kind of model that was never timed."""
    rate = speeds.get(_kind(recipe))
    if flops is None or rate is None:
        return None
    sequences = recipe.training.epochs * (DIGITS if recipe.task == "forecast" else CLIPS)
    return sequences * flops / rate


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


def rates_of_runs(found: results.Results) -> dict[str, float]:
    """Operations a second of each kind, of its fastest run on a GPU at a scale of the paper's."""
    rates: dict[str, float] = {}
    for run in (*found.found, *found.changed):
        record = run.record
        if run.scale in SCALES and record["device"].startswith("cuda"):
            kind = _kind(from_json(record["recipe"]))
            rate = record["flops_per_sequence"] * record["sequences_per_second"]
            rates[kind] = max(rate, rates.get(kind, 0.0))
    return rates


def _speeds(path: Path) -> dict[str, float]:
    """Operations a second of each row of the benchmark, as a graph."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: row["fraction_of_floor"] * record["matmul_flops_per_second"]
        for name, row in record["rows"].items()
    }


if __name__ == "__main__":
    records.write(LEFT, count())
