"""The published formulation of the translation forecaster, as a model to time against.

What makes it slow is kept: NCHW tensors, one `torch.roll` for every velocity in a Python loop, the
slices stacked again, and a circular pad before every convolution. It owns the parameters of
`fernn.Forecaster(readout="published", decoder_layers=4)` and loads its state dict, so both compute
one function, and a test holds them to the same loss.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import Forecaster, Translation


class PublishedForecaster(nn.Module):
    """h_{t+1}(ν) = ReLU(roll_ν(W ⋆ h_t(ν)) + U ⋆ f_t), max over ν, decoder; the published loop.

    Shapes: video [B, T, 1, H, W] and a horizon → [B, horizon, 1, H, W]. The last observed frame is
    fed twice, later steps are fed the previous prediction with its gradient stopped.
    """

    names: dict[str, str]  # of its parameters, and what the library's model calls them

    def __init__(
        self, flow: Translation, hidden_channels: int = 128, decoder_layers: int = 4
    ) -> None:
        super().__init__()
        self.velocities = [tuple(velocity) for velocity in flow.velocities.tolist()]
        self.hidden_channels = hidden_channels
        self.inner = nn.Conv2d(1, hidden_channels, 3, bias=False)
        self.recurrent = nn.Conv2d(hidden_channels, hidden_channels, 3, bias=False)
        widths = [hidden_channels] * (decoder_layers + 1) + [1]
        self.decoder = nn.ModuleList(nn.Conv2d(a, b, 3) for a, b in pairwise(widths))

    @classmethod
    def of(cls, model: Forecaster) -> "PublishedForecaster":
        """The same function as `model`, with a copy of its weights."""
        flow, config = model.flow, model.config
        assert isinstance(flow, Translation)
        assert config["readout"] == "published"
        width, layers = config["hidden_channels"], config["decoder_layers"]
        assert isinstance(width, int)
        assert isinstance(layers, int)
        copy = cls(flow, width, layers)
        weights = model.state_dict()
        names = {"inner.weight": "rnn.layers.0.input.weight"}
        names["recurrent.weight"] = "rnn.layers.0.recurrent.weight"
        for index in range(layers + 1):
            for part in ("weight", "bias"):
                names[f"decoder.{index}.{part}"] = f"decoder.{2 * index}.{part}"
        copy.load_state_dict({name: weights[source] for name, source in names.items()})
        copy.names = names
        return copy.to(next(model.parameters()))

    def forward(self, video: Tensor, horizon: int = 10) -> Tensor:
        batch, frames, _, height, width = video.shape
        h = video.new_zeros(batch, len(self.velocities), self.hidden_channels, height, width)
        for t in range(frames):
            h = self.step(h, video[:, t])
        frame = video[:, -1]
        predictions = []
        for _ in range(horizon):
            h = self.step(h, frame)
            predictions.append(self.read(h))
            frame = predictions[-1].detach()
        return torch.stack(predictions, 1)

    def read(self, h: Tensor) -> Tensor:
        """h_t [B, V, K, H, W] → the frame that it forecasts, [B, 1, H, W]."""
        x = h.max(dim=1).values
        for index, conv in enumerate(self.decoder):
            x = conv(_pad(x))
            x = F.relu(x) if index + 1 < len(self.decoder) else x
        return x

    def step(self, h: Tensor, frame: Tensor) -> Tensor:
        """h_t [B, V, K, H, W] and a frame [B, 1, H, W] → h_{t+1}."""
        drive = self.inner(_pad(frame))
        recurrent = self.recurrent(_pad(h.flatten(0, 1))).reshape(h.shape)
        moved = [
            torch.roll(recurrent[:, index], shifts=velocity, dims=(-2, -1))
            for index, velocity in enumerate(self.velocities)
        ]
        return F.relu(torch.stack(moved, 1) + drive[:, None])


def _pad(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 1, 1), mode="circular")
