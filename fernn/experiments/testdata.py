"""The test split of a recipe, in batches that fit into the memory of the device."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fernn.data import Batch, BouncingMNIST, ClipArchive, FlowingMNIST, Progress, Videos
from fernn.experiments import datasets
from fernn.experiments.datasets import Source
from fernn.experiments.recipes import Recipe
from fernn.flows import Flow

LONG_HORIZON = 70
"""Frames forecast to see how a model fares beyond the horizon it was trained on."""
LEAST_BATCH = 32
"""Sequences at once, also where a training step takes fewer: without gradients more fit. Where they
do not, they are halved; the numbers do not depend on how many there are. A CPU takes no more:
larger batches are slower there."""
Tell = Callable[[int], None]
"""What is called with the number of sequences that are done."""


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
        cpu = torch.device(device).type == "cpu"
        self.most = LEAST_BATCH if cpu else max(LEAST_BATCH, recipe.training.batch_size)
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
        long = _length(videos) > LONG_HORIZON
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

    def count(self, videos: Videos) -> int:
        """How many of the sequences the recipe takes."""
        return min(self.recipe.data.test_size or len(videos), len(videos))

    def batches(self, videos: Videos, tell: Tell = lambda done: None) -> Iterator[Batch]:
        """The sequences in order, spread over the split where the recipe takes only some."""
        size, done = self.count(videos), 0
        # Clips are sorted, so the first are all alike.
        chosen = torch.arange(size) * len(videos) // size
        for part in chosen.split(self.at_once(videos)):
            tell(done)
            yield videos.batch(part, epoch=0)
            done += len(part)

    def told(
        self, parts: dict[str, Videos], progress: Progress
    ) -> Iterator[tuple[str, Videos, Tell]]:
        """Parts of an evaluation one by one, each with the callback for its progress.

        `progress` counts frames: a sequence takes longer, the more of them it has.
        """
        sizes = {name: self.count(videos) for name, videos in parts.items()}
        frames = {name: sizes[name] * _length(videos) for name, videos in parts.items()}
        total, before = sum(frames.values()), 0

        def teller(name: str, before: int) -> Tell:
            size, each = sizes[name], _length(parts[name])
            return lambda done: progress(
                before + done * each, total, f"{name}, {done} of {size} sequences"
            )

        for name, videos in parts.items():
            yield name, videos, teller(name, before)
            before += frames[name]


def _length(videos: Videos) -> int:
    """The frames of a sequence; those of clips are alike, and count as one."""
    return videos.length if isinstance(videos, FlowingMNIST | BouncingMNIST) else 1
