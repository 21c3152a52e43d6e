"""`slice_conv` in Triton against its definition: outputs and all gradients, at awkward sizes.

`test_slice_conv.py` runs this file in a process of its own: in Triton's interpreter on the CPU, and
on a CUDA device.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch import Tensor, nn
from torch.export import Dim

import fernn
from fernn.models import _fused_clips
from fernn.nn import LearnedTransport
from fernn.ops.slice_conv import reference, triton

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
HALF = torch.float16 if DEVICE == "cpu" else torch.bfloat16  # the interpreter has no bfloat16
NEAR = TOLERANCE[torch.bfloat16] if DEVICE == "cuda" else 1e-2
CASES = {
    # B, V, K, canvas, size of the kernels
    "plain": (2, 2, 5, (5, 6), 5),
    "taps that meet on a small torus": (1, 2, 8, (2, 3), 5),
    "taps that go around twice": (1, 2, 3, (1, 2), 5),
    "one row": (2, 2, 3, (1, 5), 3),
    "two tiles of rows, many channels": (1, 2, 70, (9, 4), 3),
    "wide rows, two groups of taps": (1, 1, 3, (3, 40), 5),
    "one tap": (2, 3, 4, (3, 17), 1),
}


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)


def strided(*shape: int) -> Tensor:
    """Random values in a layout that no kernel wishes for."""
    x = torch.randn(*shape[::-1], device=DEVICE)
    return x.permute(*reversed(range(len(shape)))).requires_grad_()


def both(h: Tensor, weight: Tensor) -> list[tuple[Tensor, ...]]:
    """Output and gradients of the kernels, and of the definition."""
    seen = torch.randn_like(h)
    results = []
    for form in (triton, reference):
        out = form.slice_conv(h, weight)
        results.append((out, *torch.autograd.grad(out, [h, weight], seen.to(out.dtype))))
    return results


@pytest.mark.parametrize("name", CASES)
def test_slice_conv(name: str) -> None:
    batch, velocities, channels, canvas, size = CASES[name]
    h, weight = strided(batch, velocities, channels, *canvas), strided(velocities, size, size)
    assert all(same(mine, theirs) for mine, theirs in zip(*both(h, weight), strict=True))


@pytest.mark.parametrize("programs", [1, 6])
def test_chunks_of_several_rows(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 rows a velocity: all at once, or 4, 4 and 2, some of them from both samples."""
    monkeypatch.setattr(triton, "_PROGRAMS", programs)
    h, weight = strided(2, 2, 3, 5, 4), strided(2, 3, 3)
    assert all(same(mine, theirs) for mine, theirs in zip(*both(h, weight), strict=True))


def test_no_samples_have_gradients_of_zero() -> None:
    h, weight = strided(0, 2, 3, 4, 5), strided(2, 3, 3)
    out = triton.slice_conv(h, weight)
    grad_h, grad_weight = torch.autograd.grad(out.sum(), [h, weight])
    assert grad_h.shape == h.shape
    assert not grad_weight.any()


def test_slice_conv_in_half_precision_under_autocast() -> None:
    h, weight = strided(2, 2, 9, 5, 6), strided(2, 5, 5)
    with torch.autocast(DEVICE, HALF):
        out = triton.slice_conv(h, weight)
    want = reference.slice_conv(h, weight)
    assert out.dtype == HALF
    assert error(out, want, norm=2) < NEAR
    seen = torch.randn_like(want)
    mine = torch.autograd.grad(out, [h, weight], seen.to(HALF))
    theirs = torch.autograd.grad(want, [h, weight], seen)
    assert [g.dtype for g in mine] == [torch.float32] * 2
    assert all(error(a, b, norm=2) < NEAR for a, b in zip(mine, theirs, strict=True))


def test_a_channels_last_state_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, conv = [], triton._conv
    monkeypatch.setattr(triton, "_conv", lambda h, w: seen.append(h.data_ptr()) or conv(h, w))
    h = torch.randn(1, 2, 3, 4, 8, device=DEVICE).permute(0, 1, 4, 2, 3)
    out = triton.slice_conv(h, torch.randn(2, 3, 3, device=DEVICE))
    assert seen == [h.data_ptr()]
    assert out.permute(0, 1, 3, 4, 2).is_contiguous()


def test_slice_conv_compiles_and_exports_for_batches_of_any_size() -> None:
    weight = torch.randn(2, 3, 3, device=DEVICE)

    class Slices(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return triton.slice_conv(h, weight)

    h = torch.randn(2, 2, 8, 3, 4, device=DEVICE)
    program = torch.export.export(Slices(), (h,), dynamic_shapes=({0: Dim.DYNAMIC},))
    larger = torch.cat([h, h[:1]])
    assert torch.equal(program.module()(larger), Slices()(larger))
    compiled = torch.compile(Slices(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(h), Slices()(h))


def test_second_gradients_raise() -> None:
    h, weight = strided(1, 2, 4, 3, 4), strided(2, 3, 3)
    out = triton.slice_conv(h, weight).square().sum()
    first = torch.autograd.grad(out, [h, weight], create_graph=True)
    for gradient in first:
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(gradient.sum(), [h, weight], retain_graph=True)


def test_classifier_with_a_learned_transport_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits, all gradients and running statistics, as `Classifier.forward` in plain torch."""
    calls = []
    run = triton.slice_conv
    monkeypatch.setattr(triton, "slice_conv", lambda *a: calls.append(a) or run(*a))
    if DEVICE == "cpu":
        monkeypatch.setattr("fernn.ops._backend.obstacle", lambda *_, **__: None)
    flow = fernn.Translation(velocities=[(0, 0), (1, -2)])
    plain = fernn.Classifier(flow=flow, hidden_channels=8, transport="learned", backend="lean")
    ours = fernn.Classifier(flow=flow, hidden_channels=8, transport="learned").to(DEVICE)
    plain = plain.to(DEVICE)
    ours.load_state_dict(plain.state_dict())
    clip = torch.randn(2, 3, 1, 3, 4, device=DEVICE, requires_grad=True)
    assert _fused_clips.fits(ours, clip)
    assert not _fused_clips.fits(plain, clip)
    got, want = ours(clip), plain(clip)
    assert [h.shape[1] for h, _ in calls] == [2, 2]
    assert same(got, want)
    seen = torch.randn_like(want)
    mine, theirs = (
        torch.autograd.grad((logits * seen).sum(), [clip, *model.parameters()])
        for model, logits in ((ours, got), (plain, want))
    )
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))
    for name, value in plain.named_buffers():
        assert same(ours.get_buffer(name).float(), value.float()), name


def test_learned_transport_in_plain_torch_leaves_the_kernels_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton, "slice_conv", lambda *_: pytest.fail("not asked for"))
    monkeypatch.setattr("fernn.ops._backend.obstacle", lambda *_, **__: None)
    learned = LearnedTransport(fernn.Translation(radius=1)).to(DEVICE)
    learned(torch.randn(1, 9, 2, 3, 4, device=DEVICE), "lean")
