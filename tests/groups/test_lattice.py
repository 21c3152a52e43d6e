"""Lattice: Zⁿ acts on a torus, and its convolution is the ordinary one."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import BROKEN, error, same

from fernn.groups import SE2, GroupConv, Lattice, convolve


def naive(x, kernel, padding):
    """[x ⋆ W](g) = Σ_y x(y) W(y − g), one point and one tap at a time."""
    sizes, taps = x.shape[2:], kernel.shape[2:]
    out = x.new_zeros(len(x), len(kernel), *sizes)
    for point in itertools.product(*map(range, sizes)):
        for tap in itertools.product(*map(range, taps)):
            source = [p + t - k // 2 for p, t, k in zip(point, tap, taps, strict=True)]
            if padding == "zeros" and any(
                not 0 <= s < n for s, n in zip(source, sizes, strict=True)
            ):
                continue
            source = [s % n for s, n in zip(source, sizes, strict=True)]
            every = slice(None)
            out[(every, every, *point)] += (
                x[(every, every, *source)] @ kernel[(every, every, *tap)].T
            )
    return out


@given(st.integers(1, 3), st.integers(0, 99))
def test_lattice_act_is_a_left_action(dim, seed):
    random = torch.Generator().manual_seed(seed)
    g, h = torch.randint(-9, 10, (2, dim), generator=random)
    x = torch.randn(2, *(4, 3, 5)[:dim], generator=random)
    group = Lattice(dim)
    assert torch.equal(group.act(group.act(x, h), g), group.act(x, g + h))
    assert torch.equal(group.act(x, g), torch.roll(x, g.tolist(), tuple(range(-dim, 0))))


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize(
    ("canvas", "kernel_size"),
    [((6,), 3), ((5,), 5), ((3,), 5), ((5, 4), 3), ((3, 5), 5), ((4, 3), 1), ((3, 4, 2), 3)],
)
def test_group_conv_on_a_lattice_equals_the_sum_over_points(canvas, kernel_size, padding):
    conv = GroupConv(Lattice(len(canvas)), 3, 2, kernel_size, padding=padding).double()
    x = torch.randn(2, 3, *canvas, dtype=torch.double)
    assert same(conv(x), naive(x, conv.weight, padding))


@pytest.mark.parametrize("canvas", [(7,), (5, 6), (4, 3, 5)])
def test_group_conv_on_a_lattice_commutes_with_translation(canvas):
    group = Lattice(len(canvas))
    net = torch.nn.Sequential(
        GroupConv(group, 2, 3, 3, lifting=True), torch.nn.ReLU(), GroupConv(group, 3, 2, 3)
    ).double()
    x, g = torch.randn(2, 2, *canvas, dtype=torch.double), torch.tensor([2, -1, 3])[: len(canvas)]
    assert same(net(group.act(x, g)), group.act(net(x), g))


def test_group_conv_with_zeros_does_not_commute_with_translation():
    conv = GroupConv(Lattice(2), 2, 3, 3, padding="zeros").double()
    x, g = torch.randn(2, 2, 5, 6, dtype=torch.double), torch.tensor([2, -1])
    assert error(conv(Lattice(2).act(x, g)), Lattice(2).act(conv(x), g)) > BROKEN


def test_group_conv_differentiates():
    conv = GroupConv(Lattice(2), 2, 2, 3).double()
    x = torch.randn(1, 2, 3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, _: conv(x), (x, conv.weight), fast_mode=True)


def test_group_conv_starts_within_one_over_the_root_of_its_fan_in():
    for conv in (GroupConv(Lattice(2), 8, 32, 3), GroupConv(SE2(8), 8, 32, 3)):
        bound = conv.weight[0].numel() ** -0.5
        assert 0.9 * bound < conv.weight.abs().max() <= bound


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: Lattice(0), ValueError, "`dim` must be 1, 2 or 3, got 0"),
        (lambda: Lattice(4), ValueError, "`dim` must be 1, 2 or 3, got 4"),
        (
            lambda: GroupConv(Lattice(2), 1, 1, 4),
            ValueError,
            "`kernel_size` must be odd, got 4.*Use 5",
        ),
        (lambda: GroupConv(SE2(4), 1, 1, 2), ValueError, "`kernel_size` must be odd, got 2.*Use 3"),
        (lambda: GroupConv(Lattice(2), 1, 1, 0), ValueError, "`kernel_size` must be a positive"),
        (lambda: GroupConv(Lattice(2), 1, 1, 3.0), ValueError, "`kernel_size` must be a positive"),
        (lambda: GroupConv(Lattice(2), 0, 1, 3), ValueError, "`in_channels` must be a positive"),
        (lambda: GroupConv(Lattice(2), 1, -1, 3), ValueError, "`out_channels` must be a positive"),
        (
            lambda: GroupConv(Lattice(2), 1, 1, 3, padding="same"),
            ValueError,
            "`padding` must be one of 'circular', 'zeros', got 'same'",
        ),
        (
            lambda: GroupConv(Lattice(2), 2, 1, 3)(torch.zeros(1, 3, 5, 5)),
            ValueError,
            "`x` must have 2 channels in \\[N, C, H, W\\], got 3",
        ),
        (
            lambda: GroupConv(SE2(4), 2, 1, 3)(torch.zeros(1, 2, 5, 5)),
            ValueError,
            "`x` must have 8 channels in \\[N, C, H, W\\], got 2",
        ),
        (
            lambda: GroupConv(Lattice(1), 2, 1, 3)(torch.zeros(1, 2, 5, 5)),
            ValueError,
            "`x` must have 3 axes \\[N, C, W\\], got 4",
        ),
        (
            lambda: GroupConv(Lattice(3), 2, 1, 3)(torch.zeros(1, 2, 5, 5)),
            ValueError,
            "`x` must have 5 axes \\[N, C, D, H, W\\], got 4",
        ),
        (
            lambda: GroupConv(Lattice(2), 2, 1, 3)(torch.zeros(0, 2, 5, 5)),
            ValueError,
            "`x` must not be empty, got shape \\(0, 2, 5, 5\\)",
        ),
        (
            lambda: GroupConv(Lattice(2), 2, 1, 3)(torch.zeros(1, 2, 5, 5).int()),
            TypeError,
            "`x` must be a real floating-point tensor, got torch.int32",
        ),
        (
            lambda: Lattice(1).act(torch.zeros(3).long(), torch.tensor([1])),
            TypeError,
            "`x` must be a real floating-point tensor, got torch.int64",
        ),
        (
            lambda: Lattice(2).act(torch.zeros(2, 5, 5), torch.tensor([1, 0, 0])),
            ValueError,
            "`element` must have 2 components for Lattice\\(dim=2\\), got shape \\(3,\\)",
        ),
        (
            lambda: Lattice(1).act(torch.zeros(5), torch.tensor(1)),
            ValueError,
            "`element` must have 1 component for Lattice\\(dim=1\\), got shape \\(\\)",
        ),
        (
            lambda: convolve(torch.zeros(1, 1, 5, 5), torch.zeros(1, 1, 3, 3), "circ"),
            ValueError,
            "`padding` must be one of 'circular', 'zeros', got 'circ'",
        ),
    ],
)
def test_group_conv_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("how", [{"device": "meta"}, {"dtype": torch.double}])
def test_group_conv_refuses_input_of_another_place(how):
    with pytest.raises((ValueError, TypeError), match=r"`x` must (be on|have) the model's"):
        GroupConv(Lattice(2), 2, 1, 3)(torch.zeros(1, 2, 5, 5, **how))


def test_group_conv_wraps_a_kernel_more_than_once_around_a_small_torus():
    conv = GroupConv(Lattice(1), 1, 1, 5).double()
    x = torch.randn(1, 1, 1, dtype=torch.double)
    assert same(conv(x), naive(x, conv.weight, "circular"))
