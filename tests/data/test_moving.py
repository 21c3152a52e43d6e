"""`MovingClips`: which frames of a clip are seen, and how the camera moves them."""

import numpy as np
import pytest
import torch

from fernn.data import Batch, ClipArchive, DataError, MovingClips
from fernn.flows import Rotation, Translation

V2 = Translation(radius=2)
LENGTHS = (32, 33, 80, 150, 40, 64, 32, 45)
SPLITS = ("train", "train", "val", "train", "test", "train", "val", "test")


def make(lengths=LENGTHS, splits=SPLITS, size=(32, 32)) -> ClipArchive:
    """Noise, so that every frame and every pixel is its own."""
    generator = np.random.default_rng(0)
    clips = len(lengths)
    return ClipArchive(
        name="noise",
        classes=("walk", "run", "wave"),
        frames=torch.from_numpy(generator.integers(0, 256, (sum(lengths), *size), dtype=np.uint8)),
        length=torch.tensor(lengths),
        label=torch.arange(clips) % 3,
        subject=torch.arange(clips),
        start=torch.zeros(clips, dtype=torch.int64),
        clip=tuple(f"clip{i}" for i in range(clips)),
        split=tuple(splits),
    )


@pytest.fixture(scope="module")
def archive() -> ClipArchive:
    return make()


@pytest.fixture(scope="module")
def many() -> ClipArchive:
    return make((40,) * 300, ("train",) * 300, (3, 4))


