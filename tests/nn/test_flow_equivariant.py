"""FlowEquivariant: any causal model, run in every moving frame."""

import pytest
import torch
from tolerances import BROKEN, TOLERANCE, error, flow_error, same
from torch import nn

from fernn import SE2, FlowEquivariant, FlowRNN, Forecaster, Rotation, Translation
from fernn.groups import GroupConv, Lattice
from fernn.nn import CausalAttention, CausalConv, Cell, ConvGRU, State


class ConvLSTM(Cell):
    """A cell with two state tensors, the last of them its output."""

    def __init__(self, source, width, dim=2):
        super().__init__()
        self.width, self.dim = width, dim
        self.gates = GroupConv(Lattice(dim), source + width, 4 * width, 3)

    def init_state(self, frame):
        zero = frame.new_zeros(len(frame), self.width, *frame.shape[2:])
        return zero, zero

    def step(self, frame, state):
        memory, h = state
        keep, write, show, new = self.gates(torch.cat([frame, h], 1)).chunk(4, 1)
        memory = keep.sigmoid() * memory + write.sigmoid() * new.tanh()
        return memory, show.sigmoid() * memory.tanh()


class Place(nn.Module):
    """A causal model that commutes with nothing: it adds up the past, weighed by the column."""

    def forward(self, video):
        return torch.tanh(video.cumsum(1) * torch.linspace(-1, 2, video.shape[-1]).to(video))


MODULES = {
    "gru": lambda dim: ConvGRU(2, 3, dim=dim),
    "lstm": lambda dim: ConvLSTM(2, 3, dim=dim),
    "conv": lambda dim: CausalConv(2, 3, dim=dim),
    "attention": lambda dim: CausalAttention(2, 4, heads=2, dim=dim),
    "place": lambda dim: Place(),
}
CELLS = ["gru", "lstm"]
FLOWS = {
    "1-D": (Translation(radius=2, dim=1), (-1,), (9,)),
    "2-D": (Translation(radius=1), (1, -1), (5, 7)),
    "3-D": (Translation(radius=1, dim=3), (1, 0, -1), (3, 5, 4)),
    "closed": (Translation(closed=(4, 3)), (3, 1), (4, 3)),
    "quarters": (Rotation(velocities=[0, 90, 180, 270]), 90, (5, 5)),
    "quarters, orientations": (Rotation(velocities=[0, 90], group=SE2(4)), 90, (5, 5)),
}
modules = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
flows = pytest.mark.parametrize(("flow", "velocity", "canvas"), FLOWS.values(), ids=FLOWS)


def video(*canvas, steps=6):
    return torch.randn(2, steps, 2, *canvas, dtype=torch.double)


@modules
@flows
def test_flow_equivariant_makes_any_causal_model_flow_equivariant(make, flow, velocity, canvas):
    model = FlowEquivariant(make(flow.group.dim), flow=flow).double()
    x = video(*canvas)
    before, moved = model(x), model(flow.act_sequence(x, velocity))
    found = flow_error(moved, before, flow, velocity, features=False)
    assert found < TOLERANCE[torch.float64]


@modules
@pytest.mark.parametrize("kind", ["1-D", "2-D", "quarters"])
def test_flow_equivariant_models_are_not_so_alone(make, kind):
    flow, velocity, canvas = FLOWS[kind]
    model, x = make(flow.group.dim).double(), video(*canvas)
    moved = model(flow.act_sequence(x, velocity))
    assert error(moved, flow.act_sequence(model(x), velocity)) > BROKEN


@modules
@flows
def test_flow_equivariant_is_the_definition(make, flow, velocity, canvas):
    """M̃[f](ν)_t = ψ_t(ν)·M[ψ_{−·}(ν)·f]_t, one velocity and one frame at a time."""
    module, x = make(flow.group.dim).double(), video(*canvas)
    got = FlowEquivariant(module, flow=flow)(x)
    for index, v in enumerate(flow.velocities):
        still = torch.stack([flow.act(x[:, t], v, -t) for t in range(6)], 1)
        out = module(still)
        want = torch.stack([flow.act(out[:, t], v, t) for t in range(6)], 1)
        assert same(got[:, :, index], want)


