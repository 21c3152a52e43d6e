"""Constants that follow their users from device to device."""

import copy
import pickle

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fernn import SE2, FlowRNN, Rotation
from fernn._constant import Constant, lasting
from fernn.groups import _steerable


def test_a_copy_outlives_the_mode_of_the_one_who_asks_first() -> None:
    """A tensor of inference mode could not be saved for a backward pass later."""
    constant, meta = Constant(torch.arange(3)), torch.device("meta")
    with torch.inference_mode():
        assert not constant.on(meta).is_inference()
    assert constant.on(meta) is constant.on(meta)


def test_copies_stay_where_they_are() -> None:
    """A pickle, as for a worker, is read where there may be no such device."""
    constant = Constant(torch.arange(3))
    constant.on(torch.device("meta"))
    for again in (pickle.loads(pickle.dumps(constant)), copy.deepcopy(constant)):
        assert not again._copies
        assert torch.equal(again.on(torch.device("cpu")), torch.arange(3))


def test_what_a_transform_or_a_fake_mode_makes_is_not_kept(monkeypatch) -> None:
    """The table of a flow, and the basis of a group, which is made where it is asked for first."""
    monkeypatch.setattr(_steerable, "_COPIES", {})
    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    rnn, video = FlowRNN(1, 2, flow=flow, frame="comoving"), torch.rand(1, 2, 1, 5, 5)

    def loss(x: Tensor) -> Tensor:
        return rnn(x)[0].square().sum()

    torch.func.grad(loss)(video)
    with FakeTensorMode(allow_non_fake_inputs=True):
        loss(video)
    assert lasting(flow.table(video.device))
    assert all(lasting(constant._value) for constant in _steerable._COPIES.values())
    _steerable.basis_on(3, 4, video.device)
    assert len(_steerable._COPIES) == 1
