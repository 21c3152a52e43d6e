"""Classifying clips: 32×32, 16 frames, batch 32, 128 channels, the recurrence of Moving KTH."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpu.row import Row
from benchmarks.published_clips import PublishedClassifier
from fernn import Classifier, Translation

CANVAS, CHANNELS, FRAMES, BATCH, CLASSES = 32, 128, 16, 32, 6


def flops(radius: int) -> float:
    """The arithmetic of one training clip; h_1 and W ⋆ h_1 do not depend on ν."""
    velocities = (2 * radius + 1) ** 2
    recurrent = 3 * 9 * CHANNELS**2 * (1 + velocities * (FRAMES - 2))
    widths, sizes = [1, CHANNELS // 4, CHANNELS // 2, CHANNELS], (5, 3, 3)
    encoder = 0
    for index, (size, (source, target)) in enumerate(zip(sizes, pairwise(widths), strict=True)):
        passes = 3 if index else 2  # a clip has no gradient
        encoder += passes * size**2 * source * target
    return float(2 * CANVAS**2 * (recurrent + FRAMES * encoder))


def clips(batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random canvases that move with a velocity of V^T_2, a label each: [B, T, 1, H, W], [B]."""
    random = torch.Generator().manual_seed(seed)
    canvas = torch.randn(batch, 1, 1, CANVAS, CANVAS, generator=random)
    velocity = torch.randint(-2, 3, (batch, 1, 2), generator=random)
    moved = Translation(radius=2).act(
        canvas.expand(-1, FRAMES, -1, -1, -1),
        velocity.expand(-1, FRAMES, -1),
        torch.arange(FRAMES).expand(batch, -1),
    )
    return moved.cuda(), torch.randint(CLASSES, (batch,), generator=random).cuda()


def label_loss(model: nn.Module, clip: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(clip).float(), label)


def classifier(radius: int) -> Classifier:
    flow = Translation(radius=radius)
    return Classifier(flow=flow, hidden_channels=CHANNELS, backend="triton").cuda()


ROWS = {
    "Clips, FERNN-V^T_2": Row(
        ours=lambda: classifier(2),
        published=PublishedClassifier.of,
        sample=clips,
        loss=label_loss,
        flops=flops(2),
        needs="fernn.scan",
        batch=BATCH,
        published_batch=BATCH,
        checked=BATCH,
    )
}
