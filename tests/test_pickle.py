"""`torch.load` with its defaults reads files of others that hold flows and states."""

import copy
import io

import pytest
import torch

import fernn
from fernn import SE2, FlowRNN, RigidMotion, Rotation, Translation

FLOWS = [
    Translation(radius=2),
    Translation(radius=1, dim=3),
    Translation(velocities=[(0, 0), (1, -2)]),
    Translation(closed=(3, 4)),
    Rotation(count=2, degrees=90 / 7),
    Rotation(velocities=[0, 90, 180], group=SE2(4)),
    RigidMotion([(0, 0, 0), (0, 0.5, 0)]),
    RigidMotion([(0, 0, 0), (90, 1, 0)], group=SE2(8)),
]


def _read_back(value: object) -> object:
    file = io.BytesIO()
    torch.save({"value": value}, file)
    file.seek(0)
    return torch.load(file)["value"]


@pytest.mark.parametrize("flow", FLOWS, ids=repr)
@pytest.mark.parametrize("again", [_read_back, copy.copy, copy.deepcopy])
def test_a_flow_read_back_is_equal(flow, again):
    got = again(flow)
    assert got is not flow
    assert got == flow
    assert repr(got) == repr(flow)
    assert torch.equal(got.table(torch.device("cpu")), flow.velocities)
    with pytest.raises(AttributeError, match="is a value"):
        got.radius = 1


def test_a_state_read_back_continues():
    rnn, video = FlowRNN(1, [3, 2], flow=Translation(radius=1)), torch.rand(2, 3, 1, 5, 4)
    _, state = rnn(video[:, :2])
    got = _read_back(state)
    assert got.frame == state.frame
    assert got.flow == state.flow
    assert torch.equal(rnn.step(video[:, 2], got).lab(), rnn.step(video[:, 2], state).lab())


@pytest.mark.parametrize(
    ("kind", "arguments", "state", "message"),
    [
        (Translation, (1,), {"radius": -1}, "`radius` must be"),
        (RigidMotion, ([(0, 0, 0)],), {"velocities": [(0, 0)]}, "triples"),
        (Rotation, (1,), {"act": SE2}, "unexpected keyword argument 'act'"),
        (SE2, (), {"orientations": 0}, "`orientations` must be"),
        (SE2, (), {"act": SE2}, "unexpected keyword argument 'act'"),
    ],
)
def test_a_file_sets_nothing_that_the_constructor_refuses(kind, arguments, state, message):
    class Forged:
        def __reduce__(self):
            return kind, arguments, state

    with pytest.raises((ValueError, TypeError), match=message):
        _read_back(Forged())


def test_what_may_be_read_is_a_value():
    """Every class that a file may name here: each is built by its checks or holds data alone."""
    ours = {kind for kind in torch.serialization.get_safe_globals() if "fernn" in kind.__module__}
    assert ours == {RigidMotion, Rotation, SE2, Translation, fernn.nn.State}
