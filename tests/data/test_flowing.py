"""`FlowingMNIST`: what moves where, splits, and that nothing but (seed, epoch, i) matters."""

import hashlib
import math

import numpy as np
import pytest
import torch

from fernn.data import Batch, FlowingMNIST, load_digits
from fernn.data._pool import canvases, load_pool
from fernn.flows import RigidMotion, Rotation, Translation

V2 = Translation(radius=2)
CPU = torch.device("cpu")


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def pick(batch: Batch, index: object) -> Batch:
    return Batch(*(tensor[index] for tensor in batch))


def drawn(data: FlowingMNIST, indices, epoch):
    """What the dataset drew, and the digits as plain float32 images."""
    chosen, start, velocity = data._draw(torch.as_tensor(indices), epoch)
    images = data._pool.images[chosen].numpy() / np.float32(255)
    return images, start.numpy(), velocity.numpy()


# What moves where.


@pytest.mark.parametrize(
    ("flow", "digits", "canvas", "length"),
    [
        (V2, 2, (28, 28), 20),
        (V2, 1, (28, 40), 7),
        (Translation(velocities=[(0, -5), (3, 0)]), 3, (31, 29), 50),
        (Translation(closed=(28, 28)), 2, (28, 28), 4),
    ],
)
def test_translation_by_index_arithmetic(flow, digits, canvas, length):
    data = FlowingMNIST(flow, "val", digits=digits, canvas=canvas, length=length, seed=4)
    batch = data.batch([0, 5, 599], epoch=3)
    images, start, velocity = drawn(data, [0, 5, 599], 3)
    top, left = (canvas[0] - 28) // 2, (canvas[1] - 28) // 2
    for b in range(3):
        for t in range(length):
            expected = np.zeros(canvas, np.float32)
            for d in range(digits):
                placed = np.zeros(canvas, np.float32)
                placed[top : top + 28, left : left + 28] = images[b, d]
                expected += np.roll(placed, start[b, d] + t * velocity[b, d], (0, 1))
            np.testing.assert_array_equal(batch.frames[b, t, 0].numpy(), expected.clip(0, 1))
    assert np.array_equal(batch.velocities.numpy(), velocity)
    assert (velocity != 0).any()


def bilinear(image: np.ndarray, degrees: float) -> np.ndarray:
    """`image` turned counter-clockwise about its centre, pixel by pixel in float64."""
    size, centre = len(image), (len(image) - 1) / 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turned = np.zeros((size, size))
    for row in range(size):
        for column in range(size):
            # Right is x and up is y; the point that lands here came from its inverse turn.
            x, y = column - centre, centre - row
            source = centre - (-sin * x + cos * y), centre + (cos * x + sin * y)
            r, c = math.floor(source[0]), math.floor(source[1])
            for i, j in ((r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)):
                if 0 <= i < size and 0 <= j < size:
                    near = (1 - abs(source[0] - i)) * (1 - abs(source[1] - j))
                    turned[row, column] += near * image[i, j]
    return turned


def test_rotation_by_bilinear_arithmetic():
    data = FlowingMNIST(Rotation(count=4), "test", seed=1, length=12)
    batch = data.batch([7], epoch=0)
    images, start, velocity = drawn(data, [7], 0)
    assert (velocity != 0).any()
    for t in (0, 1, 11):
        angles = [start[0, d, 0] + t * velocity[0, d, 0] for d in range(2)]
        turned = [bilinear(np.pad(images[0, d], 6), angles[d]) for d in range(2)]
        expected = np.clip(sum(turned), 0, 1)
        np.testing.assert_allclose(batch.frames[0, t, 0].numpy(), expected, atol=1e-6)


def test_rotation_by_quarter_turns():
    """At 90° a frame, frame t is frame 0 turned t times, once the start is upright."""
    data = FlowingMNIST(Rotation(velocities=[90.0]), "test", digits=1, length=6)
    frames = data.batch(range(8), epoch=0).frames[:, :, 0]
    for t in range(6):
        torch.testing.assert_close(
            frames[:, t], torch.rot90(frames[:, 0], t, (1, 2)), atol=2e-6, rtol=0
        )
    upright = canvases(data._pool, torch.arange(8), (40, 40), data._levels)
    way = torch.arange(6.0)[None, :, None].expand(8, -1, -1) * 90
    made = torch.zeros(8, 6, 40, 40)
    data._render(torch.arange(8)[:, None], way[:, None], made)
    for t in range(6):
        assert torch.equal(made[:, t], torch.rot90(upright, t, (1, 2)))


