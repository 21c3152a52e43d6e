"""`BouncingMNIST`: where the boxes start, and what is drawn of them."""

import numpy as np
import pytest
import torch

from fernn.data import Batch, BouncingMNIST
from fernn.data._bouncing import _shares, tight_boxes
from fernn.data._collisions import bounce, clock
from fernn.data._random import Stream, words
from fernn.flows import Rotation, Translation

V2 = Translation(radius=2)
STEPS = clock(V2.velocities)
ROOM = (26, 46)


def gap(place: torch.Tensor, extent: torch.Tensor) -> torch.Tensor:
    """Pixels between two boxes, in the direction in which they are farther apart."""
    first, second = place.unbind(-2)
    sizes = extent[:, None].unbind(-2)
    return torch.maximum(second - first - sizes[0], first - second - sizes[1]).amax(-1)


def test_frames_by_index_arithmetic():
    data = BouncingMNIST(V2, "test", seed=5, length=12)
    batch = data.batch([3, 4, 5, 6], epoch=2)
    chosen, start, velocity = data._draw(torch.tensor([3, 4, 5, 6]), 2)
    images = data._pool.images[chosen].numpy() / np.float32(255)
    for b in range(4):
        for t in range(12):
            places, _ = bounce(
                start[b : b + 1],
                velocity[b : b + 1],
                data._extent[chosen[b : b + 1]],
                ROOM,
                12,
                STEPS,
            )
            expected = np.zeros((28, 48), np.float32)
            expected[[0, -1]] = expected[:, [0, -1]] = 0.5
            for d in range(2):
                rows, columns = (np.flatnonzero(images[b, d].any(1 - a)) for a in (0, 1))
                ink = images[b, d][rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
                box = np.pad(ink, 1, constant_values=1.0)
                row, column = (places[0, t, d] + 1).tolist()
                expected[row : row + box.shape[0], column : column + box.shape[1]] = box
            np.testing.assert_array_equal(batch.frames[b, t, 0].numpy(), expected)


def test_shapes_and_range():
    frames, velocities, labels = BouncingMNIST(V2, "val").batch(range(9), 0)
    assert frames.shape == (9, 20, 1, 28, 48)
    assert velocities.shape == (9, 20, 2, 2)
    assert labels.shape == (9, 2)
    assert frames.dtype == torch.float32
    assert float(frames.min()) == 0
    assert float(frames.max()) == 1


def test_tight_boxes():
    image = torch.zeros(1, 28, 28, dtype=torch.uint8)
    image[0, 4:9, 20:27] = 1
    corner, extent = tight_boxes(image)
    assert corner.tolist() == [[4, 20]]
    assert extent.tolist() == [[7, 9]]  # 5 by 7, and the line around it


def test_starts_are_uniform_over_places_side_by_side():
    free = 3
    word = words(0, torch.arange(20_000), Stream.START, 2)
    i, j = _shares(word[:, 0], word[:, 1], torch.tensor(free))
    counts = (i * 4 + j).bincount(minlength=16)
    assert (i <= j).all()
    assert int((counts > 0).sum()) == 10
    expected = 2_000
    assert float(((counts[counts > 0] - expected) ** 2 / expected).sum()) < 9 + 4 * 18**0.5


def test_starts_are_apart_and_on_either_side():
    data = BouncingMNIST(V2, "train")
    chosen, start, _ = data._draw(torch.arange(2000), 0)
    assert int(gap(start[:, None], data._extent[chosen]).min()) >= 0
    assert (start + data._extent[chosen] <= torch.tensor(ROOM)).all()
    left = (start[:, 0, 1] < start[:, 1, 1]).float().mean()
    assert 0.45 < float(left) < 0.55


def test_an_item_does_not_depend_on_its_batch():
    data = BouncingMNIST(V2, "train", seed=9)
    whole = data.batch(range(60), epoch=2)
    part = data.batch([59, 0, 17], epoch=2)
    for x, y in zip(whole, part, strict=True):
        assert torch.equal(x[[59, 0, 17]], y)
    one = data.at(2)[17]
    assert isinstance(one, Batch)
    assert torch.equal(one.frames, whole.frames[17])
    assert not torch.equal(data.batch(range(60), 0).frames, whole.frames)


@pytest.mark.gpu
def test_same_on_the_gpu():
    here, there = (
        BouncingMNIST(V2, "train", device=d).batch(range(99), 1) for d in ("cpu", "cuda")
    )
    assert all(t.is_cuda for t in there)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"flow": Rotation(count=1)}, "`flow` must be a Translation of images"),
        ({"flow": Translation(closed=(28, 48))}, "not closed on a torus"),
        ({"flow": Translation(radius=20)}, "`flow` must be slower"),
        ({"canvas": (28, 40)}, r"at least 25 rows and 47 columns, .* got \(28, 40\)"),
        ({"canvas": (20, 48)}, r"`canvas` must be .* the size of a digit, got \(20, 48\)"),
        ({"length": 0}, "`length` must be a positive integer, got 0"),
        ({"size": -2}, "`size` must be a positive integer, got -2"),
        ({"split": "dev"}, "`split` must be one of"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        BouncingMNIST(**({"flow": V2, "split": "test"} | arguments))
