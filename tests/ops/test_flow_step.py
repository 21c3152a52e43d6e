"""flow_step: lean equals reference, gradients included, and keeps the states alone."""

import itertools

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.flop_counter import FlopCounterMode

from fernn import FlowRNN, Translation
from fernn.ops import ACTIVATIONS, flow_pool, flow_step

BACKENDS = ["auto", "lean", "reference"]

# Odd and unequal sides, V and C that are not powers of two, halos up to the size of the canvas.
CASES = [  # canvas, V, C, K, kernel
    ((7,), 3, 3, 5, 3),
    ((3,), 5, 1, 3, 5),
    ((2,), 3, 3, 3, 5),
    ((1,), 3, 2, 3, 3),
    ((5, 7), 9, 3, 5, 3),
    ((5, 3), 3, 5, 3, 5),
    ((6, 5), 5, 3, 3, 1),
    ((2, 3), 3, 3, 3, 5),
    ((3, 5, 2), 3, 3, 5, 3),
    ((3, 2, 4), 3, 2, 1, 5),
]


def problem(canvas, velocities, source, target, size, *, batch=2, lifted=True, dtype=torch.double):
    """h, kernel, drive and shift of one step, the first three with gradients."""
    h = torch.randn(batch, velocities, source, *canvas, dtype=dtype)
    kernel = torch.randn(target, source, *(size,) * len(canvas), dtype=dtype)
    drive = torch.randn(batch, velocities if lifted else 1, target, *canvas, dtype=dtype)
    shift = torch.randint(-9, 10, (velocities, len(canvas)))
    return *(x.requires_grad_() for x in (h, kernel, drive)), shift


def gradients(function, inputs):
    """The output, and the gradients of a fixed random projection of it."""
    out = function(*inputs)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    wanted = [x for x in inputs if x.requires_grad]
    return out, *torch.autograd.grad((out * weight).sum(), wanted)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("lifted", [True, False], ids=["drive V", "drive 1"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_flow_step_lean_equals_the_reference_with_all_gradients(case, lifted, activation):
    inputs = problem(*case, lifted=lifted)
    got = gradients(lambda *x: flow_step(*x, activation, backend="lean"), inputs)
    want = gradients(lambda *x: flow_step(*x, activation, backend="reference"), inputs)
    assert len(got) == 4
    for fast, slow in zip(got, want, strict=True):
        assert same(fast, slow)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[8]], ids=str)
