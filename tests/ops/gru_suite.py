"""The GRU's step against its plain form: states and all gradients, at awkward sizes.

`test_gru_step.py` runs this file in a process of its own: in Triton's interpreter on the CPU, and
on a device.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch.export import Dim

from fernn.nn import ConvGRU
from fernn.ops.gru_step import gru_step

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In full precision, and with programs that sum over many blocks."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr("fernn.ops.gru_step.triton._PROGRAMS", 2)


@pytest.fixture
def default_half() -> Iterator[None]:
    """A default that new tensors must not take where sums are kept."""
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("source", "channels", "size", "canvas", "images"),
    [
        (1, 8, 3, (5, 7), 2),  # more pixels than a block, and not a multiple
        (2, 8, 3, (2, 3), 2),  # more taps than sixteen
        (1, 136, 1, (3, 3), 1),  # a second block of channels
        (1, 8, 5, (4, 5), 1),
        (16, 8, 1, (1, 3), 1),  # as many taps as a block
    ],
)
def test_gru_step_is_the_plain_step(source, channels, size, canvas, images) -> None:
    """Two steps, so that a state's gradient reaches the step before."""
    torch.manual_seed(0)
    cell = ConvGRU(source, channels, kernel_size=size).to(DEVICE)
    weights = cell.gates.weight, cell.candidate.weight
    frames = torch.randn(2, images, source, *canvas, device=DEVICE)
    h = torch.randn(images, channels, *canvas, device=DEVICE, requires_grad=True)
    got, want = h, h
    for frame in frames:
        got = gru_step(frame, got, *weights)
        (want,) = cell._plain(frame, want)
    assert same(got, want)
    assert got.is_contiguous(memory_format=torch.channels_last)
    grad = torch.randn_like(want)
    mine, theirs = (torch.autograd.grad(x, (h, *weights), grad) for x in (got, want))
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def test_gradients_are_summed_in_float32_whatever_the_default(default_half: None) -> None:
    cell = ConvGRU(1, 8).to(DEVICE, torch.float32)
    frame, h = (torch.randn(2, n, 5, 4, device=DEVICE).float() for n in (1, 8))
    weights = cell.gates.weight, cell.candidate.weight
    out, (want,) = gru_step(frame, h, *weights), cell._plain(frame, h)
    grad = torch.randn_like(want)
    mine, theirs = (torch.autograd.grad(x, weights, grad) for x in (out, want))
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def test_second_gradients_raise() -> None:
    cell = ConvGRU(1, 8).to(DEVICE)
    weights = cell.gates.weight, cell.candidate.weight
    frame, h = (torch.randn(1, n, 3, 4, device=DEVICE) for n in (1, 8))
    out = gru_step(frame, h, *weights).square().sum()
    for gradient in torch.autograd.grad(out, weights, create_graph=True):
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(gradient.sum(), weights, retain_graph=True)


def test_half_precision_is_that_of_autocast() -> None:
    cell = ConvGRU(1, 16).to(DEVICE)
    weights = cell.gates.weight, cell.candidate.weight
    frame, h = torch.randn(2, 1, 5, 4, device=DEVICE), torch.randn(2, 16, 5, 4, device=DEVICE)
    half = (
        torch.float16 if DEVICE == "cpu" else torch.bfloat16
    )  # the interpreter's dot has no other
    with torch.autocast(DEVICE, half):
        got = gru_step(frame, h, *weights)
    want = cell._plain(frame, h)[0]
    assert got.dtype == half
    assert error(got, want, norm=2) < TOLERANCE[torch.bfloat16]
    grad = torch.randn_like(want)
    mine = torch.autograd.grad(got, weights, grad.to(half))
    theirs = torch.autograd.grad(want, weights, grad)
    assert all(error(a, b, norm=2) < 0.02 for a, b in zip(mine, theirs, strict=True))


def test_cell_takes_it_and_exports_for_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setattr("fernn.nn._causal.gru.obstacle", lambda *_: None)
    cell, video = ConvGRU(1, 8).to(DEVICE).eval(), torch.randn(3, 2, 1, 4, 4, device=DEVICE)
    program = torch.export.export(cell, (video[:2],), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert "fernn.gru_step" in str(program.graph)
    assert same(program.module()(video), cell(video))
