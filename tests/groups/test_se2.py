"""SE2: rigid motions of the plane, and convolution on Z² ⋊ C_N with kernels that turn."""

import itertools

import pytest
import torch
from tolerances import TOLERANCE, error, same, smooth

from fernn import SE2, FlowRNN, Forecaster, Rotation
from fernn.groups import GroupConv, convolve
from fernn.groups._steerable import basis_size, rotated_basis

ORDERS = [4, 8, 12, 36]


def element(degrees, rows=0.0, columns=0.0):
    return torch.tensor([degrees, rows, columns], dtype=torch.double)


def quarter(row, column, turns):
    """A point turned counter-clockwise as displayed: right goes up."""
    for _ in range(turns % 4):
        row, column = -column, row
    return row, column


def net(order, size, *, padding="zeros"):
    """Lift, rectify, convolve."""
    return torch.nn.Sequential(
        GroupConv(SE2(order), 2, 3, size, lifting=True, padding=padding),
        torch.nn.ReLU(),
        GroupConv(SE2(order), 3, 2, size, padding=padding),
    ).double()


def unturned(layers):
    """The same net with the same free weights, whose kernels are not turned."""
    lift, _, conv = layers
    order, size = lift.group.order, lift.kernel_size
    still = rotated_basis(size, order)[:, :1].expand(-1, order, -1, -1)
    turn = torch.arange(order)
    relative = (turn[None, :] - turn[:, None]) % order
    first = torch.einsum("oib,bryx->oriyx", lift.weight, still).flatten(0, 1)
    second = torch.einsum("oirsb,bryx->orisyx", conv.weight[:, :, relative], still)
    second = second.flatten(2, 3).flatten(0, 1)
    return lambda x: convolve(convolve(x, first, "zeros").relu(), second, "zeros")


def turning_error(function, group, x, degrees, norm=float("inf")):
    """How far a map is from commuting with a turn, relative to what it returns."""
    moved = function(group.act(x, element(degrees)))
    return error(moved, group.act(function(x), element(degrees), features=True), norm)


@pytest.mark.parametrize("order", [1, 4])
def test_se2_act_is_a_left_action(order):
    """(gh)·x = g·(h·x) for quarter turns and whole moves of a bump that stays on the canvas."""
    group = SE2(order)
    x = torch.zeros(4, 15, 15)
    x[:, 6:9, 6:9] = torch.randn(4, 3, 3)
    for (a, b), (move, other) in itertools.product(
        itertools.product(range(4), repeat=2), [((1, -2), (2, 1)), ((0, 3), (-1, -1))]
    ):
        turned = quarter(*other, a)
        product = element(90.0 * (a + b), move[0] + turned[0], move[1] + turned[1])
        h = group.act(x, element(90.0 * b, *other), features=True)
        got = group.act(h, element(90.0 * a, *move), features=True)
        assert torch.equal(got, group.act(x, product, features=True))


def test_se2_act_moves_a_point_as_the_matrix_does():
    x = torch.zeros(9, 9)
    x[4 - 1, 4 + 3] = 1.0
    row, column = quarter(-1, 3, 1)
    moved = SE2().act(x, element(90.0, 1.0, -1.0))
    assert moved.nonzero().tolist() == [[4 + row + 1, 4 + column - 1]]


@pytest.mark.parametrize("size", [3, 5])
def test_se2_lifting_equals_the_sum_over_the_plane(size):
    """[f ⋆̂ U](x, θ) = Σ_y Σ_k f_k(y) U_k(R_θ⁻¹(y − x)), by index arithmetic for N = 4."""
    conv = GroupConv(SE2(4), 2, 3, size, lifting=True, padding="zeros").double()
    kernel = torch.einsum("oib,byx->oiyx", conv.weight, rotated_basis(size, 4)[:, 0])
    f = torch.randn(1, 2, 5, 5, dtype=torch.double)
    want = torch.zeros(3, 4, 5, 5, dtype=torch.double)
    half = size // 2
    points = list(itertools.product(range(5), repeat=2))
    for theta, x, y in itertools.product(range(4), points, points):
        row, column = quarter(y[0] - x[0], y[1] - x[1], -theta)
        if max(abs(row), abs(column)) <= half:
            want[:, theta, *x] += kernel[:, :, row + half, column + half] @ f[0, :, *y]
    assert same(conv(f)[0], want.flatten(0, 1))


