"""`SequenceForecaster` with kernels against its plain form: forecasts and gradients.

`test_sequence.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from graphs import replayed
from tolerances import TOLERANCE, error, same
from torch import Tensor

from fernn import Translation
from fernn.models import SequenceForecaster

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SEQUENCES = {
    "convgru": "fernn.nn._causal.gru.obstacle",
    "attention": "fernn.nn._causal.attention.obstacle",
}
POOL = "fernn.models._sequence.obstacle"


def _gradients(model: SequenceForecaster, video: Tensor, horizon: int) -> list[Tensor]:
    """The forecast and the gradient of every weight."""
    torch.manual_seed(1)
    out = model(video, horizon)
    weights = torch.randn(out.shape).to(out)
    return [out, *torch.autograd.grad((out * weights).sum(), list(model.parameters()))]


@pytest.fixture(params=SEQUENCES)
def model(request: pytest.FixtureRequest) -> SequenceForecaster:
    torch.manual_seed(0)
    flow = Translation(velocities=[(0, 0), (1, -2)])
    return SequenceForecaster(
        sequence=request.param, flow=flow, in_channels=1, hidden_channels=8, decoder_layers=1
    ).to(DEVICE)


def _refuse(monkeypatch: pytest.MonkeyPatch, why: str | None) -> None:
    for name in (*SEQUENCES.values(), POOL):
        monkeypatch.setattr(name, lambda *_: why)


def test_forecast_with_kernels_is_the_plain_one(
    model: SequenceForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    video = torch.randn(1, 2, 1, 3, 5, device=DEVICE)
    with monkeypatch.context() as plain:
        _refuse(plain, "tested")
        want = _gradients(model, video, 2)
    if DEVICE == "cpu":
        _refuse(monkeypatch, None)
    got = _gradients(model, video, 2)
    assert all(same(a, b) for a, b in zip(got, want, strict=True))


def test_no_copy_of_the_lifted_state(
    model: SequenceForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States lie channels-last from step to step."""
    if DEVICE == "cpu":
        _refuse(monkeypatch, None)
    state, frame = None, torch.randn(1, 1, 3, 5, device=DEVICE)
    for _ in range(2):
        state = model.sequence.step(frame, state)
        h = state.tensors[-1].flatten(0, 1)
        assert h._base is not None
        assert h.is_contiguous(memory_format=torch.channels_last)


if DEVICE == "cuda":

    @pytest.mark.parametrize("sequence", SEQUENCES)
    def test_half_precision_errs_as_the_plain_form_does(
        sequence: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = SequenceForecaster(
            sequence=sequence, flow=Translation(radius=2), hidden_channels=64, decoder_layers=1
        ).cuda()
        video, results = torch.rand(4, 4, 1, 13, 9, device="cuda"), []
        for half, why in ((True, None), (True, "tested"), (False, "tested")):
            with monkeypatch.context() as forced:
                if why is not None:
                    _refuse(forced, why)
                with torch.autocast("cuda", torch.bfloat16, enabled=half):
                    out = model(video, 3)
                weights = torch.linspace(-1, 2, out.numel(), device="cuda").reshape(out.shape)
                loss = (out.float() * weights).sum()
                results.append([out, *torch.autograd.grad(loss, list(model.parameters()))])
        for mine, theirs, exact in zip(*results, strict=True):
            near = 2 * error(theirs, exact, norm=2) + TOLERANCE[torch.bfloat16]
            assert error(mine, exact, norm=2) < near

    @pytest.mark.parametrize("sequence", SEQUENCES)
    def test_training_step_is_captured_in_a_graph(sequence: str) -> None:
        """Nothing waits for the device, forward or back, and the replay gives the same."""
        model = SequenceForecaster(
            sequence=sequence, flow=Translation(radius=1), hidden_channels=64, decoder_layers=1
        ).cuda()
        video, target = torch.rand(4, 3, 1, 8, 8).cuda(), torch.rand(4, 2, 1, 8, 8).cuda()

        def gradients() -> tuple[Tensor, ...]:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                out = model(video, 2)
            loss = (out.float() - target).square().mean()
            return torch.autograd.grad(loss, list(model.parameters()))

        near = TOLERANCE[torch.bfloat16]
        assert all(error(mine, theirs, norm=2) < near for mine, theirs in replayed(gradients))
