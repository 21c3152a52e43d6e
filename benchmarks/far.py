"""How far errors grow, and how sure that is: `python -m benchmarks.far --data FOLDER`.

The pretrained forecasters, in float32 without TF32, from ten frames to seventy more of every test
sequence: the error at single steps, and that of step 60 over that of step 10. Errors have long
tails, so that ratio comes with an interval: sequences are drawn again, with replacement, a thousand
times, and the middle 95 % of the ratios are kept. The record goes to `far.json`. On a GPU this
takes minutes, on a CPU a day; `--sequences` takes the first ones alone.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from benchmarks import markdown
from benchmarks.markdown import number
from benchmarks.report import RECORD
from benchmarks.runs import origin
from fernn import load_pretrained, pretrained
from fernn.data import Progress, silent
from fernn.experiments import records
from fernn.experiments.devices import resolved
from fernn.experiments.fabric import tf32
from fernn.experiments.progress import counting
from fernn.experiments.recipes import from_json
from fernn.experiments.testdata import LONG_HORIZON, TestData
from fernn.models import pretrained_record

FAR = RECORD.with_name("far.json")
STEPS = (1, 10, 20, 30, 60, 70)
DRAWS = 1_000


def errors(
    name: str,
    root: Path | None,
    *,
    device: str = "cpu",
    count: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """The mean squared error of each sequence at each step, float64 [sequences, steps]."""
    data = TestData(from_json(pretrained_record(name)["recipe"]), root=root, device=device)
    videos, observed = data.videos(horizon=LONG_HORIZON, size=count), data.recipe.data.observed
    total, model = data.count(videos), load_pretrained(name).to(device).eval()

    def tell(done: int) -> None:
        progress(done, total, f"{name}, {done} of {total} sequences")

    def work() -> Tensor:
        parts = []
        for batch in data.batches(videos, tell):
            seen, truth = batch.frames[:, :observed], batch.frames[:, observed:]
            squares = (model(seen, LONG_HORIZON) - truth).double().square()
            parts.append(squares.mean((-3, -2, -1)).cpu())
        return torch.cat(parts)

    with torch.no_grad(), tf32(False):
        return data.fitting(videos, work)


def summary(found: Tensor) -> dict[str, object]:
    """Means over sequences, their standard errors, medians, and the ratio with its interval."""
    early, late = found[:, 9], found[:, 59]
    drawn = torch.randint(
        len(found), (DRAWS, len(found)), generator=torch.Generator().manual_seed(0)
    )
    ratios = late[drawn].mean(1) / early[drawn].mean(1)
    steps = {str(step): found[:, step - 1] for step in STEPS}
    return {
        "sequences": len(found),
        "mean": {step: float(of.mean()) for step, of in steps.items()},
        "standard_error": {step: float(of.std() / len(of) ** 0.5) for step, of in steps.items()},
        "median": {step: float(of.median()) for step, of in steps.items()},
        "ratio": float(late.mean() / early.mean()),
        "interval": [float(ratios.quantile(end)) for end in (0.025, 0.975)],
    }


def table(record: dict) -> str:
    """A row for each of the weights, their errors as mean ± standard error."""
    shown = ("10", "60", "70")
    columns = ["weights", *(f"step {step}" for step in shown), "60 over 10", "95 %"]
    columns += [f"median, step {step}" for step in ("10", "60")]
    rows = []
    for name, row in record["errors"].items():
        low, high = row["interval"]
        cells = [f"`{name}`"]
        cells += [f"{row['mean'][s]:.2e} ± {number(row['standard_error'][s])}" for s in shown]
        cells += [f"{row['ratio']:.1f}", f"{low:.1f} to {high:.1f}"]
        rows.append([*cells, *(number(row["median"][step]) for step in ("10", "60"))])
    counts = {row["sequences"] for row in record["errors"].values()}
    many = " or ".join(f"{count:,}" for count in sorted(counts))
    about = f"{many} test sequences of {record['digits']}, in float32"
    about += f"; {origin(record['environment'])}"
    return markdown.table(columns, rows, about=about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--sequences", type=int, help="the first ones alone")
    arguments = parser.parse_args()
    root, device = arguments.data, resolved(arguments.device)
    found, environment = {}, records.environment()
    for name in pretrained():
        with counting(Console(stderr=True)) as progress:
            every = errors(name, root, device=device, count=arguments.sequences, progress=progress)
        found[name] = summary(every)
    record: dict[str, object] = {
        "environment": environment,
        "digits": "MNIST" if root else "the digits inside the package",
        "weights": {name: pretrained_record(name)["weights"]["sha256"] for name in pretrained()},
        "errors": found,
    }
    records.write(FAR, record)


if __name__ == "__main__":
    main()