@pytest.mark.parametrize("size", [3, 5])
def test_se2_convolution_equals_the_sum_over_the_group(size):
    """[f ⋆ W](x, θ) = Σ_{y,θ'} Σ_k f_k(y, θ') W_k(θ' − θ, R_θ⁻¹(y − x)), for N = 4."""
    conv = GroupConv(SE2(4), 2, 3, size, padding="zeros").double()
    kernel = torch.einsum("oitb,byx->oityx", conv.weight, rotated_basis(size, 4)[:, 0])
    f = torch.randn(1, 2 * 4, 4, 4, dtype=torch.double)
    split = f.reshape(2, 4, 4, 4)
    want = torch.zeros(3, 4, 4, 4, dtype=torch.double)
    half = size // 2
    points = list(itertools.product(range(4), repeat=2))
    for theta, other, x, y in itertools.product(range(4), range(4), points, points):
        row, column = quarter(y[0] - x[0], y[1] - x[1], -theta)
        if max(abs(row), abs(column)) <= half:
            tap = kernel[:, :, (other - theta) % 4, row + half, column + half]
            want[:, theta, *x] += tap @ split[:, other, *y]
    assert same(conv(f)[0], want.flatten(0, 1))


@pytest.mark.parametrize("padding", ["zeros", "circular"])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("order", ORDERS)
def test_se2_convolutions_commute_with_quarter_turns(order, size, padding):
    group, layers = SE2(order), net(order, size, padding=padding)
    x = torch.randn(2, 2, 7, 7, dtype=torch.double)
    h = torch.randn(2, 3 * order, 6, 6, dtype=torch.double)
    for degrees in (90.0, 180.0, -90.0):
        for function in (layers[0], layers):
            assert turning_error(function, group, x, degrees) < TOLERANCE[torch.float64]
        moved = layers[2](group.act(h, element(degrees), features=True))
        assert same(moved, group.act(layers[2](h), element(degrees), features=True))


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("order", ORDERS)
def test_se2_kernels_turn_by_the_pixel_at_quarter_turns(order, size):
    basis = rotated_basis(size, order)
    for turns in range(4):
        want = torch.rot90(basis[:, 0], turns, (-2, -1))
        assert same(basis[:, turns * order // 4], want)


@pytest.mark.parametrize(("size", "functions"), [(1, 1), (3, 6), (5, 13), (7, 20)])
@pytest.mark.parametrize("order", [8, 36])
def test_se2_basis_is_independent_and_of_unit_norm_over_its_phase(order, size, functions):
    basis = rotated_basis(size, order)
    assert basis.shape == (functions, order, size, size)
    assert basis_size(size) == functions
    assert torch.linalg.matrix_rank(basis[:, 0].flatten(1)) == functions
    norm = basis.square().sum((-2, -1)).mean(1)
    assert same(norm, torch.ones_like(norm))


@pytest.mark.parametrize(("width", "bound"), [(2, 6e-3), (3, 2e-3), (4, 1e-3)])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("order", [8, 12, 36])
def test_se2_lifting_steers_where_nothing_is_interpolated(order, size, width, bound):
    """Gaussians are turned before they are sampled, and the response is read at the centre, which
    stays: what remains is the alias of the basis. Measured, worst turn and N, bumps of 2, 3 and 4
    pixels: 3.9e-3, 1.3e-3, 5.9e-4 for 3×3 and 2.4e-3, 6.7e-4, 2.7e-4 for 5×5, where responses
    change by 0.4 to 0.6 of their size.
    """
    conv = GroupConv(SE2(order), 1, 16, size, lifting=True, padding="zeros").double()

    def response(degrees):
        window = smooth(33, width, degrees=degrees)[:, :, 13:20, 13:20]
        return conv(window)[:, :, 3, 3].reshape(2, 16, order)

    rest = response(0.0)
    turned = [response(360 / order * step) for step in range(1, order)]
    steering = max(error(h, rest.roll(step, -1)) for step, h in enumerate(turned, 1))
    assert 0 < steering < bound
    assert max(error(h, rest) for h in turned) > 100 * steering


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("order", [8, 12, 36])
def test_se2_convolutions_nearly_commute_with_other_turns_of_smooth_images(order, size):
    """Gaussians of 3 pixels on 33×33, three turns below 90°, 2-norm; most of it is what
    interpolating the image and the features costs. Measured: lifting 6.2e-3 to 8.1e-3; lifting,
    ReLU and convolution 1.6e-2 to 4.6e-2; with kernels that do not turn 0.48 to 1.27.
    """
    group, x = SE2(order), smooth(33, 3, channels=2)[:1]
    layers = net(order, size)
    turns = {360 / order * step for step in (1, order // 8, order // 4 - 1)}
    lifting, whole, baseline = (
        max(turning_error(function, group, x, degrees, 2) for degrees in turns)
        for function in (layers[0], layers, unturned(layers))
    )
    assert 0 < lifting < 0.01
    assert 0 < whole < 0.05
    assert baseline > 5 * whole


def counted(monkeypatch):
    """Count how often a kernel is expanded."""
    calls = []
    expand = SE2.kernel

    def kernel(self, weight, *arguments, **options):
        calls.append(weight.shape)
        return expand(self, weight, *arguments, **options)

    monkeypatch.setattr(SE2, "kernel", kernel)
    return calls


@pytest.mark.parametrize("frame", ["lab", "comoving"])
def test_se2_kernels_are_expanded_once_for_a_whole_sequence(frame, monkeypatch):
    calls = counted(monkeypatch)
    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    rnn = FlowRNN(1, [2, 2], flow=flow, frame=frame)
    states, _ = rnn(torch.randn(1, 6, 1, 5, 5))
    assert len(calls) == 4  # U and W of two layers
    states.sum().backward()
    rnn.observe(torch.randn(1, 6, 1, 5, 5))
    assert len(calls) == 8


def test_se2_kernels_are_expanded_once_for_a_whole_forecast(monkeypatch):
    calls = counted(monkeypatch)
    model = Forecaster(flow=Rotation(count=1, group=SE2(36)), hidden_channels=1, decoder_layers=0)
    model(torch.randn(1, 3, 1, 5, 5), horizon=4)
    assert len(calls) == 2


def test_se2_of_one_orientation_convolves_as_usual():
    conv = GroupConv(SE2(1), 2, 3, 3, padding="zeros").double()
    x = torch.randn(2, 2, 5, 6, dtype=torch.double)
    assert same(conv(x), torch.conv2d(x, conv.weight, padding=1))


@pytest.mark.parametrize("lifting", [True, False])
def test_se2_convolution_differentiates(lifting):
    conv = GroupConv(SE2(4), 1, 1, 3, lifting=lifting, padding="zeros").double()
    x = torch.randn(1, conv.in_channels, 3, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, _: conv(x), (x, conv.weight), fast_mode=True)


def test_se2_basis_survives_a_model_on_the_meta_device():
    with torch.device("meta"):
        GroupConv(SE2(5), 1, 1, 3)
    conv = GroupConv(SE2(5), 1, 1, 3)
    assert conv(torch.randn(1, 5, 4, 4)).isfinite().all()


def test_se2_basis_survives_a_model_built_in_inference_mode():
    with torch.inference_mode():
        GroupConv(SE2(7), 1, 1, 3)
    conv = GroupConv(SE2(7), 1, 1, 3).double()
    conv(torch.randn(1, 7, 4, 4, dtype=torch.double)).sum().backward()
    assert conv.weight.grad.any()


@pytest.mark.parametrize("orientations", [0, -4, 2.5, True])
def test_se2_refuses_a_number_of_orientations(orientations):
    with pytest.raises(ValueError, match="`orientations` must be a positive integer, got"):
        SE2(orientations)


def test_se2_refuses_integers():
    with pytest.raises(TypeError, match="must be a real floating-point tensor"):
        SE2().act(torch.zeros(3, 3).long(), element(90.0))


@pytest.mark.parametrize("size", [2, 4])
def test_se2_refuses_an_element_of_another_size(size):
    with pytest.raises(ValueError, match=r"`element` must have 3 components for SE2.*got shape"):
        SE2().act(torch.zeros(5, 5), torch.zeros(size))


def test_se2_is_a_value():
    assert SE2(8) == SE2(8)
    assert hash(SE2(8)) == hash(SE2(8))
    assert SE2(8) != SE2(4)
    assert eval(repr(SE2(8)), {"SE2": SE2}) == SE2(8)
    assert SE2(8).turns(-135.0)
    assert not SE2(8).turns(30.0)