@pytest.mark.parametrize("kind", CELLS)
@flows
def test_flow_equivariant_streams_a_cell(kind, flow, velocity, canvas):
    model = FlowEquivariant(MODULES[kind](flow.group.dim), flow=flow).double()
    x, state = video(*canvas), None
    whole = model(x)
    for t in range(6):
        state = model.step(x[:, t], state)
        assert isinstance(state, State)
        assert state.time.item() == t + 1
        assert len(state.tensors) == 1 + (kind == "lstm")
        assert same(state.lab(), whole[:, t])
        assert same(state.lab(ahead=1), flow.transport(whole[:, t], 1, features=False))


@modules
def test_flow_equivariant_depends_on_the_past_alone(make):
    flow, _, canvas = FLOWS["2-D"]
    model, x = FlowEquivariant(make(2), flow=flow).double(), video(*canvas)
    later = x.clone()
    later[:, 3:] += 1.0
    assert same(model(later)[:, :3], model(x)[:, :3])
    assert not torch.allclose(model(later)[:, 3:], model(x)[:, 3:])


def test_flow_equivariant_of_a_recurrence_is_the_flow_rnn():
    """A G-RNN at rest, wrapped, equals the FlowRNN with its weights."""
    flow, _, canvas = FLOWS["2-D"]
    rest = FlowRNN(2, 3, flow=Translation(radius=0)).double()
    whole = FlowRNN(2, 3, flow=flow).double()
    whole.load_state_dict(rest.state_dict())

    class AtRest(nn.Module):
        def forward(self, x):
            return rest(x)[0][:, :, 0]

    x = video(*canvas)
    assert same(FlowEquivariant(AtRest(), flow=flow)(x), whole(x)[0])


@modules
def test_flow_equivariant_differentiates(make):
    flow, _, canvas = FLOWS["2-D"]
    model = FlowEquivariant(make(2), flow=flow).double()
    x = video(*canvas).requires_grad_()
    model(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.any() for p in (x, *model.parameters()))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda f: FlowEquivariant(torch.sin, flow=f),
            TypeError,
            "`module` must be a torch.nn.Mod",
        ),
        (
            lambda f: FlowEquivariant(CausalConv(2, 3), flow=f).step(torch.zeros(1, 2, 5, 5)),
            TypeError,
            "`step` needs a Cell.*CausalConv sees whole sequences only",
        ),
        (
            lambda f: FlowEquivariant(Forecaster(hidden_channels=2), flow=f),
            ValueError,
            "`module` must answer .*got a Forecaster, whose outputs come after the last",
        ),
        (
            lambda f: FlowEquivariant(FlowRNN(2, 3, flow=f), flow=f)(torch.zeros(1, 3, 2, 5, 5)),
            ValueError,
            "`module` must map \\[B, T, C, .*B, T, K, .*, got \\(9, 3, 9, 3, 5, 5\\) for",
        ),
        (
            lambda f: FlowEquivariant(nn.Flatten(), flow=f)(torch.zeros(1, 3, 2, 5, 5)),
            ValueError,
            "`module` must map .*got \\(9, 150\\) for \\(9, 3, 2, 5, 5\\)",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f)(torch.zeros(3, 2, 5, 5)),
            ValueError,
            "`video` must have 5 axes .*got 4",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f)(torch.zeros(1, 0, 2, 5, 5)),
            ValueError,
            "`video` must not be empty",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f)(torch.zeros(0, 3, 2, 5, 5)),
            ValueError,
            "`video` must not be empty",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f)(torch.zeros(1, 3, 2, 5, 5).int()),
            TypeError,
            "`video` must be a real floating-point tensor, got torch.int32",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f).step(torch.zeros(1, 3, 2, 5, 5)),
            ValueError,
            "`frame` must have 4 axes .*got 5",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f)(torch.zeros(1, 3, 4, 5, 5)),
            ValueError,
            r"`video` must have 2 channels in .*got 4 in shape \(1, 3, 4, 5, 5\)",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), flow=f).step(torch.zeros(1, 4, 5, 5)),
            ValueError,
            r"`frame` must have 2 channels in .*got 4 in shape \(1, 4, 5, 5\)",
        ),
        (
            lambda f: FlowEquivariant(CausalConv(2, 3, dim=1), flow=f),
            ValueError,
            "`flow` must have the dimension of its CausalConv, 1, got .* of dimension 2",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3, dim=3), flow=f),
            ValueError,
            "`flow` must have the dimension of its ConvGRU, 3, got .* of dimension 2",
        ),
        (
            lambda f: FlowEquivariant(ConvGRU(2, 3), f).step(torch.zeros(1, 2, 5, 5), (1, 2)),
            TypeError,
            r"`state` must be a State, got \(1, 2\)\. Give for example what `step` returned",
        ),
    ],
)
def test_flow_equivariant_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call(Translation(radius=1))


