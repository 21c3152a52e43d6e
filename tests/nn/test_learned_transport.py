"""LearnedTransport: one scalar kernel a velocity in place of the flow."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import same

from fernn import Translation
from fernn.nn import LearnedTransport


@pytest.mark.parametrize("size", [3, 5])
def test_learned_transport_convolves_each_slice_with_its_own_kernel(size):
    flow = Translation(radius=1)
    learned = LearnedTransport(flow, size).double()
    h = torch.randn(2, 9, 3, 6, 5, dtype=torch.double)
    halo = size // 2
    want = torch.stack(
        [
            torch.cat(
                [
                    F.conv2d(
                        F.pad(h[:, v, c : c + 1], (halo,) * 4, mode="circular"),
                        learned.weight[v, None],
                    )
                    for c in range(3)
                ],
                1,
            )
            for v in range(9)
        ],
        1,
    )
    assert same(learned(h), want)


def _both_ways(form, learned, h, seen):
    out = form(h)
    return out, *torch.autograd.grad(out, [learned.weight, h], seen)


@pytest.mark.parametrize("canvas", [(6, 5), (5, 8), (3, 2)])  # the last wraps taps onto each other
def test_learned_transport_as_a_product_is_the_convolution(canvas):
    learned = LearnedTransport(Translation(radius=1), 5).double()
    h = torch.randn(2, 9, 3, *canvas, dtype=torch.double, requires_grad=True)
    seen = torch.randn_like(h)
    product = _both_ways(learned._product, learned, h, seen)
    for one, other in zip(product, _both_ways(learned._convolution, learned, h, seen), strict=True):
        assert one.shape == other.shape
        assert same(one, other)


@pytest.mark.gpu
def test_learned_transport_on_a_gpu_is_the_convolution():
    learned = LearnedTransport(Translation(radius=2)).double().cuda()
    h = torch.randn(2, 25, 16, 32, 32, dtype=torch.double, device="cuda", requires_grad=True)
    seen = torch.randn_like(h)
    moved = _both_ways(learned, learned, h, seen)
    for one, other in zip(moved, _both_ways(learned._convolution, learned, h, seen), strict=True):
        assert same(one, other)


def test_learned_transport_can_be_the_flow():
    flow = Translation(radius=2)
    learned = LearnedTransport(flow).double()
    with torch.no_grad():
        learned.weight.zero_()
        for index, (row, column) in enumerate(flow.velocities.tolist()):
            learned.weight[index, 0, 2 - row, 2 - column] = 1.0
    h = torch.randn(2, 25, 3, 6, 5, dtype=torch.double)
    assert same(learned(h), flow.transport(h))


def test_learned_transport_has_625_parameters_on_the_largest_set():
    learned = LearnedTransport(Translation(radius=2))
    assert sum(p.numel() for p in learned.parameters()) == 625


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LearnedTransport(Translation(radius=1), 4), "`kernel_size` must be odd, got 4"),
        (lambda: LearnedTransport(Translation(radius=1, dim=1)), "`flow` must act on images, got"),
    ],
)
def test_learned_transport_refuses_bad_options(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("shape", [(2, 8, 3, 6, 5), (9, 3, 6, 5)])
def test_learned_transport_refuses_a_state_that_is_not_lifted(shape):
    with pytest.raises(ValueError, match="`h` must be lifted"):
        LearnedTransport(Translation(radius=1))(torch.zeros(shape))
