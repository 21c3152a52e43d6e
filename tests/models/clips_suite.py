"""The classifier's GPU loop against `Classifier.forward`: logits, gradients, running statistics.

`test_fused_clips.py` runs this file in a process of its own, in Triton's interpreter or on a
device.
"""

import copy
import os

import pytest
import torch
from tolerances import same

import fernn
from fernn.models import _fused_clips, _scan

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.mark.parametrize("frames", [2, 3, 5])
def test_classify_equals_forward(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn on the CPU, the same on every device.

    With this seed rounding the clip moves no gradient by more than three times as much, and no ReLU
    or maximum is within 4e-5 of changing sides. With others a gradient of batch-norm nearly
    cancels, and rounding alone moves it by 70 times as much.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(1)
    flow = fernn.Translation(velocities=[(0, 0), (1, -2), (-1, 1)])
    plain = fernn.Classifier(flow=flow, in_channels=2, hidden_channels=8, backend="lean")
    plain = plain.to(DEVICE)
    fused = copy.deepcopy(plain)
    clip = torch.randn(2, frames, 2, 5, 4).to(DEVICE).requires_grad_()
    want, got = plain(clip), _fused_clips.classify(fused, clip)
    assert same(got, want)
    weights = torch.randn(want.shape).to(DEVICE)
    gradients = [
        torch.autograd.grad((logits * weights).sum(), [clip, *model.parameters()])
        for model, logits in ((plain, want), (fused, got))
    ]
    assert all(same(mine, theirs) for theirs, mine in zip(*gradients, strict=True))
    statistics = [dict(model.named_buffers()) for model in (plain, fused)]
    assert len(statistics[0]) == 9
    for name, value in statistics[0].items():
        assert same(statistics[1][name].float(), value.float()), name
    for model in (plain, fused):
        model.eval()
    with torch.no_grad():
        assert same(_fused_clips.classify(fused, clip), plain(clip))


def test_a_batch_of_any_size_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fused_clips, "fits", lambda *_: True)
    flow = fernn.Translation(velocities=[(0, 0), (1, 1)])
    model = fernn.Classifier(flow=flow, hidden_channels=8).to(DEVICE).eval()
    clip = torch.randn(2, 2, 1, 4, 4, device=DEVICE)
    program = torch.export.export(model, (clip,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert "fernn.scan" in str(program.graph)
    larger = torch.cat([clip, clip.flip(0), clip])
    with torch.no_grad():
        assert same(program.module()(larger), model(larger))


def test_the_first_state_is_convolved_once_for_all_velocities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """h_1 does not depend on ν, nor does W ⋆ h_1."""
    seen, convolve = [], _scan.convolve
    monkeypatch.setattr(_scan, "convolve", lambda x, w: seen.append(x.shape[1]) or convolve(x, w))
    drives = torch.randn(4, 2, 3, 4, 8, device=DEVICE)
    kernel, shift = torch.randn(8, 8, 3, 3, device=DEVICE), torch.tensor([[0, 0], [1, 2], [2, 1]])
    _scan.last_pooled(drives, kernel, shift.to(DEVICE).int())
    assert seen == [1, 3, 3]


def test_states_are_kept_for_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, scan = [], _scan._scan
    monkeypatch.setattr(_scan, "_scan", lambda *args: kept.append(args[-1]) or scan(*args))
    drives = torch.randn(2, 1, 3, 4, 8, device=DEVICE)
    kernel, shift = torch.randn(8, 8, 3, 3, device=DEVICE), torch.zeros(1, 2, device=DEVICE).int()
    _scan.last_pooled(drives, kernel, shift)
    _scan.last_pooled(drives, kernel.clone().requires_grad_(), shift)
    with torch.no_grad():
        _scan.last_pooled(drives.requires_grad_(), kernel, shift)
    assert kept == [False, True, False]
