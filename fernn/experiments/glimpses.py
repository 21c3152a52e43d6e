"""Glimpses: the clips of the scale "quick", made from the digits inside the package.

One item: a digit at rest, of which every frame shows a few pixels. The class is how those pixels
follow each other in time: the same ones again (still), others each time (flicker), or these and all
the others in turn (blink). A single frame of a still clip and of a flickering one look alike, so
they are told apart along the motion of the camera alone, which is what the paper's tables on clips
are about. Clips of people take hours to tell the models apart, these a minute.
"""

from functools import lru_cache

import torch
from torch import Tensor

from fernn.data import ClipArchive, load_digits

NAME = "glimpses"
CLASSES = ("still", "flicker", "blink")
CANVAS = (20, 20)  # without MNIST's margin of four pixels, which is nearly always black
STEPS = 24  # of the pattern; each lasts two frames, since every second frame is kept
SHOWN = 0.3  # of the pixels in a frame
SIZES = {"train": 360, "val": 120, "test": 240}


@lru_cache(maxsize=1)
def glimpses() -> ClipArchive:
    """The clips, always the same ones: as many of each class, no digit in two splits."""
    generator = torch.Generator().manual_seed(0)
    digits, split = _digits()
    clips = len(digits)
    label = torch.arange(clips) % len(CLASSES)
    masks = _masks(label, generator)
    frames = digits[:, None] * masks.repeat_interleave(2, 1)
    return ClipArchive(
        NAME,
        CLASSES,
        frames.flatten(0, 1),
        length=torch.full((clips,), frames.shape[1]),
        label=label,
        subject=torch.arange(clips),
        start=torch.zeros(clips, dtype=torch.int64),
        clip=tuple(str(number) for number in range(clips)),
        split=split,
    )


def _digits() -> tuple[Tensor, tuple[str, ...]]:
    """Digits without their margin, uint8 [N, 20, 20], and the split of each."""
    images = []
    for train, size in ((True, SIZES["train"] + SIZES["val"]), (False, SIZES["test"])):
        known = load_digits(train=train).images
        images.append(known[torch.arange(size) * len(known) // size])
    names = tuple(name for name, size in SIZES.items() for _ in range(size))
    return torch.cat(images)[:, 4:-4, 4:-4], names


def _masks(label: Tensor, generator: torch.Generator) -> Tensor:
    """Which pixels each step of each clip shows, bool [N, STEPS, 20, 20]."""
    drawn = torch.rand(len(label), STEPS, *CANVAS, generator=generator) < SHOWN
    odd = (torch.arange(STEPS) % 2 == 1)[:, None, None]
    first = drawn[:, :1]
    kinds = torch.stack([first.expand_as(drawn), drawn, first ^ odd], 1)
    return kinds[torch.arange(len(label)), label]
