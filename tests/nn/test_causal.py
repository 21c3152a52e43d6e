"""ConvGRU, CausalConv and CausalAttention: ordinary causal models, word for word."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from tolerances import TOLERANCE, error, same

from fernn import Translation
from fernn.nn import CausalAttention, CausalConv, Cell, ConvGRU, FlowEquivariant

MODELS = {
    "gru": lambda dim: ConvGRU(2, 4, dim=dim),
    "conv": lambda dim: CausalConv(2, 4, length=3, dim=dim),
    "attention": lambda dim: CausalAttention(2, 4, heads=2, dim=dim),
}


def circular(x, kernel):
    halo = kernel.shape[-1] // 2
    return F.conv2d(F.pad(x, (halo,) * 4, mode="circular"), kernel)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_causal_models_depend_on_the_past_alone(make, dim):
    model, x = make(dim).double(), torch.randn(2, 6, 2, *(4, 3, 5)[:dim], dtype=torch.double)
    for t in range(1, 6):
        changed = x.clone()
        changed[:, t:] = torch.randn_like(changed[:, t:])
        before, after = model(x), model(changed)
        assert before.shape == (2, 6, 4, *x.shape[3:])
        assert same(after[:, :t], before[:, :t])
        assert not torch.allclose(after[:, t:], before[:, t:])


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_causal_models_remember(make):
    model, x = make(2).double(), torch.randn(2, 6, 2, 4, 3, dtype=torch.double)
    changed = x.clone()
    changed[:, 3] += 1.0
    assert not torch.allclose(model(changed)[:, 4], model(x)[:, 4])


def test_conv_gru_is_the_equation():
    """z and r from f and h by convolution; h ← (1 − z)∘h + z∘tanh(U f + W(r∘h))."""
    gru, x = ConvGRU(2, 3).double(), torch.randn(2, 5, 2, 4, 6, dtype=torch.double)
    h = torch.zeros(2, 3, 4, 6, dtype=torch.double)
    out = gru(x)
    for t in range(5):
        gates = torch.sigmoid(circular(torch.cat([x[:, t], h], 1), gru.gates.weight))
        r, z = gates[:, :3], gates[:, 3:]
        new = torch.tanh(circular(torch.cat([x[:, t], r * h], 1), gru.candidate.weight))
        h = (1 - z) * h + z * new
        assert same(out[:, t], h)


@pytest.mark.parametrize("length", [1, 3, 9])
def test_causal_conv_is_the_equation(length):
    """Σ_s W_s ⋆ f_{t−s}, with frames before the first taken as zero."""
    conv, x = (
        CausalConv(2, 3, length=length).double(),
        torch.randn(2, 5, 2, 4, 6, dtype=torch.double),
    )
    kernels = conv.conv.weight.unflatten(1, (length, 2))
    out = conv(x)
    for t in range(5):
        terms = [
            circular(x[:, t - s], kernels[:, length - 1 - s]) for s in range(min(length, t + 1))
        ]
        assert same(out[:, t], sum(terms))


@pytest.mark.parametrize("heads", [1, 2])
def test_causal_attention_is_the_equation(heads):
    """softmax over s ≤ t of q_t(x)·k_s(x)/√d, applied to v_s(x), at each pixel and head."""
    model = CausalAttention(2, 4, heads=heads).double()
    x = torch.randn(2, 5, 2, 4, 3, dtype=torch.double)
    q, k, v = (
        torch.stack([circular(x[:, t], weight) for t in range(5)], 1).unflatten(2, (heads, -1))
        for weight in model.qkv.weight.chunk(3)
    )
    out = model(x)
    for t in range(5):
        scores = (q[:, t, None] * k[:, : t + 1]).sum(3) / math.sqrt(4 / heads)
        weight = scores.softmax(1)
        want = (weight[:, :, :, None] * v[:, : t + 1]).sum(1).flatten(1, 2)
        assert same(out[:, t], want)


@pytest.mark.parametrize(
    "name",
    [
        "gru",
        "conv",
        "attention",
    ],
)
def test_causal_models_run_under_autocast(name):
    model, x = MODELS[name](2), torch.randn(2, 4, 2, 5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
    assert error(out, model(x)) < TOLERANCE[torch.bfloat16]
    out.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("recency", [False, True])
def test_causal_attention_streams(recency):
    """One frame at a time, with the frames kept, is the whole sequence at once."""
    model = CausalAttention(2, 4, heads=2, recency=recency).double()
    x = torch.randn(2, 5, 2, 4, 3, dtype=torch.double)
    out, state = model(x), model.init_state(x[:, 0])
    for t in range(5):
        state = model.step(x[:, t], state)
        assert same(state[-1], out[:, t])


def test_causal_attention_recency_tells_the_order_of_the_past():
    x = torch.randn(1, 4, 2, 4, 3, dtype=torch.double)
    other = x[:, [1, 0, 2, 3]]
    for recency in (False, True):
        model = CausalAttention(2, 4, heads=2, recency=recency).double()
        assert same(model(x)[:, 3], model(other)[:, 3]) is not recency


def test_causal_attention_recency_is_a_slope_of_each_head():
    """With queries of zero, head n weighs a frame s by exp(−2^{1−n}·(t − s))."""
    model = CausalAttention(1, 2, heads=2, recency=True).double()
    model.qkv.weight.data[:2] = 0
    x = torch.randn(1, 3, 1, 4, 3, dtype=torch.double)
    values = torch.stack([circular(x[:, t], model.qkv.weight[4:]) for t in range(3)], 1)
    for head, slope in enumerate((2.0, 1.0)):
        weight = torch.exp(-slope * torch.tensor([2.0, 1.0, 0.0], dtype=torch.double))
        want = (values[:, :, head] * (weight / weight.sum())[:, None, None]).sum(1)
        assert same(model(x)[:, 2, head], want)


class Misshapen(Cell):
    """A sum of frames whose state is whatever `shape` makes of it."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def init_state(self, frame):
        return (torch.zeros_like(frame),)

    def step(self, frame, state):
        return self.shape(state[0] + frame)


