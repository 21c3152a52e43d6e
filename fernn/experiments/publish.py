"""Put the best weights of a finished run into the package: `python -m fernn.experiments.publish
RUN NAME`, for whoever maintains it."""

import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from fernn._files import sha256
from fernn.experiments import records, results, runs
from fernn.experiments.evaluate import sequence_errors
from fernn.experiments.recipes import from_json
from fernn.models import load, save
from fernn.models._pretrained import FOLDER

SEQUENCES = 16
"""How many test sequences are recorded one by one, for whoever wants to check the weights."""
MOST_BYTES = 2_000_000
"""No file in the package is larger."""


def publish(run: Path, name: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Write the weights as float16 and, beside them, the record that `pretrained_record` reads.

    What it checks them by is measured on the file as it is read back, in float32.
    """
    if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", name):
        raise ValueError(
            f"`name` must be DATA/MODEL, such as translating-mnist/grnn, got {name!r}."
        )
    result = results.load_one(run)
    if result.number("test_mse") is None:
        raise ValueError(f"`run` must be a forecaster with a finite test MSE, got {str(run)!r}.")
    if not records.known(result.record):
        raise ValueError(f"`run` must be of a commit without changes, got {str(run)!r}.")
    recipe = from_json(result.record["recipe"])
    model = load(runs.check_weights(run, result.record)).float()
    size = 2 * sum(parameter.numel() for parameter in model.parameters())
    if size > MOST_BYTES:
        raise ValueError(
            f"`run` must have weights of at most {MOST_BYTES:,} bytes in float16, got {size:,}."
        )
    environment = records.environment()  # before the weights change the working tree
    unrounded = sequence_errors(model, recipe, SEQUENCES)
    path = folder / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model.half(), path)  # type: ignore[arg-type]  # what `load` gave
    rounded = sequence_errors(load(path).float(), recipe, SEQUENCES)
    record = result.record | {
        "weights": {
            "dtype": "float16",
            "bytes": path.stat().st_size,
            "sha256": sha256(path),
        },
        "check": {
            "dataset": "embedded digits",
            "sequence_mse": rounded,
            "mean": fmean(rounded),
            "mean_unrounded": fmean(unrounded),
            "environment": environment,
        },
    }
    records.write(path.with_suffix(".json"), record)
    return record


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    record = publish(Path(sys.argv[1]), sys.argv[2])
    check, weights = record["check"], record["weights"]
    print(
        f"{sys.argv[2]}: {weights['bytes']:,} bytes, test MSE of the run "
        f"{record['metrics']['test_mse']:.3e}, of {SEQUENCES} sequences {check['mean']:.3e} "
        f"({check['mean_unrounded']:.3e} before rounding)"
    )


if __name__ == "__main__":
    main()
