"""Contact sheets and animations: what they say, what they show, and that they are whole."""

import builtins
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fernn.data import Batch, BouncingMNIST, DataError, FlowingMNIST, animation, contact_sheet
from fernn.data._show import caption
from fernn.flows import Rotation, Translation


@pytest.fixture(scope="module")
def batch() -> Batch:
    return FlowingMNIST(Translation(radius=2), "test", length=6).batch(range(3), 0)


def clips(legs: int) -> Batch:
    velocities = torch.tensor([[[1, 0], [-2, 2]]])[:, :legs]
    return Batch(torch.rand(1, 4, 1, 8, 8), velocities, torch.tensor([1]))


def test_captions():
    still = Batch(torch.empty(0), torch.tensor([[[1, -2], [0, 0]]]), torch.tensor([[7, 3]]))
    assert caption(still, 0) == ["7 moves (+1, −2)", "3 rests"]
    turning = Batch(torch.empty(0), torch.tensor([[[-10.0]]]), torch.tensor([[4]]))
    assert caption(turning, 0) == ["4 turns −10°"]
    assert caption(clips(1), 0, ("walk", "run")) == ["run", "moves (+1, 0)"]
    assert caption(clips(2), 0, ("walk", "run")) == ["run", "moves (+1, 0)", "then moves (−2, +2)"]
    assert caption(clips(1), 0)[0] == "1"


def test_caption_of_what_bounces_is_that_of_the_first_frame():
    velocities = torch.tensor([[[[0, 2], [1, 0]], [[0, -2], [1, 0]]]])  # it turns after frame 0
    batch = Batch(torch.empty(0), velocities, torch.tensor([[7, 3]]))
    assert caption(batch, 0) == ["7 moves (0, +2)", "3 moves (+1, 0)"]


def test_contact_sheet(batch, tmp_path):
    path = tmp_path / "sheet.png"
    contact_sheet(batch, path, title="Translating MNIST")
    with Image.open(path) as image:
        assert image.format == "PNG"
        picture = np.asarray(image.convert("L"))
    assert picture.shape[1] > picture.shape[0]  # six frames wide, three sequences high
    assert (picture == 0).mean() > 0.3  # the black of the canvases
    assert (picture[:5] == 255).all()
    assert list(tmp_path.iterdir()) == [path]
    # Every frame has its own picture: fewer columns, narrower sheet.
    contact_sheet(batch, path, frames=2, sequences=1)
    with Image.open(path) as image:
        assert image.width < picture.shape[1] / 2
        assert image.height < picture.shape[0] / 2


def test_animation(batch, tmp_path):
    path = tmp_path / "moving.gif"
    animation(batch, path, title="Translating MNIST", rate=10)
    with Image.open(path) as image:
        assert image.format == "GIF"
        assert image.n_frames == 6
        assert image.info["duration"] == 100
        assert image.info["loop"] == 0
        stills = []
        for time in range(6):
            image.seek(time)
            stills.append(np.asarray(image.convert("L")).astype(int))
    assert all((a != b).any() for a, b in pairwise(stills))
    assert list(tmp_path.iterdir()) == [path]


def test_every_dataset_can_be_shown(tmp_path):
    rotating = FlowingMNIST(Rotation(count=4), "test", length=3).batch([0], 0)
    bouncing = BouncingMNIST(Translation(radius=2), "test", length=3).batch([0], 0)
    for made in (rotating, bouncing, clips(1), clips(2)):
        contact_sheet(made, tmp_path / "a.png", classes=[str(n) for n in range(10)])
        animation(made, tmp_path / "a.gif", classes=[str(n) for n in range(10)])


def test_same_bytes_twice(batch, tmp_path):
    for name in ("a", "b"):
        contact_sheet(batch, tmp_path / f"{name}.png")
        animation(batch, tmp_path / f"{name}.gif")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()


@pytest.mark.parametrize("show", [contact_sheet, animation])
def test_bad_arguments(show, batch, tmp_path):
    with pytest.raises(ValueError, match="`sequences` must be a positive integer, got 0"):
        show(batch, tmp_path / "x", sequences=0)
    one = Batch(*(tensor[0] for tensor in batch))
    with pytest.raises(ValueError, match=r"`batch` must have frames \[B, T, 1, H, W\], got shape"):
        show(one, tmp_path / "x")
    with pytest.raises(TypeError, match=r"`batch` must be a Batch, got a tensor of shape \(3, 6, "):
        show(batch.frames, tmp_path / "x")
    with pytest.raises(DataError, match="cannot be written"):
        show(batch, tmp_path / "absent" / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rate", [0, -1, 51, float("nan")])
def test_bad_rate(batch, tmp_path, rate):
    with pytest.raises(ValueError, match="`rate` must be above 0 and at most 50"):
        animation(batch, tmp_path / "x.gif", rate=rate)


@pytest.mark.parametrize("show", [contact_sheet, animation])
def test_what_was_there_stays_when_writing_fails(show, batch, tmp_path, monkeypatch):
    path = tmp_path / "picture"
    path.write_text("before")

    def full(_: object, target: Path, **__: object) -> None:
        target.write_text("half a pict")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    monkeypatch.setattr("PIL.Image.Image.save", full)
    with pytest.raises(DataError, match="cannot be written: No space left"):
        show(batch, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("show", [contact_sheet, animation])
def test_without_matplotlib(show, batch, tmp_path: Path, monkeypatch):
    usual = builtins.__import__

    def absent(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install fernn\[experiments\]"):
        show(batch, tmp_path / "x")
