"""Write the measured tables of README and docs from the records: `python -m benchmarks.readme`.

A section lies between `<!-- NAME: begin … -->` and `<!-- NAME: end -->`; a test holds the README to
what this prints, so no number in a table is typed by hand.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks import apart, controls, far, left, markdown, naive, report, runs, seen
from benchmarks.markdown import number
from benchmarks.runs import origin
from fernn._files import written_whole
from fernn.experiments import records, results
from fernn.experiments.numerals import duration
from fernn.models import pretrained_record

ROOT = Path(__file__).parent.parent


def verification(record: dict) -> str:
    """The table of errors that `fernn verify --record` wrote."""
    columns = ["flow", "model", "float64", "trained", "float32", "bfloat16"]
    columns += ["all of V", "interpolation", "verdict"]
    rows = ([number(row[name]).replace("|", "\\|") for name in columns] for row in record["rows"])
    return markdown.table(columns, rows, words=(0, 1, 8), about=_origin(record))


def pretrained(record: dict) -> str:
    """The weights in the package: what they reach, by the records beside them, and the table of
    errors that `fernn verify pretrained --record` wrote."""
    columns = ["weights", "model", "trained", "test MSE", "step 60", "states"]
    columns += ["forecast, V closed"]
    rows = []
    for row in record["rows"]:
        about = pretrained_record(row["name"])
        recipe, metrics = about["recipe"], about["metrics"]
        cells = [
            f"`{row['name']}`",
            ", ".join([recipe["published"]["row"], *_variant(recipe["options"])]),
            f"epoch {about['best_epoch']} of {about['epochs']}, {duration(about['wall_seconds'])}",
            number(metrics["test_mse"]),
            number(metrics["mse_per_step_long"][59]),
            f"{number(row['float64'])}, {row['verdict']}",
            f"{number(row['forecast'])}, {row['forecast verdict']}",
        ]
        rows.append(cells)
    trained = {
        f"{about['precision']} on an {about['environment']['gpu']}, seed {about['seed']}, commit "
        + ", ".join(map(records.short, records.commits(about)))
        for about in (pretrained_record(row["name"]) for row in record["rows"])
    }
    about = f"Trained in {'; '.join(sorted(trained))}. Verified on {origin(record['environment'])}"
    return markdown.table(columns, rows, words=range(3), about=about)


def _variant(options: dict) -> list[str]:
    """How a model differs from the paper's: in its readout and in its frame."""
    return [options["readout"], *(["co-moving"] if options.get("frame") == "comoving" else [])]


def steering(record: dict) -> str:
    """How well convolutions on Z² ⋊ C_N turn."""
    columns = ["N", "kernel", "quarter turn, stack", "360°/N, lift", "360°/N, stack"]
    columns += ["lift, kernels not turned"]
    rows = []
    for row in record["steering"]:
        size = f"{row['kernel']}×{row['kernel']}"
        errors = [number(row[name]) for name in ("quarter", "lift", "stack", "fixed")]
        rows.append([row["orientations"], size, *errors])
    return markdown.table(columns, rows, words=(), about=_origin(record))


def _origin(record: dict) -> str:
    return f"{origin(record['environment'])}, seed {record['seed']}"


def cpu(record: dict) -> str:
    """Time and peak memory of both formulations on a CPU."""
    rows = (
        [name, f"{median['seconds']:.1f}", f"{median['peak_gib']:.2f}"]
        for name, median in record["median"].items()
    )
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    about = f"{settings}; {origin(record['environment'])}"
    return markdown.table(
        ["forward and backward on a CPU", "seconds", "peak GiB"], rows, about=about
    )


def rates(record: dict) -> str:
    """Sequences a second of every dataset, at its fastest batch size."""
    rows = []
    best: dict[str, dict[str, dict]] = {}
    for row in record["results"]:
        there = best.setdefault(row["name"], {})
        fastest = there.get(row["device"])
        if fastest is None or row["sequences_per_second"] > fastest["sequences_per_second"]:
            there[row["device"]] = row
    for name, there in best.items():
        cells = [
            f"{row['sequences_per_second']:,.0f}/s (batch {row['batch']})"
            for row in (there["cpu"], there["cuda"])
        ]
        rows.append([name, *cells])
    about = origin(record["environment"])
    return markdown.table(["dataset", "one CPU core", "GPU"], rows, about=about)


def drift(record: dict) -> str:
    """What is left of the growth of errors in each form."""
    forms = list(next(iter(record["errors"].values())))
    rows = []
    for name, errors in record["errors"].items():
        ends = [(errors[form][9], errors[form][59]) for form in forms]
        cells = [f"{early:.1e}, {late:.1e}, {late / early:.1f}" for early, late in ends]
        rows.append([f"`{name}`", *cells])
    about = f"{record['sequences']} test sequences of {record['digits']}"
    about += f"; {origin(record['environment'])}"
    return markdown.table(["MSE of step 10, of step 60, their ratio", *forms], rows, about=about)


Section = tuple[str, Callable[..., str]]
SECTIONS: dict[str, dict[str, Section]] = {
    "README.md": {
        "best": ("results", runs.best),
        "pretrained": ("results/pretrained-verification.json", pretrained),
        "speed": ("benchmarks/results/gpu.json", report.table),
    },
    "docs/verification.md": {"verification": ("results/verification.json", verification)},
    "docs/speed.md": {
        "streaming": ("benchmarks/results/gpu.json", report.streaming),
        "cpu": ("benchmarks/results/cpu.json", cpu),
        "rates": ("benchmarks/results/data-h200.json", rates),
    },
    "docs/training.md": {
        "controls": ("results/controls", controls.controls),
        "readouts": ("results", runs.readouts),
        "apart": ("benchmarks/results/apart.json", apart.table),
        "observed": ("benchmarks/results/observed.json", apart.table),
        "seen": ("benchmarks/results/seen.json", seen.table),
        "drift": ("benchmarks/results/drift.json", drift),
        "horizons": ("results/controls", controls.horizons),
        "mixing": ("results/controls", controls.mixing),
    },
    "results/README.md": {
        "results": ("results", runs.trained),
        "training": ("results", runs.training),
        "naive": ("benchmarks/results/naive.json", naive.table),
        "left": ("benchmarks/results/left.json", left.table),
        "cost": ("results", runs.spent),
        "lengths": ("results", runs.lengths),
        "far": ("benchmarks/results/far.json", far.table),
        "velocities": ("results", runs.velocities),
    },
    "fernn/ops/README.md": {
        "goals": ("benchmarks/results/gpu.json", report.goals),
        "memory": ("benchmarks/results/gpu.json", report.memory),
    },
    "docs/theory.md": {"steering": ("results/verification.json", steering)},
}


def render(text: str, page: str = "README.md") -> str:
    """The text of a page with every section written anew from its record."""
    for name, (source, write) in SECTIONS[page].items():
        path = ROOT / source  # a record, or a folder of runs
        record = results.load(path) if path.is_dir() else report.load(path)
        pattern = rf"(<!-- {name}: begin.*?-->\n).*?(<!-- {name}: end -->)"
        places = list(re.finditer(pattern, text, flags=re.S))
        if len(places) != 1:
            raise ValueError(f"{page} must have one section {name!r}, found {len(places)}.")
        (place,) = places
        text = f"{text[: place.end(1)]}{write(record)}\n{text[place.start(2) :]}"
    return text


def main() -> None:
    for page in SECTIONS:
        path = ROOT / page
        text = render(path.read_text(encoding="utf-8"), page)
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
