"""What forecasts get that learn nothing: `python -m benchmarks.naive --data FOLDER`.

On the test split of each task, ten frames from ten: the grey that is best for all pixels, the best
picture, which has a grey for each pixel, both of them chosen on the test split itself, and the last
frame observed, shown again. The record goes to `naive.json`.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import markdown
from benchmarks.markdown import number
from benchmarks.report import RECORD
from benchmarks.runs import origin
from fernn.data import Progress
from fernn.experiments import records
from fernn.experiments.progress import counting
from fernn.experiments.recipes import find
from fernn.experiments.testdata import TestData

NAIVE = RECORD.with_name("naive.json")
TASKS = {
    "Translating MNIST, V^T_2": "table1/translation/grnn",
    "Rotating MNIST, V^R_4": "table1/rotation/grnn",
    "Bouncing MNIST, V^T_2": "table4/grnn",
}


def errors(name: str, root: Path | None, progress: Progress) -> dict[str, float]:
    """The mean squared errors over all sequences, forecast steps and pixels."""
    data = TestData(find(name), root=root)
    videos, observed = data.videos(), data.recipe.data.observed
    count, done = data.count(videos), 0
    height, width = data.recipe.data.canvas
    total, squares = torch.zeros(2, height, width, dtype=torch.float64)
    again = 0.0
    for batch in data.batches(videos):
        progress(done, count, f"{name}, {done} of {count} sequences")
        frames = batch.frames[:, :, 0].double()
        last, ahead = frames[:, observed - 1 : observed], frames[:, observed:]
        total += ahead.mean(1).sum(0)
        squares += ahead.square().mean(1).sum(0)
        again += float((ahead - last).square().mean((1, 2, 3)).sum())
        done += len(frames)
    mean, square = total / done, squares / done
    return {
        "one grey": float(square.mean() - mean.mean().square()),
        "one picture": float((square - mean.square()).mean()),
        "the last frame": again / done,
    }


def table(record: dict) -> str:
    """A row a task."""
    rows = record["errors"]
    forms = list(next(iter(rows.values())))
    return markdown.table(
        ["test MSE without a model", *forms],
        ([task, *(number(row[form]) for form in forms)] for task, row in rows.items()),
        about=f"{record['digits']}; {origin(record['environment'])}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    root = parser.parse_args().data
    environment = records.environment()
    found = {}
    for task, name in TASKS.items():
        with counting(Console(stderr=True)) as progress:
            found[task] = errors(name, root, progress)
    record: dict[str, object] = {
        "environment": environment,
        "digits": "MNIST" if root else "the digits inside the package",
        "errors": found,
    }
    records.write(NAIVE, record)


if __name__ == "__main__":
    main()
