"""Attention over time against its plain form: outputs and gradients, at awkward sizes.

`test_pixel_attention.py` runs this file in a process of its own: in Triton's interpreter on the
CPU, and on a device.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch.export import Dim

from fernn.nn import CausalAttention
from fernn.ops.pixel_attention import pixel_attention, triton

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In full precision, and with programs that sum over many blocks."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr("fernn.ops.pixel_attention.triton._PROGRAMS", 2)
    torch.manual_seed(0)


@pytest.fixture
def default_half() -> Iterator[None]:
    """A default that new tensors must not take where sums are kept."""
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


def _model(source: int, channels: int, **options: object) -> CausalAttention:
    """Weights so large that some frames count and others do not."""
    model = CausalAttention(source, channels, **options).to(DEVICE)
    model.qkv.weight.data *= 3
    return model


@pytest.mark.parametrize("recency", [False, True])
@pytest.mark.parametrize(
    ("shape", "channels", "heads", "size"),
    [
        ((2, 3, 1, 5, 7), 8, 2, 3),  # more pixels than a block, and not a multiple
        ((1, 4, 2, 2, 3), 9, 3, 3),  # more taps than sixteen, heads and channels of no power of two
        ((1, 1, 1, 3, 3), 136, 1, 1),  # a second block of channels, and one frame alone
        ((1, 2, 16, 1, 3), 72, 8, 1),  # as many taps as a block; more channels than have room
    ],
)
def test_pixel_attention_is_the_plain_form(shape, channels, heads, size, recency) -> None:
    model = _model(shape[2], channels, heads=heads, kernel_size=size, recency=recency)
    frames, weight = torch.randn(shape, device=DEVICE), model.qkv.weight
    got, want = pixel_attention(frames, weight, heads, recency), model(frames)[:, -1]
    assert same(got, want)
    assert got.is_contiguous(memory_format=torch.channels_last)
    grad = torch.randn_like(want)
    (mine,), (theirs,) = (torch.autograd.grad(x, weight, grad) for x in (got, want))
    assert same(mine, theirs)


def test_blocks_fit_into_the_memory_of_small_devices() -> None:
    for dtype, wide in ((torch.float32, 64), (torch.bfloat16, 128)):
        scores, out = torch.empty(128, 32, dtype=dtype), torch.empty(1, 4, 4, 256, dtype=dtype)
        options = triton._plan(out, scores, 3, True)[1]
        assert (options["BK"], options["num_warps"]) == (wide, 8)


def test_gradients_are_summed_in_float32_whatever_the_default(default_half: None) -> None:
    model, frames = _model(1, 8, heads=2).float(), torch.randn(1, 3, 1, 5, 7, device=DEVICE).float()
    out, want = pixel_attention(frames, model.qkv.weight, 2, False), model(frames)[:, -1]
    grad = torch.randn_like(want)
    (mine,), (theirs,) = (torch.autograd.grad(x, model.qkv.weight, grad) for x in (out, want))
    assert same(mine, theirs)


def test_scores_of_any_size_have_a_softmax() -> None:
    """Some hundreds: their exponentials overflow, and they are exact to 1e-4."""
    model, frames = _model(1, 8, heads=2), 10 * torch.randn(1, 3, 1, 4, 4, device=DEVICE)
    got = pixel_attention(frames, model.qkv.weight, 2, False)
    assert error(got, model(frames)[:, -1]) < 1e-3


def test_second_gradients_raise() -> None:
    model, frames = _model(1, 8, heads=2), torch.randn(1, 2, 1, 3, 4, device=DEVICE)
    out, weight = pixel_attention(frames, model.qkv.weight, 2, False), model.qkv.weight
    (gradient,) = torch.autograd.grad(out.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        torch.autograd.grad(gradient.sum(), weight)


def test_half_precision_is_that_of_autocast() -> None:
    half = (
        torch.float16 if DEVICE == "cpu" else torch.bfloat16
    )  # the interpreter's dot has no other
    model = CausalAttention(1, 16, heads=4, recency=True).to(DEVICE)
    frames, weight = torch.randn(2, 3, 1, 5, 4, device=DEVICE), model.qkv.weight
    with torch.autocast(DEVICE, half):
        got = pixel_attention(frames, weight, 4, True)
    want = model(frames)[:, -1]
    assert got.dtype == half
    assert error(got, want, norm=2) < TOLERANCE[torch.bfloat16]
    grad = torch.randn_like(want)
    (mine,) = torch.autograd.grad(got, weight, grad.to(half))
    (theirs,) = torch.autograd.grad(want, weight, grad)
    assert error(mine, theirs, norm=2) < 0.02


def test_step_takes_it_and_exports_for_batches_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if DEVICE == "cpu":
        monkeypatch.setattr("fernn.nn._causal.attention.obstacle", lambda *_: None)

    class Stream(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = CausalAttention(1, 8, heads=2, recency=True)

        def forward(self, video: torch.Tensor) -> torch.Tensor:
            state = self.cell.init_state(video[:, 0])
            for frame in video.unbind(1):
                state = self.cell.step(frame, state)
            return state[-1]

    stream, video = Stream().to(DEVICE).eval(), torch.randn(3, 2, 1, 4, 4, device=DEVICE)
    program = torch.export.export(stream, (video[:2],), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert "fernn.pixel_attention" in str(program.graph)
    assert same(program.module()(video), stream.cell(video)[:, -1])


def test_a_stream_goes_on_where_kernels_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values that no kernel wrote are formed when they are asked for."""
    cell, video = _model(1, 8, heads=2, recency=True), torch.randn(2, 4, 1, 4, 3, device=DEVICE)
    state, want = cell.init_state(video[:, 0]), cell(video)
    for t, why in enumerate((None, None, "tested", None)):
        monkeypatch.setattr("fernn.nn._causal.attention.obstacle", lambda *_, why=why: why)
        state = cell.step(video[:, t], state)
        assert same(state[-1], want[:, t])
    assert state[1].shape[1] == 3
