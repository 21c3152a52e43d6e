"""FlowConv: the sum over pairs of velocities, by either of its two plans."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from tolerances import BROKEN, error, same

from fernn import Rotation, Translation
from fernn.nn import FlowConv

CASES = [  # flow, radius in V, whether all velocities are channels of one convolution
    (Translation(radius=1, dim=1), None, True),
    (Translation(radius=2, dim=1), 1, False),
    (Translation(radius=2, dim=1), 0, False),
    (Translation(closed=(4,)), None, True),
    (Translation(closed=(5,)), 1, False),
    (Translation(closed=(4,)), 2, True),
    (Translation(radius=1), None, True),
    (Translation(radius=1), 1, True),
    (Translation(radius=2), 1, False),
    (Translation(closed=(4, 3)), None, True),
    (Translation(closed=(4, 5)), 1, False),
    (Translation(velocities=[(0, 0), (2, -1), (1, 1), (0, 3)]), None, True),
    (Translation(velocities=[(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)]), 2, False),
]


def canvas(flow):
    return flow.closed or (5, 4)[: flow.group.dim]


def difference(flow, a, b):
    """γ − ν, on a torus the representative nearest zero."""
    raw = [p - q for p, q in zip(a, b, strict=True)]
    if flow.closed is None:
        return tuple(raw)
    return tuple((d + n // 2) % n - n // 2 for d, n in zip(raw, flow.closed, strict=True))


def pairs(conv, h):
    """Σ_γ h(γ) ⋆ W(γ − ν), one pair (ν, γ) and one spatial convolution at a time."""
    flow, dim = conv.flow, conv.flow.group.dim
    table = flow.velocities.tolist()
    every = {difference(flow, g, v) for g, v in itertools.product(table, repeat=2)}
    kept = sorted(d for d in every if conv.radius is None or max(map(abs, d)) <= conv.radius)
    assert conv.weight.shape[2] == len(kept)
    halo = conv.weight.shape[-1] // 2
    convolution = (F.conv1d, F.conv2d)[dim - 1]
    mode = "circular" if conv.padding == "circular" else "constant"
    slices = []
    for velocity in table:
        total = 0.0
        for index, other in enumerate(table):
            apart = difference(flow, other, velocity)
            if apart in kept:
                padded = F.pad(h[:, index], (halo,) * 2 * dim, mode=mode)
                total = total + convolution(padded, conv.weight[:, :, kept.index(apart)])
        slices.append(total)
    return torch.stack(slices, 1)


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize(("flow", "radius", "dense"), CASES, ids=str)
def test_flow_conv_equals_the_sum_over_pairs_with_gradients(flow, radius, dense, padding):
    conv = FlowConv(2, 3, flow=flow, radius=radius, padding=padding).double()
    assert conv._dense == dense
    h = torch.randn(2, len(flow), 2, *canvas(flow), dtype=torch.double, requires_grad=True)
    made = []
    for out in (conv(h), pairs(conv, h)):
        weight = torch.linspace(-1, 2, out.numel(), dtype=torch.double).reshape(out.shape)
        made.append([out, *torch.autograd.grad((weight * out).sum(), [h, conv.weight])])
    for got, want in zip(*made, strict=True):
        assert same(got, want)


@pytest.mark.parametrize(("flow", "radius", "dense"), CASES, ids=str)
def test_flow_conv_plans_are_the_same_function(flow, radius, dense, monkeypatch):
    conv = FlowConv(2, 3, flow=flow, radius=radius).double()
    h = torch.randn(2, len(flow), 2, *canvas(flow), dtype=torch.double)
    want = conv(h)
    monkeypatch.setattr(FlowConv, "_dense", not dense)
    assert same(conv(h), want)


@pytest.mark.parametrize("radius", [None, 1])
@pytest.mark.parametrize("flow", [Translation(closed=(5,)), Translation(closed=(4, 5))], ids=str)
def test_flow_conv_commutes_with_a_shift_of_a_closed_set(flow, radius):
    """h(ν) → h(ν − ν̂) on slices, with any move of the plane: a convolution on V × X."""
    conv = FlowConv(2, 3, flow=flow, radius=radius).double()
    h = torch.randn(2, len(flow), 2, *canvas(flow), dtype=torch.double)
    velocity = (3, 1)[: flow.group.dim]
    index = flow.relative(velocity)
    assert same(conv(h[:, index]), conv(h)[:, index])
    assert same(conv(flow.act(h, velocity)), flow.act(conv(h), velocity))


def test_flow_conv_does_not_commute_with_a_shift_of_a_truncated_set():
    flow = Translation(radius=1)
    conv = FlowConv(2, 3, flow=flow).double()
    h = torch.randn(2, 9, 2, 5, 4, dtype=torch.double)
    shifted = torch.zeros_like(h)
    index = flow.relative((1, 0))
    shifted[:, index >= 0] = h[:, index[index >= 0]]
    got, want = conv(shifted)[:, index >= 0], conv(h)[:, index[index >= 0]]
    assert error(got, want) > BROKEN


def test_flow_conv_of_radius_zero_does_not_mix():
    flow = Translation(radius=1)
    conv = FlowConv(2, 3, flow=flow, radius=0).double()
    h = torch.randn(2, 9, 2, 5, 4, dtype=torch.double)
    changed = h.clone()
    changed[:, 4] += 1.0
    differ = (conv(h) != conv(changed)).flatten(2).any(-1).any(0)
    assert differ.nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize(
    ("flow", "radius", "differences"),
    [
        (Translation(radius=2), None, 81),
        (Translation(radius=2), 1, 9),
        (Translation(radius=2), 4, 81),
        (Translation(closed=(5, 5)), None, 25),
        (Translation(closed=(4, 4)), 2, 16),
        (Translation(closed=(28,)), 1, 3),
    ],
)
def test_flow_conv_has_a_kernel_for_every_difference(flow, radius, differences):
    shape = FlowConv(3, 5, flow=flow, radius=radius, kernel_size=3).weight.shape
    assert shape == (5, 3, differences, *(3,) * flow.group.dim)


def test_flow_conv_starts_with_outputs_of_the_size_of_its_input():
    for radius in (None, 1):
        conv = FlowConv(16, 64, flow=Translation(closed=(5, 5)), radius=radius)
        out = conv(torch.randn(2, 25, 16, 5, 5))
        assert out.std().item() == pytest.approx(3**-0.5, rel=0.1)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda c: FlowConv(1, 1, flow=Rotation(count=1)),
            ValueError,
            "`flow` must be a Translation",
        ),
        (
            lambda c: FlowConv(1, 1, flow=Translation(radius=1, dim=3)),
            ValueError,
            "one or two dimensions to mix velocities, got Translation",
        ),
        (lambda c: FlowConv(0, 1, flow=c.flow), ValueError, "`in_channels` must be a positive"),
        (lambda c: FlowConv(1, 0, flow=c.flow), ValueError, "`out_channels` must be a positive"),
        (
            lambda c: FlowConv(1, 1, flow=c.flow, radius=-1),
            ValueError,
            "`radius` must be a non-neg",
        ),
        (lambda c: FlowConv(1, 1, flow=c.flow, kernel_size=2), ValueError, "must be odd, got 2"),
        (
            lambda c: FlowConv(1, 1, flow=c.flow, padding="x"),
            ValueError,
            "`padding` must be one of",
        ),
        (lambda c: c(torch.zeros(2, 9, 2, 5)), ValueError, "5 axes \\[B, V, C, H, W\\], got 4"),
        (lambda c: c(torch.zeros(2, 9, 3, 5, 5)), ValueError, "2 channels in .*got 3"),
        (lambda c: c(torch.zeros(2, 8, 2, 5, 5)), ValueError, "lifted to the 9 velocities.*got 8"),
        (lambda c: c(torch.zeros(2, 9, 2, 5, 5).int()), TypeError, "floating-point tensor, got"),
        (lambda c: c(torch.zeros(0, 9, 2, 5, 5)), ValueError, "must not be empty"),
    ],
)
def test_flow_conv_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call(FlowConv(2, 3, flow=Translation(radius=1)))


@pytest.mark.parametrize("how", [{"device": "meta"}, {"dtype": torch.double}])
def test_flow_conv_refuses_input_of_another_place(how):
    with pytest.raises((ValueError, TypeError), match=r"`h` must (be on|have) the model's"):
        FlowConv(2, 3, flow=Translation(radius=1))(torch.zeros(1, 9, 2, 5, 5, **how))


@pytest.mark.parametrize("radius", [None, 1])
def test_flow_conv_begins_again_as_it_began(radius):
    """Deferred initialisation fills a module without memory by `reset_parameters`."""
    torch.manual_seed(3)
    first = FlowConv(2, 3, flow=Translation(radius=2), radius=radius)
    with torch.device("meta"):
        late = FlowConv(2, 3, flow=Translation(radius=2), radius=radius)
    late.to_empty(device="cpu")
    torch.manual_seed(3)
    late.reset_parameters()
    assert torch.equal(late.weight, first.weight)
