"""V-mixing with neighbours as a plain loop over velocities, as a model to time against.

The paper says what V-mixing is and publishes no kernel of radius 1, so this is the published
forecaster's loop with the least change: each velocity of V collects its neighbours as channels, one
convolution takes them, the result is rolled and the slices are stacked again. NCHW and padded as
the rest of it. It counts only pairs that V has.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.published import PublishedForecaster, _pad
from fernn import Translation


class PublishedMixingForecaster(PublishedForecaster):
    """h_{t+1}(ν) = ReLU(roll_ν(Σ_γ W(γ − ν) ⋆ h_t(γ)) + U ⋆ f_t) over the γ next to ν in V."""

    def __init__(
        self, flow: Translation, hidden_channels: int = 128, decoder_layers: int = 4
    ) -> None:
        super().__init__(flow, hidden_channels, decoder_layers)
        self.recurrent = _Kernel(hidden_channels)
        steps = [(rows, columns) for rows in (-1, 0, 1) for columns in (-1, 0, 1)]
        self.near = [
            [
                (self.velocities.index(other), index)
                for index, step in enumerate(steps)
                if (other := (velocity[0] + step[0], velocity[1] + step[1])) in self.velocities
            ]
            for velocity in self.velocities
        ]

    def step(self, h: Tensor, frame: Tensor) -> Tensor:
        drive = self.inner(_pad(frame))
        padded = _pad(h.flatten(0, 1)).unflatten(0, h.shape[:2]).unbind(1)
        kernels = self.recurrent.weight.unbind(2)
        moved = []
        for velocity, near in zip(self.velocities, self.near, strict=True):
            slices = torch.cat([padded[other] for other, _ in near], 1)
            kernel = torch.cat([kernels[index] for _, index in near], 1)
            moved.append(torch.roll(F.conv2d(slices, kernel), shifts=velocity, dims=(-2, -1)))
        return F.relu(torch.stack(moved, 1) + drive[:, None])


class _Kernel(nn.Module):
    """One 3×3 kernel for each of nine differences of velocity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels, 9, 3, 3))
