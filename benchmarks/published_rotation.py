"""The published formulation of the rotation forecaster on SE(2), as a model to time against.

What makes it slow is kept: NCHW tensors in the lab frame, the hidden state of every velocity turned
at every step in a Python loop, by a permutation of its orientations and a bilinear grid sample, the
slices stacked again, and filters expanded anew at every convolution. It owns the parameters of
`fernn.Forecaster(readout="published", frame="lab")` with a rotation on `SE2(N)`, so both compute
one function, and a test holds them to the same loss.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import SE2, Forecaster, Rotation
from fernn.groups import GroupConv


class PublishedRotationForecaster(nn.Module):
    """h_{t+1}(ν) = ReLU(turn_ν(W ⋆ h_t(ν)) + U ⋆ f_t), max over ν, decoder; the published loop.

    Shapes: video [B, T, 1, H, H] and a horizon → [B, horizon, 1, H, H]. The last observed frame is
    fed twice, later steps are fed the previous prediction with its gradient stopped.
    """

    names: dict[str, str]  # of its parameters, and what the library's model calls them

    def __init__(
        self, degrees: list[float], orientations: int, hidden_channels: int, decoder_layers: int
    ) -> None:
        super().__init__()
        self.degrees, self.orientations = degrees, orientations
        group, self.width = SE2(orientations), hidden_channels * orientations
        self.inner = GroupConv(group, 1, hidden_channels, 3, lifting=True, padding="zeros")
        self.recurrent = GroupConv(group, hidden_channels, hidden_channels, 3, padding="zeros")
        widths = [self.width] * (decoder_layers + 1) + [1]
        self.decoder = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))

    @classmethod
    def of(cls, model: Forecaster) -> "PublishedRotationForecaster":
        """The function of `model` in the lab frame, with a copy of its weights."""
        flow, config = model.flow, model.config
        assert isinstance(flow, Rotation)
        assert config["readout"] == "published"
        width, layers = config["hidden_channels"], config["decoder_layers"]
        assert isinstance(width, int)
        assert isinstance(layers, int)
        copy = cls(flow.velocities.flatten().tolist(), flow.group.order, width, layers)
        weights = model.state_dict()
        names = {f"{part}.weight": f"rnn.layers.0.{source}.weight" for part, source in _PARTS}
        for index in range(layers + 1):
            for part in ("weight", "bias"):
                names[f"decoder.{index}.{part}"] = f"decoder.{2 * index}.{part}"
        copy.load_state_dict({name: weights[source] for name, source in names.items()})
        copy.names = names
        return copy.to(next(model.parameters()))

    def forward(self, video: Tensor, horizon: int = 10) -> Tensor:
        batch, frames, _, height, width = video.shape
        h = video.new_zeros(batch, len(self.degrees), self.width, height, width)
        for t in range(frames):
            h = self.step(h, video[:, t])
        frame = video[:, -1]
        predictions = []
        for _ in range(horizon):
            h = self.step(h, frame)
            x = h.max(dim=1).values
            for index, conv in enumerate(self.decoder):
                x = conv(F.relu(x) if index else x)
            predictions.append(x)
            frame = x.detach().to(video.dtype)
        return torch.stack(predictions, dim=1)

    def step(self, h: Tensor, frame: Tensor) -> Tensor:
        recurrent = self.recurrent(h.flatten(0, 1)).reshape(h.shape)
        moved = [self.turn(recurrent[:, i], angle) for i, angle in enumerate(self.degrees)]
        return F.relu(torch.stack(moved, dim=1) + self.inner(frame)[:, None])

    def turn(self, x: Tensor, degrees: float) -> Tensor:
        """x [B, K·N, H, H] about its centre, its N orientations permuted with it."""
        steps = round(degrees * self.orientations / 360.0)
        x = x.unflatten(1, (-1, self.orientations)).roll(steps, dims=2).flatten(1, 2)
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        precision = torch.promote_types(x.dtype, torch.float32)
        theta = x.new_tensor([[cos, -sin, 0.0], [sin, cos, 0.0]], dtype=precision)
        grid = F.affine_grid(theta.expand(len(x), -1, -1), list(x.shape), align_corners=True)
        return F.grid_sample(x, grid, align_corners=True)


_PARTS = (("inner", "input"), ("recurrent", "recurrent"))
