"""Which sequences are hard: `python -m benchmarks.apart [--data FOLDER] [--observed FRAMES]`.

Pretrained forecasters on a CPU, ten frames from ten, on the first sequences of the test split: the
error of each sequence beside how much the velocities of its two digits differ, in pixels a frame
along the axis where they differ most. Digits that lie on one another in all observed frames cannot
be told apart in them, and those that hardly move against each other stay so. The record goes to
`apart.json`. With `--observed` it is of the FERNN alone, which observes ten frames or that many, on
fewer sequences, and goes to `observed.json`.
"""

import argparse
from pathlib import Path
from statistics import fmean, median

from rich.console import Console

from benchmarks import markdown
from benchmarks.markdown import number
from benchmarks.report import RECORD
from benchmarks.runs import origin
from fernn import load_pretrained
from fernn.experiments import records
from fernn.experiments.evaluate import sequence_errors
from fernn.experiments.progress import counting
from fernn.experiments.recipes import from_json
from fernn.experiments.testdata import TestData
from fernn.models import pretrained_record

APART, OBSERVED = RECORD.with_name("apart.json"), RECORD.with_name("observed.json")
NAMES = ("translating-mnist/grnn", "translating-mnist/fernn-v2")
SEQUENCES, FEWER = 512, 192


def run(name: str, root: Path | None, count: int, observed: int = 10) -> list[dict[str, float]]:
    """Of each sequence the error, and the largest difference of its digits' velocities."""
    recipe = from_json(pretrained_record(name)["recipe"]).but(data={"observed": observed})
    videos = TestData(recipe, root=root).videos(size=count)
    one, other = videos.batch(range(count), epoch=0).velocities.unbind(1)
    with counting(Console(stderr=True)) as progress:
        errors = sequence_errors(load_pretrained(name), recipe, count, root=root, progress=progress)
    apart = (one - other).abs().amax(-1).tolist()
    return [{"apart": a, "mse": e} for a, e in zip(apart, errors, strict=True)]


def table(record: dict) -> str:
    """Mean, median and largest error of the sequences whose digits are as fast apart."""
    shown = {"mean": fmean, "median": median, "largest": max}
    sequences = record["sequences"]
    columns = ["velocities differ by", "sequences"]
    columns += [f"{name.partition('/')[2]}, {what}" for name in sequences for what in shown]
    rows = []
    speeds = sorted({one["apart"] for every in sequences.values() for one in every})
    for alike in (*((speed,) for speed in speeds), speeds):
        errors = [[s["mse"] for s in every if s["apart"] in alike] for every in sequences.values()]
        speed = f"{alike[0]:g}" if len(alike) == 1 else "any"
        cells = [number(of(some)) for some in errors for of in shown.values()]
        rows.append([speed, len(errors[0]), *cells])
    about = f"pixels a frame; the first test sequences of {record['digits']}"
    about += f"; {origin(record['environment'])}"
    return markdown.table(columns, rows, words=(), about=about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    parser.add_argument("--observed", type=int, help="frames to observe in place of ten")
    arguments = parser.parse_args()
    root, observed = arguments.data, arguments.observed
    names = NAMES if observed is None else NAMES[-1:]
    record: dict[str, object] = {
        "environment": records.environment(),
        "digits": "MNIST" if root else "the digits inside the package",
        "weights": {name: pretrained_record(name)["weights"]["sha256"] for name in names},
    }
    if observed is None:
        record["sequences"] = {name: run(name, root, SEQUENCES) for name in names}
        records.write(APART, record)
        return
    record["sequences"] = {
        f"{name}, {frames} observed": run(name, root, FEWER, frames)
        for name in names
        for frames in (10, observed)
    }
    records.write(OBSERVED, record)


if __name__ == "__main__":
    main()