@pytest.mark.parametrize(
    ("shape", "got"),
    [
        (lambda h: h, "one alone, (2, 1, 4, 3)"),
        (lambda h: [h], "one alone, list"),
        (lambda h: (h.sum(), h), "a tuple of (), (2, 1, 4, 3)"),
        (lambda h: (1, h), "a tuple of int, (2, 1, 4, 3)"),
        (lambda h: (), "a tuple of "),
        (lambda h: (h, h.mean((2, 3))), "a tuple of (2, 1, 4, 3), (2, 1)"),
    ],
)
def test_a_cell_whose_state_is_no_tuple_of_tensors_is_refused(shape, got):
    cell, video = Misshapen(shape), torch.zeros(2, 3, 1, 4, 3)
    expected = (
        f"the state of Misshapen must be a tuple .* batch of the frame, 2, .* got {re.escape(got)}"
    )
    with pytest.raises(TypeError, match=expected):
        cell(video)
    with pytest.raises(TypeError, match=r"the state of Misshapen must be a tuple .* 18, "):
        FlowEquivariant(cell, Translation(radius=1)).step(video[:, 0])


def test_a_cell_may_begin_with_a_state_that_broadcasts():
    class Learned(Misshapen):
        def init_state(self, frame):
            return (torch.ones(1, 1, 1, 1),)

    cell, video = Learned(lambda h: (h,)), torch.zeros(2, 3, 1, 4, 3)
    assert cell(video).eq(1).all()
    assert FlowEquivariant(cell, Translation(radius=1))(video).eq(1).all()


def test_cell_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Cell()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CausalConv(1, 1, length=0), "`length` must be a positive integer, got 0"),
        (lambda: CausalAttention(1, 4, heads=0), "`heads` must be a positive integer, got 0"),
        (lambda: CausalAttention(1, 3, heads=2), "`out_channels` must be a multiple of `heads`"),
        (lambda: ConvGRU(1, 2, kernel_size=2), "`kernel_size` must be odd, got 2"),
        (lambda: CausalConv(1, 2, kernel_size=2), "`kernel_size` must be odd, got 2"),
        (lambda: CausalAttention(1, 2, kernel_size=2), "`kernel_size` must be odd, got 2"),
        (lambda: ConvGRU(1, 2, dim=4), "`dim` must be 1, 2 or 3, got 4"),
        (
            lambda: CausalConv(1, 2)(torch.zeros(1, 3, 2, 4, 4)),
            "`video` must have 1 channels.*got 2",
        ),
        (lambda: ConvGRU(0, 4), "`in_channels` must be a positive integer, got 0"),
        (lambda: ConvGRU("1", 4), "`in_channels` must be a positive integer, got '1'"),
        (lambda: ConvGRU(1, -1), "`hidden_channels` must be a positive integer, got -1"),
        (lambda: CausalConv(-1, 2), "`in_channels` must be a positive integer, got -1"),
        (lambda: CausalAttention(1, "4"), "`out_channels` must be a positive integer, got '4'"),
    ],
)
def test_causal_models_refuse_bad_options(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("make", [ConvGRU, CausalAttention])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 4, 5), r"`frame` must have 2 channels in \[B, C, H, W\], got 1"),
        ((2, 3, 4, 5), "`frame` must have 2 channels"),
        ((1, 2, 4, 5), r"`state` must have the batch and canvas of the frame, \(1, 2, 4, 5\), got"),
        ((2, 2, 5, 4), "`state` must have the batch and canvas"),
        ((2, 2, 4), r"`frame` must have 4 axes \[B, C, H, W\]"),
    ],
)
def test_a_step_refuses_what_a_kernel_would_read_past(make, shape, message):
    cell, frame = make(2, 8), torch.zeros(2, 2, 4, 5)
    state = cell.step(frame, cell.init_state(frame))
    with pytest.raises(ValueError, match=message):
        cell.step(torch.zeros(shape), state)


@pytest.mark.parametrize(
    "shape", [(2, 0, 2, 4, 4), (0, 3, 2, 4, 4), (3, 2, 4, 4), (2, 3, 1, 4, 4), (2, 3, 6, 4, 4)]
)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_causal_models_refuse_bad_input(make, shape):
    with pytest.raises(ValueError, match="`video` must"):
        make(2)(torch.zeros(shape))
