"""Forecasting video: observe, then predict and feed back."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow, Translation
from fernn.models import _fused, _fused_rotation, _predict
from fernn.models._canvas import check_wraps
from fernn.nn import FlowPool, FlowRNN

READOUTS = ("transported", "published")
_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Forecaster(nn.Module):
    """f̂_{t+1} = g(max_ν ψ_1(ν)·h_{t+1}(ν)), fed back at its own time: video [B, T, C, *X] and a
    horizon → [B, horizon, C, *X].

    The `transported` readout carries each slice on by its own flow before pooling, so it predicts
    the next frame where that frame will be, and is flow equivariant on a closed V of translations,
    not of turns, since the decoder does not turn. The `published` one pools h as it stands, one
    step behind its target, and feeds the last observed frame twice. Gradients stop at fed-back
    predictions.

    `flow=None` is the G-RNN. The decoder g is `decoder_layers` convolutions with ReLU and one more
    to the image. `frame` is the lab frame for translations and the co-moving frame otherwise.

    On a GPU, `torch.func.grad` and a second backward pass raise: its kernels have first gradients
    alone. backend="reference" has all of them.

    >>> model = Forecaster(flow=Translation(radius=1), hidden_channels=8)
    >>> model(torch.zeros(2, 5, 1, 12, 12), horizon=3).shape
    torch.Size([2, 3, 1, 12, 12])
    """

    forecasts = True  # the first output follows the last frame

    def __init__(
        self,
        *,
        flow: Flow | None = None,
        in_channels: int = 1,
        hidden_channels: int = 128,
        kernel_size: int = 3,
        decoder_layers: int = 3,
        readout: str = "transported",
        frame: str | None = None,
        mixing: int | str | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        flow = Translation(radius=0) if flow is None else flow
        _check.kind("flow", flow, Flow, "Translation(radius=2)")
        _check.choice("readout", readout, READOUTS)
        _ = flow.zero  # a scene at rest must have its frame
        _check.count("decoder_layers", decoder_layers, least=0)
        _check.count("hidden_channels", hidden_channels, least=1)
        cyclic = isinstance(flow, Translation)
        frame = ("lab" if cyclic else "comoving") if frame is None else frame
        self.config: dict[str, object] = {
            "flow": flow,
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "kernel_size": kernel_size,
            "decoder_layers": decoder_layers,
            "readout": readout,
            "frame": frame,
            "mixing": mixing,
            "backend": backend,
        }
        self.readout, self.kernel_size = readout, kernel_size
        self.rnn = FlowRNN(
            in_channels,
            hidden_channels,
            flow=flow,
            frame=frame,
            kernel_size=kernel_size,
            mixing=mixing,
            backend=backend,
        )
        self.pool = FlowPool("max", dim=flow.group.dim)
        width = hidden_channels * flow.group.order
        widths = [width] * (decoder_layers + 1) + [in_channels]
        self.decoder = decoder(widths, kernel_size, flow.group.dim, cyclic=cyclic)

    @property
    def flow(self) -> Flow:
        return self.rnn.flow

    def forward(self, video: Tensor, horizon: int = 10) -> Tensor:
        _check.count("horizon", horizon, least=1)
        self.rnn._check_input("video", video, sequence=True)
        check_wraps("video", video, self.decoder)
        if _fused.fits(self, video):
            return _fused.forecast(self, video, horizon)
        if _fused_rotation.fits(self, video):
            return _fused_rotation.forecast(self, video, horizon)
        kernels = self.rnn.kernels()
        state = self.rnn.observe(video, kernels=kernels)
        published = self.readout == "published"
        frame = video[:, -1]
        predictions: list[Tensor] = []
        for step in range(horizon):
            if published or step > 0:
                state = self.rnn.step(frame, state, kernels)
            ahead = 0 if published else 1
            if _predict.fits(self, state):
                predictions.append(_predict.predict(self, state, ahead))
            else:
                predictions.append(self.decoder(self.pool(state.lab(ahead))))
            frame = predictions[-1].detach().to(video.dtype)
        return torch.stack(predictions, 1)


def decoder(widths: list[int], kernel_size: int, dim: int, *, cyclic: bool) -> nn.Sequential:
    """g: convolutions with ReLU between them, on a torus or with zeros outside."""
    layers: list[nn.Module] = []
    for source, target in pairwise(widths):
        layers += [
            _CONV[dim](
                source,
                target,
                kernel_size,
                padding=kernel_size // 2,
                padding_mode="circular" if cyclic else "zeros",
            ),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers[:-1])