def test_flow_equivariant_takes_the_sequence_of_a_module_that_also_returns_its_state():
    class WithState(ConvGRU):
        def forward(self, video):
            states = super().forward(video)
            return states, states[:, -1]

    module, video = WithState(2, 3), torch.rand(1, 3, 2, 5, 5)
    plain = ConvGRU(2, 3)
    plain.load_state_dict(module.state_dict())
    flow = Translation(radius=1)
    assert torch.equal(FlowEquivariant(module, flow)(video), FlowEquivariant(plain, flow)(video))


@pytest.mark.parametrize(
    ("begun", "got"),
    [
        (None, "got NoneType"),
        (torch.zeros(1, 3, 5, 5), "got Tensor"),
        ((torch.zeros(1, 3, 5, 5), [1]), "got a tuple of Tensor, list"),
    ],
)
def test_a_cell_must_begin_with_a_tuple_of_tensors(begun, got):
    class Begins(ConvGRU):
        def init_state(self, frame):
            return begun

    cell, x = Begins(2, 3), torch.zeros(1, 2, 5, 5)
    for call in (lambda: cell(x[None]), lambda: FlowEquivariant(cell, Translation(1)).step(x)):
        with pytest.raises(TypeError, match=f"`init_state` of Begins must return a tuple.*{got}"):
            call()


def test_flow_equivariant_refuses_what_is_not_a_flow():
    with pytest.raises(TypeError, match="`flow` must"):
        FlowEquivariant(ConvGRU(2, 3), flow=None)


def test_flow_equivariant_refuses_a_video_of_another_device():
    model = FlowEquivariant(ConvGRU(2, 3), flow=Translation(radius=1))
    with pytest.raises(ValueError, match="`video` must be on the model's device cpu, got meta"):
        model(torch.zeros(1, 3, 2, 5, 5, device="meta"))


def test_flow_equivariant_refuses_a_state_of_another_flow():
    gru, x = ConvGRU(2, 3), torch.zeros(1, 2, 5, 5)
    state = FlowEquivariant(gru, flow=Translation(radius=2)).step(x)
    with pytest.raises(ValueError, match="`state` must"):
        FlowEquivariant(gru, flow=Translation(radius=1)).step(x, state)


@pytest.mark.parametrize("shape", [(2, 2, 5, 5), (1, 2, 5, 6)])
def test_flow_equivariant_refuses_a_state_of_other_frames(shape):
    model = FlowEquivariant(ConvGRU(2, 3), flow=Translation(radius=1))
    state = model.step(torch.zeros(1, 2, 5, 5))
    with pytest.raises(ValueError, match=r"`state` must have .*, got .* \(1, 9, 3, 5, 5\)"):
        model.step(torch.zeros(shape), state)


def test_flow_equivariant_refuses_a_state_of_a_fernn():
    flow, x = Translation(radius=1), torch.zeros(1, 2, 5, 5)
    state = FlowRNN(2, 3, flow=flow).step(x)
    with pytest.raises(ValueError, match=r"from a FlowEquivariant.* got State.*frame='lab'"):
        FlowEquivariant(ConvGRU(2, 3), flow=flow).step(x, state)


def test_flow_equivariant_refuses_a_module_that_changes_the_canvas():
    class Shrink(nn.Module):
        def forward(self, video):
            return video[..., ::2, ::2]

    with pytest.raises(ValueError, match="`module` must map"):
        FlowEquivariant(Shrink(), flow=Translation(radius=1))(torch.zeros(1, 3, 2, 6, 6))
