"""A stream in the kernels for one frame against the model itself.

`test_stream.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from tolerances import same

from fernn import FlowRNN, Forecaster, Translation
from fernn.models._streamed import Fused

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
FLOW = Translation(velocities=[(0, 0), (1, -2), (-1, 1)])


@pytest.mark.parametrize("readout", ["transported", "published"])
@pytest.mark.parametrize(("channels", "width", "size"), [(1, 16, 3), (2, 48, 5)])
def test_forecasts_are_the_same(
    readout: str, channels: int, width: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = Forecaster(
        flow=FLOW,
        in_channels=channels,
        hidden_channels=width,
        kernel_size=size,
        decoder_layers=1,
        readout=readout,
        backend="lean",
    ).to(DEVICE)
    video = torch.rand(2, 3, channels, 5, 6, device=DEVICE)
    with torch.no_grad():
        fused = Fused(model, video[:, 0])
        for t in range(3):
            fused.frame.copy_(video[:, t])
            answer = fused.run(t % 2)
            assert same(answer, model(video[:, : t + 1], horizon=1)[:, 0])
        assert same(fused.state(1).lab(), model.rnn.observe(video).lab())


def test_states_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    rnn = FlowRNN(1, 16, flow=FLOW, backend="lean").to(DEVICE)
    video = torch.rand(2, 4, 1, 5, 6, device=DEVICE)
    with torch.no_grad():
        fused = Fused(rnn, video[:, 0])
        fused.load(rnn.observe(video[:, :2]))
        for t in (2, 3):
            fused.frame.copy_(video[:, t])
            answer = fused.run(t % 2)
        assert same(answer, rnn(video)[0][:, -1])
        fused.load(None)
        fused.frame.copy_(video[:, 0])
        assert same(fused.run(0), rnn(video)[0][:, 0])


def test_nan_stays_where_it_is() -> None:
    """Neither ReLU nor the maximum hides a state that has broken down."""
    from fernn.ops import one_frame

    rnn = FlowRNN(1, 16, flow=FLOW, backend="lean").to(DEVICE)
    frame = torch.rand(1, 1, 5, 6, device=DEVICE)
    frame[0, 0, 2, 3] = float("nan")
    with torch.no_grad():
        fused = Fused(rnn, frame)
        want = torch.zeros(5, 6, dtype=torch.bool, device=DEVICE)
        want[1:4, 2:5] = True
        assert torch.equal(fused.run(0).isnan(), want.expand(1, len(FLOW), 16, 5, 6))
        halo = torch.zeros(1, len(FLOW), 7, 8, 16, device=DEVICE)
        halo[0, 1, 3, 4, 5] = float("nan")
        out = torch.zeros(1, 7, 8, 16, device=DEVICE)
        one_frame.pool(halo, fused.shift, out, 1, 0)
        assert out.isnan().nonzero().tolist() == [[0, 3, 4, 5]]
