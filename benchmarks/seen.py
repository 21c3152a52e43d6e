"""Forecasts from fewer and more frames than in training: `python -m benchmarks.seen [--data …]`.

The mean error of ten forecast frames over the first test sequences, on a CPU, by the number of
frames observed; training showed ten. The record goes to `seen.json`.
"""

import argparse
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks import markdown
from benchmarks.markdown import number
from benchmarks.report import RECORD
from benchmarks.runs import origin
from fernn import load_pretrained, pretrained
from fernn.experiments import records
from fernn.experiments.evaluate import sequence_errors
from fernn.experiments.progress import counting
from fernn.experiments.recipes import from_json
from fernn.models import pretrained_record

SEEN = RECORD.with_name("seen.json")
FRAMES, SEQUENCES = (1, 2, 3, 5, 7, 10, 15, 20), 32


def run(name: str, root: Path | None, observed: int, count: int = SEQUENCES) -> list[float]:
    """Of each sequence the error, where so many frames are observed."""
    recipe = from_json(pretrained_record(name)["recipe"]).but(data={"observed": observed})
    with counting(Console(stderr=True)) as progress:
        return sequence_errors(load_pretrained(name), recipe, count, root=root, progress=progress)


def table(record: dict) -> str:
    """A row of means for each of the weights."""
    rows = [
        [f"`{name}`", *(number(fmean(errors)) for errors in by_frames.values())]
        for name, by_frames in record["sequences"].items()
    ]
    about = f"the first {SEQUENCES} test sequences of {record['digits']}"
    about += f"; {origin(record['environment'])}"
    return markdown.table(["test MSE, frames observed", *map(str, FRAMES)], rows, about=about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    root = parser.parse_args().data
    record: dict[str, object] = {
        "environment": records.environment(),
        "digits": "MNIST" if root else "the digits inside the package",
        "weights": {name: pretrained_record(name)["weights"]["sha256"] for name in pretrained()},
    }
    record["sequences"] = {
        name: {str(frames): run(name, root, frames) for frames in FRAMES} for name in pretrained()
    }
    records.write(SEEN, record)


if __name__ == "__main__":
    main()
