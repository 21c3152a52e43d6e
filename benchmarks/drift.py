"""Why errors grow along a forecast: `python -m benchmarks.drift [--data FOLDER]`.

A pretrained forecaster on a CPU, from ten frames to sixty more: in float32, in bfloat16, in
float32 with the true frames fed in place of its forecasts, and in float32 from a new state every
ten frames, which observes the ten forecasts before. What bfloat16 adds is of rounding; what true
frames take away is of forecasts that were fed back; what a new state takes away is of a state that
is older than any in training. The record goes to `drift.json`.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.report import RECORD
from fernn import Stream, load_pretrained
from fernn.experiments import records
from fernn.experiments.recipes import from_json
from fernn.experiments.testdata import TestData
from fernn.models import pretrained_record

DRIFT = RECORD.with_name("drift.json")
NAMES = ("translating-mnist/fernn-v2", "rotating-mnist/fernn-v4")
SEQUENCES, HORIZON = 16, 60


def run(name: str, root: Path | None) -> dict[str, list[float]]:
    """The mean squared error of each step beyond the observed ones, in each form."""
    recipe = from_json(pretrained_record(name)["recipe"])
    videos = TestData(recipe, root=root).videos(horizon=HORIZON, size=SEQUENCES)
    frames = videos.batch(range(SEQUENCES), epoch=0).frames
    seen, truth = frames[:, : recipe.data.observed], frames[:, recipe.data.observed :]
    model = load_pretrained(name)
    with torch.no_grad():
        made = {"float32": model(seen, HORIZON)}
        with torch.autocast("cpu", torch.bfloat16):
            made["bfloat16"] = model(seen, HORIZON).float()
        stream = Stream(model)
        told = [stream(frame) for frame in frames[:, :-1].unbind(1)]
        made["float32, true frames"] = torch.stack(told[-HORIZON:], 1)
        made["float32, observed anew"] = _anew(model, seen)
    return {form: _errors(forecast, truth) for form, forecast in made.items()}


def _anew(model: nn.Module, seen: Tensor) -> Tensor:
    """The forecast in pieces as long as what was seen, each observing the piece before."""
    pieces = [seen]
    for _ in range(0, HORIZON, seen.shape[1]):
        pieces.append(model(pieces[-1], seen.shape[1]))
    return torch.cat(pieces[1:], 1)[:, :HORIZON]


def _errors(forecast: Tensor, truth: Tensor) -> list[float]:
    return (forecast - truth).double().square().mean((0, 2, 3, 4)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    root = parser.parse_args().data
    errors, environment = {}, records.environment()
    for place, name in enumerate(NAMES, start=1):
        print(f"{place} of {len(NAMES)}: {name}, some minutes", flush=True)
        errors[name] = run(name, root)
    record: dict[str, object] = {
        "environment": environment,
        "sequences": SEQUENCES,
        "digits": "MNIST" if root else "the digits inside the package",
        "weights": {name: pretrained_record(name)["weights"]["sha256"] for name in NAMES},
        "errors": errors,
    }
    records.write(DRIFT, record)


if __name__ == "__main__":
    main()
