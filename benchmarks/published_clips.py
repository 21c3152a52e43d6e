"""The published formulation of the clip classifier, as a model to time against.

What makes it slow is kept: NCHW tensors, one `torch.roll` for every velocity in a Python loop, the
slices stacked again, and a circular pad before every convolution. It owns the parameters and
buffers of `fernn.Classifier` and loads its state dict, so both compute one function, and a test
holds them to the same loss.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import Classifier, Translation


class PublishedClassifier(nn.Module):
    """h_{t+1}(ν) = tanh(roll_ν(W ⋆ h_t(ν)) + E(f_t)), max over ν of the last, mean, linear.

    Shapes: clips [B, T, C, H, W] → logits [B, classes]. The encoder E is three convolutions with
    batch-norm and ReLU over all frames at once.
    """

    names: dict[str, str]  # of its parameters, and what the library's model calls them

    def __init__(
        self, radius: int, in_channels: int = 1, hidden_channels: int = 128, classes: int = 6
    ) -> None:
        super().__init__()
        span = range(-radius, radius + 1)
        self.velocities = [(rows, columns) for rows in span for columns in span]
        widths = [in_channels, hidden_channels // 4, hidden_channels // 2, hidden_channels]
        self.convs = nn.ModuleList(
            nn.Conv2d(widths[i], widths[i + 1], size, bias=False)
            for i, size in enumerate((5, 3, 3))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths[1:])
        self.recurrent = nn.Conv2d(hidden_channels, hidden_channels, 3, bias=False)
        self.head = nn.Linear(hidden_channels, classes)

    @classmethod
    def of(cls, model: Classifier) -> "PublishedClassifier":
        """The same function as `model`, with a copy of its weights and statistics."""
        flow, config = model.flow, model.config
        radius = int(flow.velocities.abs().max())
        assert flow == Translation(radius=radius)
        assert config["norm"] is False
        assert config["transport"] == "flow"
        copy = cls(
            radius, *(config[name] for name in ("in_channels", "hidden_channels", "classes"))
        )
        names = {"recurrent.weight": "rnn.layers.0.recurrent.weight"}
        for name in copy.state_dict():
            layer, _, rest = name.partition(".")
            if layer == "head":
                names[name] = name
            elif layer in ("convs", "norms"):
                index, _, part = rest.partition(".")
                names[name] = f"rnn.layers.0.input.{3 * int(index) + (layer == 'norms')}.{part}"
        weights = model.state_dict()
        copy.load_state_dict({name: weights[source] for name, source in names.items()})
        copy.names = names
        return copy.to(next(model.parameters()))

    def forward(self, clip: Tensor) -> Tensor:
        x = clip.flatten(0, 1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(_pad(x, conv.kernel_size[0] // 2))))
        drives = x.unflatten(0, clip.shape[:2])
        h = drives.new_zeros(len(clip), len(self.velocities), *drives.shape[2:])
        for t in range(clip.shape[1]):
            h = self.step(h, drives[:, t])
        logits: Tensor = self.head(h.max(dim=1).values.mean((-2, -1)))
        return logits

    def step(self, h: Tensor, drive: Tensor) -> Tensor:
        """h_t [B, V, K, H, W] and the features of a frame [B, K, H, W] → h_{t+1}."""
        recurrent = self.recurrent(_pad(h.flatten(0, 1), 1)).reshape(h.shape)
        moved = [
            torch.roll(recurrent[:, index], shifts=velocity, dims=(-2, -1))
            for index, velocity in enumerate(self.velocities)
        ]
        return torch.tanh(torch.stack(moved, 1) + drive[:, None])


def _pad(x: Tensor, radius: int) -> Tensor:
    return F.pad(x, (radius,) * 4, mode="circular")
