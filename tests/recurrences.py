"""What tests of FlowRNN share: flows that are exact, both frames, a recurrence and its error."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import flow_error
from torch import nn

from fernn import SE2, FlowRNN, Rotation, Translation

QUARTERS = [0, 90, 180, 270]
EXACT = {  # flow, ν̂, canvas
    "1-D": (Translation(radius=2, dim=1), (1,), (9,)),
    "2-D": (Translation(radius=1), (1, -1), (5, 7)),
    "3-D": (Translation(radius=1, dim=3), (1, 0, -1), (3, 5, 4)),
    "list": (Translation(velocities=[(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)]), (0, 2), (4, 11)),
    "closed": (Translation(closed=(4, 5)), (3, 1), (4, 5)),
    "quarters": (Rotation(velocities=QUARTERS, group=SE2(4)), 90, (5, 5)),
    "quarters of SE2(8)": (Rotation(velocities=[-90, 0, 90], group=SE2(8)), -90, (6, 6)),
}
FRAMES = ["lab", "comoving"]
exact_flows = pytest.mark.parametrize(("flow", "velocity", "canvas"), EXACT.values(), ids=EXACT)
frames = pytest.mark.parametrize("frame", FRAMES)
T1, R1 = Translation(radius=1), Rotation(count=1)


def video(*canvas, batch=2, steps=6, channels=2, dtype=torch.double):
    return torch.randn(batch, steps, channels, *canvas, dtype=dtype)


def recurrence(flow, widths=3, *, channels=2, **options):
    """A double-precision FlowRNN in eval mode, its norms with statistics as after training."""
    rnn = FlowRNN(channels, widths, flow=flow, **options).double().eval()
    for module in rnn.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return rnn


def theorem_error(rnn, flow, velocity, canvas, *, state=None, steps=6, **options):
    x = video(*canvas, steps=steps, channels=rnn.in_channels)
    before, _ = rnn(x, state)
    moved, _ = rnn(flow.act_sequence(x, velocity), state)
    return flow_error(moved, before, flow, velocity, **options)


def circular(x, kernel):
    """[x ⋆ W](g) on the torus, with torch alone."""
    halo = kernel.shape[-1] // 2
    return F.conv2d(F.pad(x, (halo,) * 4, mode="circular"), kernel)
