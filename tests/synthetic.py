"""Made-up runs for tests of tables, figures and the report: invented numbers, tiny models."""

from pathlib import Path

from fernn import save
from fernn.experiments import records, runs
from fernn.experiments.recipes import find, from_json, to_json

ENVIRONMENT = {
    "date": "2000-01-01",
    "commit": "0" * 40,
    "dirty": False,
    "torch": "9.9",
    "gpu": "Invented GPU",
}


def write_run(out, name, *, scale="short", seed=0, metrics, model=None, recipe=None, **changes):
    """The folder of an invented run, with its record, and its weights where `model` is given."""
    recipe = find(name, scale) if recipe is None else recipe
    folder = runs.folder(out, recipe, seed)
    folder.mkdir(parents=True)
    curve = [
        {"step": 10 * e, "epoch": e, "sequences": 80 * e, "seconds": 1.0 * e, "train_loss": 1 / e}
        | {"val_loss": 1 / (e + seed), "lr": 1e-3}
        for e in range(1, 5)
    ]
    record = {
        "recipe": to_json(recipe),
        "name": name,
        "scale": scale,
        "seed": seed,
        "environment": ENVIRONMENT,
        "device": "cuda:0",
        "precision": "bf16-mixed",
        "parameters": 1234,
        "flops_per_sequence": 2e9,
        "sequences_per_second": 50.0,
        "peak_memory_bytes": 2**30,
        "wall_seconds": 7200.0,
        "epochs": 4,
        "best_epoch": 4,
        "val_loss": 0.25,
        "metrics": metrics,
        "curve": curve,
    }
    records.write(folder / runs.RECORD, record | changes)
    records.write(folder / runs.RECIPE, to_json(recipe))
    if model is not None:
        save(model, folder / runs.BEST)
    return folder


def forecast_metrics(name, scale="short", mse=1e-3):
    """Invented metrics of a forecaster, of the form that `evaluate` gives."""
    data = find(name, scale).data
    velocities = data.test_flow.velocities.tolist()
    return {
        "dataset": "invented",
        "test_mse": mse,
        "test_mse_frame_sum": mse * 784,
        "mse_per_step": [mse] * data.horizon,
        "mse_per_step_long": [mse * (1 + step) for step in range(70)],
        "mse_per_velocity": [
            {"velocity": v, "mse": mse * (1 + place)} for place, v in enumerate(velocities)
        ],
        "sequences": {"test": 8, "long": 8, "per_velocity": 8},
    }


def clip_metrics(dataset, accuracy=0.5):
    """Invented metrics of a classifier."""
    return {
        "dataset": dataset,
        "accuracy": accuracy,
        "accuracy_per_class": {"walk": accuracy},
        "accuracy_per_motion": {f"V^T_{radius}": accuracy for radius in (0, 1, 2)},
        "confusion": [[1]],
        "sequences": {"test": 8},
    }


def write_forecasters(out: Path, names, *, scale="quick"):
    """Invented runs with untrained models, for strips and animations."""
    for name in names:
        model = find(name, scale).build()
        metrics = forecast_metrics(name, scale)
        write_run(out, name, scale=scale, metrics=metrics, model=model, device="cpu")


def recipe_of(folder: Path):
    """The recipe in a run's folder."""
    return from_json(runs.read_json(folder / runs.RECIPE))
