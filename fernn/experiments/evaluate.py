"""Evaluation on the test split: every number that a table or a figure is made of, as plain JSON.

Test sequences are those of seed 0 and epoch 0, whatever the run's seed: all runs of a recipe, and
all recipes on the same data, are judged by the same sequences.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fernn.data import Batch, BouncingMNIST, ClipArchive, FlowingMNIST, MovingClips, Videos
from fernn.experiments import datasets
from fernn.experiments.datasets import Source
from fernn.experiments.recipes import Recipe
from fernn.flows import Flow, Rotation, Translation

LONG_HORIZON = 70
"""Frames forecast to see how a model fares beyond the horizon it was trained on."""
LONG_SHARE, VELOCITY_SHARE = 10, 20
"""Long forecasts take a tenth of the test sequences, and each velocity a twentieth."""
LEAST_SEQUENCES = 32
LEAST_BATCH = 32
"""Sequences at once, also where a training step takes fewer: without gradients more fit. Where they
do not, they are halved; the numbers do not depend on how many there are."""
RADII = (0, 1, 2)
"""The camera motions that every classifier is tried on: V^T_0, V^T_1 and V^T_2."""


def evaluate(
    model: nn.Module,
    recipe: Recipe,
    *,
    device: str | torch.device = "cpu",
    root: Source | None = None,
    archive: ClipArchive | Source | None = None,
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
    """
    data = TestData(recipe, root=root, archive=archive, device=device)
    with _evaluating(model, device):
        return _forecast(model, data) if recipe.task == "forecast" else _classify(model, data)


def sequence_errors(
    model: nn.Module, recipe: Recipe, count: int, *, device: str | torch.device = "cpu"
) -> list[float]:
    """The error of each of the first test sequences, made of the digits inside the package."""
    data = TestData(recipe, device=device)
    frames = data.videos(size=count).batch(range(count), epoch=0).frames
    observed = recipe.data.observed
    with _evaluating(model, device):
        # One by one, so that none depends on how many there are.
        errors = [
            (model(video[:, :observed], recipe.data.horizon) - video[:, observed:]).double()
            for video in frames.split(1)
        ]
    return [float(error.square().mean()) for error in errors]


