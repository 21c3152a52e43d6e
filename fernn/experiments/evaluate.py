"""Evaluation on the test split: every number that a table or a figure is made of, as plain JSON.

Test sequences are those of seed 0 and epoch 0, whatever the run's seed: all runs of a recipe, and
all recipes on the same data, are judged by the same sequences.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fernn.data import (
    BouncingMNIST,
    ClipArchive,
    FlowingMNIST,
    MovingClips,
    Progress,
    Videos,
    silent,
)
from fernn.experiments.datasets import Source
from fernn.experiments.recipes import Recipe
from fernn.experiments.testdata import LONG_HORIZON, Tell, TestData
from fernn.flows import Flow, Rotation, Translation

LONG_SHARE, VELOCITY_SHARE = 10, 20
"""Long forecasts take a tenth of the test sequences, and each velocity a twentieth."""
LEAST_SEQUENCES = 32
RADII = (0, 1, 2)
"""The camera motions that every classifier is tried on: V^T_0, V^T_1 and V^T_2."""


def evaluate(
    model: nn.Module,
    recipe: Recipe,
    *,
    device: str | torch.device = "cpu",
    root: Source | None = None,
    archive: ClipArchive | Source | None = None,
    progress: Progress = silent,
) -> dict[str, object]:
    """The metrics of a trained model, the same at every call.

    `root` is the folder with MNIST's files (None takes the digits that come with the package),
    `archive` the labelled clips. A forecaster has

    - `test_mse`, a mean over sequences, horizon and pixels, and `test_mse_frame_sum`, the same
      summed over the pixels of a frame;
    - `mse_per_step` over the horizon of training, and `mse_per_step_long` over 70 frames;
    - `mse_per_velocity`, a list of `{"velocity": [...], "mse": ...}`: both digits at that velocity.

    A classifier has `accuracy`, `accuracy_per_class`, `confusion` (rows are the truth) and
    `accuracy_per_motion`, on V^T_0, V^T_1 and V^T_2: none, half and all of the test's speeds.
    `sequences` counts what each one used. An error that is not finite is None.

    `progress` is called with frames that are done, those of all, and what is being done.
    """
    data = TestData(recipe, root=root, archive=archive, device=device)
    with _evaluating(model, device):
        metrics = _forecast if recipe.task == "forecast" else _classify
        return metrics(model, data, progress)


def sequence_errors(
    model: nn.Module,
    recipe: Recipe,
    count: int,
    *,
    root: Source | None = None,
    device: str | torch.device = "cpu",
    progress: Progress = silent,
) -> list[float]:
    """The error of each of the first test sequences, made of the digits inside the package unless
    `root` has others."""
    data = TestData(recipe, root=root, device=device)
    frames = data.videos(size=count).batch(range(count), epoch=0).frames
    observed = recipe.data.observed
    errors = []
    with _evaluating(model, device):
        # One by one, so that none depends on how many there are.
        for done, video in enumerate(frames.split(1)):
            progress(done, count, f"{done} of {count} sequences")
            error = model(video[:, :observed], recipe.data.horizon) - video[:, observed:]
            errors.append(float(error.double().square().mean()))
    return errors


def at_velocity(flow: Flow, velocity: list[float]) -> Flow:
    """The flow of the same kind whose V is this velocity alone."""
    if isinstance(flow, Translation):
        return Translation(velocities=[[int(component) for component in velocity]])
    if isinstance(flow, Rotation):
        return Rotation(velocities=velocity)
    raise ValueError(f"`flow` must be a Translation or a Rotation, got {flow!r}.")


def slower(flow: Translation, share: float) -> Translation:
    """The flow with those velocities of V alone that are at most a share of the fastest.

    >>> len(slower(Translation(radius=2), 0.5))
    9
    """
    speeds = flow.velocities.abs().amax(-1)
    velocities = flow.velocities[speeds <= share * speeds.max()].tolist()
    return Translation(velocities=[[int(component) for component in v] for v in velocities])


def _forecast(model: nn.Module, data: TestData, progress: Progress) -> dict[str, object]:
    recipe = data.recipe
    split = data.videos()
    assert isinstance(split, FlowingMNIST | BouncingMNIST)
    tested = data.count(split)
    few, fewer = (max(LEAST_SEQUENCES, tested // share) for share in (LONG_SHARE, VELOCITY_SHARE))
    ahead = data.videos(horizon=LONG_HORIZON, size=few)
    parts: dict[str, Videos] = {"test split": split, f"{LONG_HORIZON} frames ahead": ahead}
    flow, velocities = recipe.data.test_flow, []
    if recipe.data.kind == "flowing":  # bouncing digits change their velocity on the way
        velocities = flow.velocities.tolist()
    for number, velocity in enumerate(velocities, start=1):
        alone = data.videos(flow=at_velocity(flow, velocity), size=fewer)
        parts[f"velocity {number} of {len(velocities)}"] = alone
    test, long, *each = [
        _step_errors(model, data, videos, tell) for _, videos, tell in data.told(parts, progress)
    ]
    height, width = recipe.data.canvas
    metrics: dict[str, object] = {
        "dataset": split.source,
        "test_mse": _number(test.mean()),
        "test_mse_frame_sum": _number(test.mean() * height * width),
        "mse_per_step": [_number(error) for error in test],
        "mse_per_step_long": [_number(error) for error in long],
    }
    sequences = {"test": tested, "long": data.count(ahead)}
    if each:
        sequences["per_velocity"] = data.count(alone)
        metrics["mse_per_velocity"] = [
            {"velocity": velocity, "mse": _number(errors.mean())}
            for velocity, errors in zip(velocities, each, strict=True)
        ]
    return metrics | {"sequences": sequences}


def _number(value: Tensor) -> float | None:
    """A number as JSON can hold it: a forecast that ran away to infinity has none."""
    return float(value) if bool(value.isfinite()) else None


def _step_errors(model: nn.Module, data: TestData, videos: Videos, tell: Tell) -> Tensor:
    """The mean squared error per pixel at each forecast step, float64 [horizon]."""
    observed = data.recipe.data.observed

    def errors() -> Tensor:
        parts = []
        for batch in data.batches(videos, tell):
            seen, truth = batch.frames[:, :observed], batch.frames[:, observed:]
            error = (model(seen, truth.shape[1]) - truth).double().square()
            parts.append(error.mean((-3, -2, -1)))
        return torch.cat(parts)

    return data.fitting(videos, errors).mean(0).cpu()


def _classify(model: nn.Module, data: TestData, progress: Progress) -> dict[str, object]:
    videos = data.videos()
    assert isinstance(videos, MovingClips)
    flows = {f"V^T_{radius}": slower(videos.flow, radius / max(RADII)) for radius in RADII}
    parts: dict[str, Videos] = {"test split": videos}
    for name, flow in flows.items():
        if len(flow) < len(videos.flow):  # else it is the split itself
            parts[name] = data.videos(flow=flow)
    found = {
        name: _confusion(model, data, part, tell) for name, part, tell in data.told(parts, progress)
    }
    confusion = found["test split"]
    per_class = confusion.diagonal() / confusion.sum(1)
    return {
        "dataset": videos.name,
        "accuracy": _accuracy(confusion),
        "accuracy_per_class": {
            name: None if value.isnan() else float(value)  # a class that no clip shows
            for name, value in zip(videos.classes, per_class, strict=True)
        },
        "accuracy_per_motion": {name: _accuracy(found.get(name, confusion)) for name in flows},
        "confusion": confusion.long().tolist(),
        "sequences": {"test": int(confusion.sum())},
    }


def _accuracy(confusion: Tensor) -> float:
    return float(confusion.trace() / confusion.sum())


def _confusion(model: nn.Module, data: TestData, videos: Videos, tell: Tell) -> Tensor:
    """How often class i was called class j, float64 [classes, classes]."""
    assert isinstance(videos, MovingClips)
    classes = len(videos.classes)

    def pairs() -> Tensor:
        parts = []
        for batch in data.batches(videos, tell):
            called = model(batch.frames).argmax(-1)
            if int(called.max()) >= classes:
                raise ValueError(
                    f"`model` must have the {classes} classes of {videos.name!r}, got class "
                    f"{int(called.max())}."
                )
            parts.append((batch.labels * classes + called).cpu())
        return torch.cat(parts)

    counts = torch.bincount(data.fitting(videos, pairs), minlength=classes * classes)
    return counts.double().reshape(classes, classes)


@contextmanager
def _evaluating(model: nn.Module, device: str | torch.device) -> Iterator[None]:
    """The model on its device, in evaluation mode and without gradients; its modes come back."""
    modes = {module: module.training for module in model.modules()}
    model.to(device).eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
