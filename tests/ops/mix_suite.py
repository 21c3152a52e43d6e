"""The step with V-mixing against its definition: outputs and all gradients, at awkward sizes.

`test_flow_mix.py` runs this file in a process of its own: in Triton's interpreter on the CPU, and
on a Hopper device in bfloat16.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error
from torch import Tensor, nn
from torch.export import Dim

import fernn
from fernn.nn import FlowConv
from fernn.ops import ACTIVATIONS
from fernn.ops.flow_mix import flow_mix

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
DTYPE = torch.float32 if DEVICE == "cpu" else torch.bfloat16
SIGNS = 1e-4 if DEVICE == "cpu" else 0.1
NEAR = TOLERANCE[DTYPE]
FLOWS = {
    "truncated": (
        fernn.Translation(velocities=[(0, 0), (0, 1), (1, 1), (0, 2), (5, 0)]),
        1,
        (3, 5),
    ),
    "closed": (fernn.Translation(closed=(2, 3)), 1, (2, 3)),
    "no neighbours": (fernn.Translation(velocities=[(0, 0), (2, 1)]), 0, (4, 4)),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize(("slices", "sigma"), [("one", "tanh"), ("all", "relu")])
def test_flow_mix_is_flow_conv_transport_and_sigma(name: str, slices: str, sigma: str) -> None:
    """Two steps; the first state is one slice for all ν, or has all of them.

    In half precision one sign in some hundred differs before ReLU, and with it a gradient: their
    norm may differ by the root of that.
    """
    flow, radius, canvas = FLOWS[name]
    torch.manual_seed(0)
    conv = FlowConv(64, 64, flow=flow, radius=radius).to(DEVICE)
    shift, neighbours = flow.velocities.to(DEVICE), conv._neighbours.on(conv.weight.device)
    h, *drives = (
        torch.randn(1, number, 64, *canvas, device=DEVICE, requires_grad=True)
        for number in (1 if slices == "one" else len(flow), 1, 1)
    )
    lifted = h.expand(-1, len(flow), -1, -1, -1)
    got, want = h.to(DTYPE), lifted
    for drive in drives:
        got = flow_mix(got, conv.weight, neighbours, drive.to(DTYPE), shift, sigma)
        want = ACTIVATIONS[sigma](flow.transport(conv(want), 1) + drive)
    assert got.dtype == DTYPE
    assert error(got, want, norm=2) < NEAR
    grad, inputs = torch.randn_like(want), (h, conv.weight, *drives)
    mine = torch.autograd.grad(got, inputs, grad.to(DTYPE))
    theirs = torch.autograd.grad(want, inputs, grad)
    bound = SIGNS if sigma == "relu" else 2 * NEAR
    assert all(error(a, b, norm=2) < bound for a, b in zip(mine, theirs, strict=True))


def test_a_batch_of_more_samples_than_a_tile() -> None:
    """A tile holds sixteen: those of a second one are met, in the sums and in their gradients."""
    flow, canvas = fernn.Translation(velocities=[(0, 0), (0, 1)]), (2, 2)
    torch.manual_seed(0)
    conv = FlowConv(64, 64, flow=flow, radius=1).to(DEVICE)
    shift, neighbours = flow.velocities.to(DEVICE), conv._neighbours.on(conv.weight.device)
    h, drive = (
        torch.randn(18, number, 64, *canvas, device=DEVICE, requires_grad=True) for number in (2, 1)
    )
    got = flow_mix(h.to(DTYPE), conv.weight, neighbours, drive.to(DTYPE), shift, "tanh")
    want = torch.tanh(flow.transport(conv(h), 1) + drive)
    assert error(got[16:], want[16:], norm=2) < NEAR
    grad = torch.zeros_like(want)
    grad[16:] = torch.randn_like(grad[16:])  # no others to hide behind
    inputs = h, conv.weight, drive
    mine = torch.autograd.grad(got, inputs, grad.to(DTYPE))
    theirs = torch.autograd.grad(want, inputs, grad)
    assert all(error(a, b, norm=2) < 2 * NEAR for a, b in zip(mine, theirs, strict=True))


def test_slices_that_share_their_memory_have_a_gradient_each() -> None:
    """They may be one tensor expanded, which h_0 of a recurrence may be as well."""
    flow = fernn.Translation(velocities=[(0, 0), (0, 1)])
    conv = FlowConv(64, 64, flow=flow, radius=0).to(DEVICE)
    neighbours = conv._neighbours.on(conv.weight.device)
    h = torch.randn(1, 1, 64, 2, 2, device=DEVICE, dtype=DTYPE).expand(-1, 2, -1, -1, -1)
    h = h.detach().requires_grad_()
    drive, shift = torch.zeros(1, 1, 64, 2, 2).to(h), flow.velocities.to(DEVICE)
    got = flow_mix(h, conv.weight, neighbours, drive, shift, "identity")
    want = flow.transport(conv(h.to(conv.weight)), 1)
    grad = torch.randn_like(want)
    mine, theirs = (torch.autograd.grad(x, h, grad.to(x))[0] for x in (got, want))
    assert error(mine, theirs, norm=2) < 2 * NEAR


def test_flow_mix_exports_for_batches_of_any_size() -> None:
    flow = fernn.Translation(velocities=[(0, 0), (0, 1)])
    conv = FlowConv(64, 64, flow=flow, radius=1).to(DEVICE)
    neighbours, shift = conv._neighbours.on(conv.weight.device), flow.velocities.to(DEVICE)

    class Step(nn.Module):
        def forward(self, h: Tensor, drive: Tensor) -> Tensor:
            return flow_mix(h, conv.weight, neighbours, drive, shift, "tanh")

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(batch, n, 64, 2, 2, device=DEVICE, dtype=DTYPE) for n in (2, 1))

    shapes = {"h": {0: Dim.DYNAMIC}, "drive": {0: Dim.DYNAMIC}}
    program = torch.export.export(Step(), inputs(2), dynamic_shapes=shapes)
    given = inputs(3)
    assert torch.equal(program.module()(*given), Step()(*given))


def test_recurrence_that_mixes_neighbours_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three frames: h_1 is one slice for all ν, later states have all of them."""
    flow = fernn.Translation(velocities=[(0, v) for v in (-2, -1, 0, 1)])
    rnn = fernn.FlowRNN(1, 64, flow=flow, mixing=1, activation="tanh").to(DEVICE)
    plain = fernn.FlowRNN(1, 64, flow=flow, mixing=1, activation="tanh", backend="lean").to(DEVICE)
    plain.load_state_dict(rnn.state_dict())
    if DEVICE == "cpu":
        monkeypatch.setattr("fernn.nn._rnn.obstacle", lambda drive, kernel: None)
    calls = []
    monkeypatch.setattr("fernn.nn._rnn.flow_mix", lambda *a: calls.append(a) or flow_mix(*a))
    video = torch.rand(1, 3, 1, 3, 5, device=DEVICE)
    with torch.autocast(DEVICE, DTYPE, enabled=DEVICE == "cuda"):
        got = rnn.observe(video).lab()
    want = plain.observe(video).lab()
    assert [h.shape[1] for h, *_ in calls] == [1, 4]
    assert error(got, want, norm=2) < NEAR
    mine, theirs = (
        torch.autograd.grad(h.float().square().sum(), list(model.parameters()))
        for model, h in ((rnn, got), (plain, want))
    )
    assert all(error(a, b, norm=2) < 2 * NEAR for a, b in zip(mine, theirs, strict=True))