def still(clip: torch.Tensor, first: int) -> np.ndarray:
    """Every second of 32 frames of a clip, without any motion."""
    return clip[first : first + 32 : 2].numpy() / np.float32(255)


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("split", ["val", "test"])
def test_evaluation_by_index_arithmetic(archive, split, switch):
    """The central window, never mirrored, moved cyclically; the same in numpy."""
    data = MovingClips(archive, V2, split, switch=switch, seed=2)
    clips = [i for i, s in enumerate(SPLITS) if s == split]
    batch = data.batch(range(len(clips)), epoch=5)
    assert len(data) == len(clips) == 2
    assert batch.labels.tolist() == [i % 3 for i in clips]
    for b, clip in enumerate(clips):
        expected = still(archive[clip], (LENGTHS[clip] - 32) // 2)
        velocity = batch.velocities[b].numpy()
        place = np.zeros(2, int)
        for t in range(16):
            moved = np.roll(expected[t], place, (0, 1))
            np.testing.assert_array_equal(batch.frames[b, t, 0].numpy(), moved)
            place = place + velocity[0 if t < 8 else -1]
    assert batch.velocities.shape == (2, 2 if switch else 1, 2)
    assert batch.velocities.any()


def test_training_takes_any_window_and_mirrors_half(archive):
    data = MovingClips(archive, Translation(radius=0), "train")
    clips = [i for i, s in enumerate(SPLITS) if s == "train"]
    firsts, mirrored = {clip: set() for clip in clips}, []
    for epoch in range(40):
        frames = data.batch(range(len(clips)), epoch).frames[:, :, 0].numpy()
        for b, clip in enumerate(clips):
            windows = [still(archive[clip], k) for k in range(LENGTHS[clip] - 31)]
            plain = [k for k, w in enumerate(windows) if np.array_equal(frames[b], w)]
            turned = [k for k, w in enumerate(windows) if np.array_equal(frames[b], w[..., ::-1])]
            assert len(plain) + len(turned) == 1
            firsts[clip].update(plain + turned)
            mirrored.append(len(turned))
    assert firsts[0] == {0}  # 32 frames have one window
    assert firsts[1] == {0, 1}
    assert len(firsts[3]) > 25
    assert max(firsts[3]) > 100
    assert 0.35 < np.mean(mirrored) < 0.65


def test_a_clip_keeps_its_velocity(many):
    data = MovingClips(many, V2, "train")
    first, later = (data.batch(range(300), epoch).velocities for epoch in (0, 7))
    assert torch.equal(first, later)
    assert len(first.flatten(1).unique(dim=0)) == 25
    assert not torch.equal(
        first, MovingClips(many, V2, "train", seed=1).batch(range(300), 0).velocities
    )


def test_redraw(many):
    data = MovingClips(many, V2, "train", redraw=True)
    first, later = (data.batch(range(300), epoch).velocities for epoch in (0, 7))
    same = (first == later).all(-1).float().mean()
    assert float(same) < 0.1
    fixed = MovingClips(many, V2, "train").batch(range(300), 7).velocities
    assert torch.equal(first, fixed)


def test_the_two_velocities_of_a_switch_are_unrelated(many):
    before, after = MovingClips(many, V2, "train", switch=True).batch(range(300), 0)[1].unbind(1)
    assert 0 < float((before == after).all(-1).float().mean()) < 0.1
    steady = MovingClips(many, V2, "train").batch(range(300), 0).velocities[:, 0]
    assert torch.equal(before, steady)


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_velocities_are_those_of_v(many, radius):
    data = MovingClips(many, Translation(radius=radius), "train")
    velocities = data.batch(range(300), 0).velocities
    assert int(velocities.abs().max()) == radius


def test_an_item_does_not_depend_on_its_batch(many):
    data = MovingClips(many, V2, "train", redraw=True, switch=True)
    whole = data.batch(range(300), 3)
    part = data.batch([299, 4], 3)
    for x, y in zip(whole, part, strict=True):
        assert torch.equal(x[[299, 4]], y)
    assert torch.equal(data.at(3)[4].frames, whole.frames[4])
    shuffled = list(data.batches(64, 3, shuffle=True))
    assert isinstance(shuffled[0], Batch)
    seen = torch.cat([batch.frames.sum((1, 2, 3, 4)) for batch in shuffled])
    expected = whole.frames.sum((1, 2, 3, 4)).sort().values
    torch.testing.assert_close(seen.sort().values, expected)


def test_the_stand_in(shared):
    archive = ClipArchive.load(shared / "actions" / "mocap_actions.npz")
    data = {s: MovingClips(archive, V2, s) for s in ("train", "val", "test")}
    assert [len(d) for d in data.values()] == [956, 219, 319]
    frames, velocities, labels = data["train"].batch([0, 500, 955], 0)
    assert frames.shape == (3, 16, 1, 32, 32)
    assert velocities.shape == (3, 1, 2)
    assert labels.shape == (3,)
    assert frames.dtype == torch.float32
    assert data["train"].classes == ("walk", "run", "jump", "box", "signal", "dance")
    assert "mocap_actions" in repr(data["train"])


@pytest.mark.gpu
def test_same_on_the_gpu(archive):
    here, there = (
        MovingClips(archive, V2, "train", switch=True, device=d).batch(range(4), 1)
        for d in ("cpu", "cuda")
    )
    assert all(t.is_cuda for t in there)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


def test_bad_arguments(archive):
    with pytest.raises(ValueError, match="`split` must be one of 'train', 'val', 'test'"):
        MovingClips(archive, V2, "dev")
    with pytest.raises(ValueError, match="`flow` must be a Translation of images"):
        MovingClips(archive, Rotation(count=1), "val")
    with pytest.raises(ValueError, match=r"must have the canvas \(28, 28\)"):
        MovingClips(archive, Translation(closed=(28, 28)), "val")
    with pytest.raises(ValueError, match="`seed` must be a non-negative integer"):
        MovingClips(archive, V2, "val", seed=-1)


def test_archive_that_lacks_what_is_asked():
    with pytest.raises(DataError, match="at least 32 frames, got 1 shorter ones in 'val'"):
        MovingClips(make((40, 31), ("val", "val")), V2, "val")
    with pytest.raises(DataError, match="`split` must have clips in 'noise', got 'test'"):
        MovingClips(make((40,), ("val",)), V2, "test")