def test_frames_are_in_range_and_clamped():
    frames = FlowingMNIST(V2, "test", digits=5).batch(range(20), epoch=0).frames
    assert frames.dtype == torch.float32
    assert float(frames.min()) == 0
    assert float(frames.max()) == 1


def test_shapes_of_defaults():
    frames, velocities, labels = FlowingMNIST(Rotation(count=4), "val").batch([1, 2, 3], 0)
    assert frames.shape == (3, 20, 1, 40, 40)
    assert velocities.shape == (3, 2, 1)
    assert labels.shape == (3, 2)
    assert FlowingMNIST(V2, "val")[0].frames.shape == (20, 1, 28, 28)


# What is drawn.


def test_starts_and_velocities_are_uniform():
    data = FlowingMNIST(V2, "train")
    _, start, velocity = data._draw(torch.arange(5400), 0)
    for values, cells in ((start[..., 0], 28), (start[..., 1], 28), (velocity[..., 0] + 2, 5)):
        counts = values.flatten().bincount(minlength=cells).double()
        expected = 2 * 5400 / cells
        assert len(counts) == cells
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert abs(statistic - (cells - 1)) < 4 * (2 * (cells - 1)) ** 0.5
    _, angle, _ = FlowingMNIST(Rotation(count=1), "train")._draw(torch.arange(5400), 0)
    assert 0 <= float(angle.min()) < 1
    assert 359 < float(angle.max()) < 360


def test_another_v_moves_the_same_digits_from_the_same_starts():
    usual = FlowingMNIST(V2, "test").batch(range(6), 0)
    fixed = FlowingMNIST(Translation(velocities=[(1, -2)]), "test").batch(range(6), 0)
    assert torch.equal(usual.labels, fixed.labels)
    assert torch.equal(usual.frames[:, 0], fixed.frames[:, 0])
    assert not torch.equal(usual.frames[:, 1], fixed.frames[:, 1])
    assert (fixed.velocities == torch.tensor([1, -2])).all()
    rolled = fixed.frames[:, :1].roll((3, -6), (-2, -1))
    assert torch.equal(fixed.frames[:, 3], rolled[:, 0])


def test_a_longer_sequence_begins_like_a_short_one():
    short = FlowingMNIST(V2, "test").batch(range(4), 0)
    long = FlowingMNIST(V2, "test", length=80).batch(range(4), 0)
    assert torch.equal(long.frames[:, :20], short.frames)


def test_labels_are_those_of_the_digits():
    data = FlowingMNIST(Translation(radius=0), "test", digits=1)
    batch = data.batch(range(50), 0)
    digits = load_digits(train=False)
    _, start, _ = data._draw(torch.arange(50), 0)
    for b in range(50):
        back = batch.frames[b, 0, 0].roll(tuple((-start[b, 0]).tolist()), (0, 1))
        match = (digits.images == (back * 255).round().to(torch.uint8)).all(-1).all(-1)
        assert digits.labels[match].tolist() == [batch.labels[b, 0]]


# Splits.


def test_splits_share_no_digit():
    train, val, test = (load_pool(None, split, CPU) for split in ("train", "val", "test"))
    assert (len(train), len(val), len(test)) == (5400, 600, 1000)
    held_out = {bytes(image.numpy()) for image in val.images}
    assert len(held_out) == 600
    assert held_out.isdisjoint(bytes(image.numpy()) for image in train.images)
    both = torch.cat([train.images, val.images]).flatten(1)
    everything = load_digits().images.flatten(1)
    assert torch.equal(both.sum(0), everything.sum(0))
    assert int(val.labels.bincount(minlength=10).min()) > 30


def test_sizes_of_the_full_files(shared):
    sizes = [len(FlowingMNIST(V2, s, root=shared / "mnist")) for s in ("train", "val", "test")]
    assert sizes == [54_000, 6_000, 10_000]
    data = FlowingMNIST(V2, "train", root=shared / "mnist")
    assert data.batch([53_999], 0).frames.shape == (1, 20, 1, 28, 28)
    assert data.source.startswith("MNIST,")