class TestData:
    """The test split of a recipe, and its relatives: longer, at one velocity, under another V."""

    __test__ = False  # not a test, whatever pytest thinks of its name

    def __init__(
        self,
        recipe: Recipe,
        *,
        root: Source | None = None,
        archive: ClipArchive | Source | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.recipe, self.root, self.device = recipe, root, device
        self.most = max(LEAST_BATCH, recipe.training.batch_size)
        """Sequences that fit at once, as far as is known."""
        if archive is None or isinstance(archive, ClipArchive):
            self.archive = archive
        else:
            self.archive = ClipArchive.load(archive)

    def videos(
        self, *, flow: Flow | None = None, horizon: int | None = None, size: int | None = None
    ) -> Videos:
        """The test sequences, or those under another flow, of another horizon, or the first few."""
        data = self.recipe.data
        sizes = [known for known in (data.test_size, size) if known is not None]
        changed = self.recipe.but(
            data={
                "test_flow": data.test_flow if flow is None else flow,
                "horizon": data.horizon if horizon is None else horizon,
                "test_size": min(sizes) if sizes else None,
            }
        )
        return datasets.videos(
            changed, "test", root=self.root, archive=self.archive, device=self.device
        )

    def at_once(self, videos: Videos) -> int:
        """How many sequences a batch has."""
        # A model that remembers every frame needs as much more memory as the sequence is longer.
        long = isinstance(videos, FlowingMNIST | BouncingMNIST) and videos.length > LONG_HORIZON
        return min(self.most, LEAST_BATCH) if long else self.most

    def fitting(self, videos: Videos, work: Callable[[], Tensor]) -> Tensor:
        """`work` on all batches, in smaller ones whenever the memory is too small for it."""
        while True:
            tried = self.at_once(videos)
            try:
                return work()
            except torch.OutOfMemoryError:
                if tried == 1:
                    raise MemoryError(
                        f"the memory of {self.device} is too small for one sequence of the test. "
                        "Use a larger device, or `--device cpu`."
                    ) from None
            # Outside of the handler, whose traceback holds the tensors that did not fit.
            self.most = tried // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def batches(self, videos: Videos) -> Iterator[Batch]:
        """The sequences in order, spread over the split where the recipe takes only some."""
        total = len(videos)
        size = min(self.recipe.data.test_size or total, total)
        chosen = torch.arange(size) * total // size  # clips are sorted, so the first are all alike
        for part in chosen.split(self.at_once(videos)):
            yield videos.batch(part, epoch=0)


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


def _forecast(model: nn.Module, data: TestData) -> dict[str, object]:
    recipe = data.recipe
    horizon = recipe.data.horizon
    videos = data.videos()
    assert isinstance(videos, FlowingMNIST | BouncingMNIST)
    test, tested = _step_errors(model, data, videos, horizon)
    long_videos = data.videos(horizon=LONG_HORIZON, size=max(LEAST_SEQUENCES, tested // LONG_SHARE))
    long, long_count = _step_errors(model, data, long_videos, LONG_HORIZON)
    height, width = recipe.data.canvas
    metrics: dict[str, object] = {
        "dataset": videos.source,
        "test_mse": _number(test.mean()),
        "test_mse_frame_sum": _number(test.mean() * height * width),
        "mse_per_step": [_number(error) for error in test],
        "mse_per_step_long": [_number(error) for error in long],
    }
    sequences = {"test": tested, "long": long_count}
    if recipe.data.kind == "flowing":  # bouncing digits change their velocity on the way
        per_velocity = []
        for velocity in recipe.data.test_flow.velocities.tolist():
            flow = at_velocity(recipe.data.test_flow, velocity)
            videos = data.videos(flow=flow, size=max(LEAST_SEQUENCES, tested // VELOCITY_SHARE))
            errors, sequences["per_velocity"] = _step_errors(model, data, videos, horizon)
            per_velocity.append({"velocity": velocity, "mse": _number(errors.mean())})
        metrics["mse_per_velocity"] = per_velocity
    return metrics | {"sequences": sequences}


def _number(value: Tensor) -> float | None:
    """A number as JSON can hold it: a forecast that ran away to infinity has none."""
    return float(value) if bool(value.isfinite()) else None


def _step_errors(
    model: nn.Module, data: TestData, videos: Videos, horizon: int
) -> tuple[Tensor, int]:
    """The mean squared error per pixel at each forecast step, float64 [horizon], and of how many
    sequences."""
    observed = data.recipe.data.observed

    def errors() -> Tensor:
        parts = []
        for batch in data.batches(videos):
            forecast = model(batch.frames[:, :observed], horizon)
            error = (forecast - batch.frames[:, observed:]).double().square()
            parts.append(error.mean((-3, -2, -1)))
        return torch.cat(parts)

    found = data.fitting(videos, errors)
    return found.mean(0).cpu(), len(found)


def _classify(model: nn.Module, data: TestData) -> dict[str, object]:
    videos = data.videos()
    assert isinstance(videos, MovingClips)
    confusion = _confusion(model, data, videos)
    per_class = confusion.diagonal() / confusion.sum(1)
    motions = {}
    for radius in RADII:
        flow = slower(videos.flow, radius / max(RADII))
        known = len(flow) == len(videos.flow)
        seen = confusion if known else _confusion(model, data, data.videos(flow=flow))
        motions[f"V^T_{radius}"] = _accuracy(seen)
    return {
        "dataset": videos.name,
        "accuracy": _accuracy(confusion),
        "accuracy_per_class": {
            name: None if value.isnan() else float(value)  # a class that no clip shows
            for name, value in zip(videos.classes, per_class, strict=True)
        },
        "accuracy_per_motion": motions,
        "confusion": confusion.long().tolist(),
        "sequences": {"test": int(confusion.sum())},
    }


def _accuracy(confusion: Tensor) -> float:
    return float(confusion.trace() / confusion.sum())


def _confusion(model: nn.Module, data: TestData, videos: Videos) -> Tensor:
    """How often class i was called class j, float64 [classes, classes]."""
    assert isinstance(videos, MovingClips)
    classes = len(videos.classes)

    def pairs() -> Tensor:
        parts = []
        for batch in data.batches(videos):
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
    """The model on its device, in evaluation mode and without gradients; its mode comes back."""
    training = model.training
    model.to(device).eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