def test_flow_step_is_the_equation(case, backend):
    """σ(ψ_1(ν)·[h ⋆ W](ν) + drive(ν)), tap by tap, with torch.roll for every translation."""
    h, kernel, drive, shift = problem(*case)
    dims = tuple(range(-len(case[0]), 0))
    slices = []
    for index, move in enumerate(shift.tolist()):
        total = 0.0
        for tap in itertools.product(*map(range, kernel.shape[2:])):
            back = [kernel.shape[-1] // 2 - t for t in tap]
            seen = torch.roll(h[:, index], back, dims)
            total = total + torch.einsum("kc,bc...->bk...", kernel[(..., *tap)], seen)
        slices.append(torch.tanh(torch.roll(total, move, dims) + drive[:, index]))
    assert same(flow_step(h, kernel, drive, shift, "tanh", backend=backend), torch.stack(slices, 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_flow_step_with_a_halo_wider_than_the_canvas_wraps_around(backend):
    h, kernel, drive, shift = problem((1,), 3, 2, 2, 5)
    want = torch.einsum("kcx,bvcy->bvky", kernel, h) + drive
    assert same(flow_step(h, kernel, drive, shift, "identity", backend=backend), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_flow_step_takes_strided_input(backend):
    h, kernel, drive, shift = problem((5, 4), 3, 3, 5, 3)
    dense = gradients(lambda *x: flow_step(*x, backend=backend), (h, kernel, drive, shift))
    strided = (
        h.detach().permute(4, 1, 0, 3, 2).contiguous().permute(2, 1, 4, 3, 0).requires_grad_(),
        kernel.detach().movedim(0, -1).contiguous().movedim(-1, 0).requires_grad_(),
        drive.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_(),
        shift.T.contiguous().T,
    )
    assert not any(x.is_contiguous() for x in strided)
    for got, want in zip(
        gradients(lambda *x: flow_step(*x, backend=backend), strided), dense, strict=True
    ):
        assert same(got, want)


def test_flow_step_takes_a_state_that_all_velocities_share():
    h, kernel, drive, shift = problem((5, 4), 3, 3, 5, 3)
    shared = h.detach()[:, :1].expand_as(h).requires_grad_()
    inputs = (shared, kernel, drive, shift)
    for got, want in zip(
        gradients(lambda *x: flow_step(*x, backend="lean"), inputs),
        gradients(lambda *x: flow_step(*x, backend="reference"), inputs),
        strict=True,
    ):
        assert same(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lifted", [True, False], ids=["drive V", "drive 1"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_flow_step_convolves_a_slice_that_stands_for_all_once(case, lifted, backend):
    h, kernel, drive, shift = problem(*case, lifted=lifted)
    one = h.detach()[:, :1].clone().requires_grad_()

    def step(h, *rest):
        return flow_step(h, *rest, backend=backend)

    def spread(h, *rest):
        return flow_step(h.expand(-1, len(shift), *h.shape[2:]), *rest, backend="reference")

    inputs = (one, kernel, drive, shift)
    for got, want in zip(gradients(step, inputs), gradients(spread, inputs), strict=True):
        assert same(got, want)
    with FlopCounterMode(display=False) as once:
        step(*inputs)
    with FlopCounterMode(display=False) as often:
        spread(*inputs)
    assert often.get_total_flops() == len(shift) * once.get_total_flops() > 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "case", [((3,), 3, 1, 2, 3), ((2, 3), 2, 2, 1, 3), ((2, 1, 2), 2, 1, 1, 3)]
)
def test_flow_step_differentiates_twice(case, backend):
    *inputs, shift = problem(*case, batch=1)

    def step(h, kernel, drive):
        return flow_step(h, kernel, drive, shift, "tanh", backend=backend)

    assert gradcheck(step, inputs)
    assert gradgradcheck(step, inputs)


def test_flow_step_gives_gradients_to_whom_asks():
    h, kernel, drive, shift = problem((5,), 3, 2, 2, 3)
    for chosen in itertools.product([False, True], repeat=3):
        inputs = [
            x.detach().requires_grad_(on) for x, on in zip((h, kernel, drive), chosen, strict=True)
        ]
        out = flow_step(*inputs, shift)
        assert out.requires_grad == any(chosen)
        if any(chosen):
            out.sum().backward()
        assert [x.grad is not None for x in inputs] == list(chosen)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flow_step_in_lower_precision_stays_near_double(dtype, backend):
    inputs = problem((5, 7), 5, 3, 5, 3)
    low = [x.detach().to(dtype).requires_grad_() for x in inputs[:3]]
    got = gradients(lambda *x: flow_step(*x, "identity", backend=backend), (*low, inputs[3]))
    high = [x.detach().double().requires_grad_() for x in low]
    want = gradients(lambda *x: flow_step(*x, "identity", backend=backend), (*high, inputs[3]))
    for a, b in zip(got, want, strict=True):
        assert a.dtype == dtype
        assert error(a, b) < TOLERANCE[dtype]


def test_flow_step_under_autocast_leaves_float64_as_it_is():
    h, kernel, drive, shift = problem((5, 7), 5, 3, 5, 3, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        lean, reference = (
            flow_step(h, kernel, drive, shift, "relu", backend=backend)
            for backend in ("lean", "reference")
        )
    assert lean.dtype == torch.float64
    assert error(lean, reference) < TOLERANCE[torch.float64]


def test_flow_step_under_autocast_computes_in_bfloat16_for_both_backends():
    h, kernel, drive, shift = problem((5, 7), 5, 3, 5, 3, dtype=torch.float32)
    outputs = {}
    for backend in ("lean", "reference"):
        with torch.autocast("cpu", torch.bfloat16):
            # A drive as the input convolution makes it under autocast.
            outputs[backend] = gradients(
                lambda h, kernel, drive, shift, backend=backend: flow_step(
                    h, kernel, drive.bfloat16(), shift, "identity", backend=backend
                ),
                (h, kernel, drive, shift),
            )
    exact = gradients(
        lambda *x: flow_step(*x, "identity"),
        (*(x.detach().double().requires_grad_() for x in (h, kernel, drive)), shift),
    )
    for fast, slow, want in zip(outputs["lean"], outputs["reference"], exact, strict=True):
        assert fast.dtype == slow.dtype
        assert error(fast, want) < TOLERANCE[torch.bfloat16]
        assert error(slow, want) < TOLERANCE[torch.bfloat16]
    assert outputs["lean"][0].dtype == torch.bfloat16
    assert [x.dtype for x in outputs["lean"][1:]] == [torch.float32] * 3


@pytest.mark.parametrize("frame", ["lab", "comoving"])
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_flow_step_keeps_the_states_and_nothing_else_for_the_backward_pass(name, frame):
    steps, states, rest = 12, {}, {}
    for backend in ("auto", "reference"):
        rnn = FlowRNN(
            2, 6, flow=Translation(radius=1), frame=frame, activation=name, backend=backend
        )
        video = torch.randn(3, steps, 2, 9, 8)
        kept = {}

        def pack(x, kept=kept):
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            last = rnn.observe(video)
        state = last.tensors[0]
        states[backend] = steps * state.numel() * state.element_size()
        rest[backend] = sum(storage.nbytes() for storage in kept.values()) - states[backend]
    padded_frames = video[:, :, :, 0, 0].numel() * (9 + 2) * (8 + 2) * 4
    assert rest["auto"] <= padded_frames + 4096  # kernels and shifts
    assert rest["reference"] > states["reference"]


@pytest.mark.parametrize("frame", ["lab", "comoving"])
def test_flow_step_backends_train_the_same_recurrence(frame):
    """Outputs, last state and every gradient after several steps from a given state."""
    made = {}
    for backend in ("lean", "reference"):
        torch.manual_seed(3)
        rnn = FlowRNN(2, [3, 5], flow=Translation(radius=1), frame=frame, backend=backend).double()
        video = torch.randn(2, 4, 2, 5, 7, dtype=torch.double, requires_grad=True)
        start = [torch.randn(2, 9, k, 5, 7, dtype=torch.double, requires_grad=True) for k in (3, 5)]
        states, last = rnn(video, rnn.init_state(*start))
        loss = (states**2).mean() + sum((x**3).mean() for x in last.tensors)
        made[backend] = [
            states,
            *last.tensors,
            *torch.autograd.grad(loss, [video, *start, *rnn.parameters()]),
        ]
    for fast, slow in zip(made["lean"], made["reference"], strict=True):
        assert same(fast, slow)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "cuda"}, "`backend` must be one of 'auto', .*'reference', .*got 'cuda'"),
        ({"activation": "gelu"}, "`activation` must be one of 'relu', 'tanh', .*got 'gelu'"),
    ],
)
def test_flow_step_refuses_unknown_options(options, message):
    with pytest.raises(ValueError, match=message):
        flow_step(*problem((5,), 3, 2, 2, 3), **options)


@pytest.mark.parametrize("backend", ["lean", "reference"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, w, d, s: (h, w[..., :2], d, s), "`kernel` must .*odd"),
        (lambda h, w, d, s: (h, w[:, :1], d, s), "`kernel` must "),
        (lambda h, w, d, s: (h, w, d[:, :, :1], s.repeat(2, 1)), "`shift` must "),
        (lambda h, w, d, s: (h, w, d[..., :2], s), "`drive` must "),
        (lambda h, w, d, s: (h[:, :2], w, d, s), "`shift` must "),
        (lambda h, w, d, s: (h[:, :1], w, d[:, :2], s), "`drive` must "),
        (lambda h, w, d, s: (h[:, :1], w, d, s[:, 0]), "`shift` must be .V, 1. for h"),
    ],
)
def test_flow_step_refuses_shapes_that_do_not_fit(change, message, backend):
    with pytest.raises(ValueError, match=message):
        flow_step(*change(*problem((5,), 3, 2, 2, 3)), backend=backend)


@pytest.mark.parametrize("sides", [(2, 3), (5, 3), (3, 5)])
def test_flow_step_refuses_kernels_of_unequal_sides(sides):
    h, _, drive, shift = problem((6, 7), 3, 2, 2, 3)
    with pytest.raises(ValueError, match=r"`kernel` must have equal sides, got shape \(2, 2, "):
        flow_step(h, torch.zeros(2, 2, *sides, dtype=h.dtype), drive, shift)


def test_shifts_are_whole():
    """One backend would drop what lies behind the point, another fail where it gathers."""
    h, kernel, drive, shift = problem((6, 7), 3, 2, 2, 3)
    half = shift + 0.5
    with pytest.raises(TypeError, match="`shift` must be a tensor of integers"):
        flow_step(h, kernel, drive, half)
    with pytest.raises(TypeError, match="`shift` must be a tensor of integers"):
        flow_pool(h, half)