def test_splits_draw_differently():
    drawn = [FlowingMNIST(V2, s).batch(range(8), 0).velocities for s in ("train", "val", "test")]
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


# Nothing but (seed, epoch, i) matters.


@pytest.mark.parametrize("flow", [V2, Rotation(count=4)])
def test_an_item_does_not_depend_on_its_batch(flow):
    data = FlowingMNIST(flow, "train", seed=9)
    whole = data.batch(range(40), epoch=2)
    assert same(data.batch(range(40), epoch=2), whole)
    assert same(data.batch([39, 0, 17], epoch=2), pick(whole, [39, 0, 17]))
    assert same(data.at(2)[17], pick(whole, 17))
    again = FlowingMNIST(flow, "train", seed=9).batch(torch.arange(30, 40), epoch=2)
    assert same(again, pick(whole, slice(30, 40)))


def test_seed_and_epoch_matter():
    data = FlowingMNIST(V2, "train")
    first = data.batch(range(8), 0)
    assert not same(first, data.batch(range(8), 1))
    assert not same(first, FlowingMNIST(V2, "train", seed=1).batch(range(8), 0))


def test_what_a_seed_means_never_changes():
    """Records name a seed; these bytes are what it stood for."""
    batch = FlowingMNIST(V2, "train", seed=7).batch([0, 1, 5399], epoch=3)
    assert hashlib.sha256(batch.frames.numpy().tobytes()).hexdigest()[:16] == "5ddf1f1629a8dc83"
    assert batch.labels.tolist() == [[9, 7], [2, 6], [5, 6]]
    assert batch.velocities.tolist() == [
        [[-2, -2], [-2, -1]],
        [[-2, -2], [-2, -1]],
        [[-1, 2], [-2, -1]],
    ]


@pytest.mark.gpu
def test_same_on_the_gpu():
    here, there = (
        FlowingMNIST(V2, "train", device=d).batch(range(300), 1) for d in ("cpu", "cuda")
    )
    assert there.frames.is_cuda
    assert there.velocities.is_cuda
    assert there.labels.is_cuda
    assert same(here, pick(Batch(*(t.cpu() for t in there)), slice(None)))
    here, there = (
        FlowingMNIST(Rotation(count=4), "train", device=d).batch(range(300), 1).frames.cpu()
        for d in ("cpu", "cuda")
    )
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"digits": 0}, "`digits` must be a positive integer, got 0"),
        ({"length": 0}, "`length` must be a positive integer, got 0"),
        ({"size": 0}, "`size` must be a positive integer, got 0"),
        ({"seed": -1}, "`seed` must be a non-negative integer, got -1"),
        ({"split": "dev"}, "`split` must be one of 'train', 'val', 'test', got 'dev'"),
        ({"canvas": (28, 27)}, r"`canvas` must be \(rows, columns\) of at least 28 .* \(28, 27\)"),
        ({"canvas": (28,)}, r"`canvas` must be .* got \(28,\)"),
        ({"canvas": (28.0, 28)}, r"`canvas` must be .* got \(28.0, 28\)"),
        ({"canvas": (28, 28, 28)}, r"`canvas` must be .* got \(28, 28, 28\)"),
        ({"canvas": (True, 28)}, r"`canvas` must be .* got \(True, 28\)"),
        ({"canvas": 28}, "`canvas` must be .* got 28"),
        (
            {"flow": RigidMotion([(0, 0, 0)])},
            "`flow` must be a Translation of images or a Rotation",
        ),
        ({"flow": Translation(radius=1, dim=1)}, "`flow` must be a Translation of images"),
        ({"flow": Translation(closed=(28, 30))}, r"must have the canvas \(28, 30\)"),
        ({"root": "/no/such/folder"}, "`root` must be a folder that holds"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        FlowingMNIST(**({"flow": V2, "split": "test"} | arguments))


def test_canvas_of_numpy_integers():
    data = FlowingMNIST(V2, "val", canvas=(np.int64(28), np.int64(30)))
    assert [type(size) for size in data.canvas] == [int, int]
    assert "canvas=(28, 30)" in repr(data)


def test_empty_v():
    with pytest.raises(ValueError, match="`velocities` must not be empty"):
        FlowingMNIST(Translation(velocities=[]), "test")
