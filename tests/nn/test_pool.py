"""FlowPool: one map from all velocities, whichever frame moved with the scene."""

import pytest
import torch
from tolerances import same

from fernn.nn import FlowPool


@pytest.mark.parametrize(
    ("reduction", "reduce"), [("max", torch.amax), ("mean", torch.mean), ("sum", torch.sum)]
)
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("lead", [(), (2,), (2, 4)])
def test_flow_pool_reduces_the_velocities(reduction, reduce, dim, lead):
    h = torch.randn(*lead, 5, 3, *(4, 6, 2)[:dim], dtype=torch.double)
    pooled = FlowPool(reduction, dim=dim)(h)
    assert pooled.shape == (*lead, 3, *(4, 6, 2)[:dim])
    assert same(pooled, reduce(h, len(lead)))
    assert same(pooled, FlowPool(reduction, dim=dim)(h.flip(len(lead))))


def test_flow_pool_takes_the_maximum_unless_told():
    h = torch.randn(2, 5, 3, 4, 4)
    assert torch.equal(FlowPool()(h), h.amax(1))


def test_flow_pool_says_what_it_is():
    assert repr(FlowPool("mean", dim=1)) == "FlowPool('mean', dim=1)"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: FlowPool("median"), ValueError, "`reduction` must be one of 'max', 'mean', 'sum'"),
        (lambda: FlowPool(dim=-1), ValueError, "`dim` must be 1, 2 or 3, got -1"),
        (lambda: FlowPool()(torch.zeros(3, 4, 4)), ValueError, "`h` must be lifted.*\\(3, 4, 4\\)"),
        (lambda: FlowPool()(torch.zeros(2, 3, 4, 4).int()), TypeError, "floating-point tensor"),
    ],
)
def test_flow_pool_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
