"""`Videos`: batches by index, an epoch in any order, over ranks, resumed, and in a DataLoader."""

import pytest
import torch
from torch.utils.data import DataLoader

from fernn.data import Batch, BouncingMNIST, FlowingMNIST, _videos
from fernn.flows import Translation

V2 = Translation(radius=2)


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def seen(batches) -> torch.Tensor:
    return torch.cat([batch.frames[:, 0].sum((1, 2, 3)) for batch in batches])


@pytest.fixture(scope="module")
def small() -> FlowingMNIST:
    return FlowingMNIST(V2, "val", length=2, size=50)


@pytest.fixture(scope="module")
def sums(small) -> torch.Tensor:
    """One number that tells the items of `small` apart, at epoch 1."""
    everything = small.batch(range(50), 1).frames[:, 0].sum((1, 2, 3))
    assert len(everything.unique()) == 50
    return everything


def test_an_epoch_in_order(small, sums):
    batches = list(small.batches(16, 1))
    assert [len(batch.frames) for batch in batches] == [16, 16, 16, 2]
    assert torch.equal(seen(batches), sums)


def test_an_epoch_shuffled(small, sums):
    shuffled = seen(small.batches(16, 1, shuffle=True))
    assert not torch.equal(shuffled, sums)
    assert torch.equal(shuffled.sort().values, sums.sort().values)
    assert torch.equal(shuffled, seen(small.batches(7, 1, shuffle=True)))


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_an_epoch(small, drop_last):
    one = list(small.batches(12, 1, shuffle=True, drop_last=drop_last))
    ranks = [
        list(small.batches(4, 1, shuffle=True, rank=r, world_size=3, drop_last=drop_last))
        for r in range(3)
    ]
    for k, whole in enumerate(one):
        shares = torch.cat([seen([rank[k]]) for rank in ranks if k < len(rank)])
        assert torch.equal(shares.sort().values, seen([whole]).sort().values)
    if drop_last:
        assert {len(rank) for rank in ranks} == {4}
        assert {len(batch.frames) for rank in ranks for batch in rank} == {4}


def test_resuming_an_epoch(small):
    whole = list(small.batches(8, 1, shuffle=True))
    resumed = list(small.batches(8, 1, shuffle=True, start=3))
    assert len(resumed) == len(whole) - 3
    assert all(same(a, b) for a, b in zip(whole[3:], resumed, strict=True))
    assert list(small.batches(8, 1, start=len(whole))) == []


def test_data_loader(small, sums):
    batches = list(DataLoader(small.at(1), batch_size=20))
    assert isinstance(batches[0], Batch)
    assert torch.equal(seen(batches), sums)


def test_data_loader_with_workers(small, sums):
    loader = DataLoader(
        small.at(1), batch_size=25, num_workers=1, multiprocessing_context="forkserver"
    )
    assert torch.equal(seen(loader), sums)


@pytest.mark.parametrize("make", [FlowingMNIST, BouncingMNIST])
def test_videos_do_not_depend_on_the_defaults_of_torch(make):
    flow = Translation(radius=1)
    want = make(flow, "val", size=3).batch([2], epoch=0).frames
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            got = make(flow, "val", size=3, seed=0).batch([2], epoch=0).frames
    finally:
        torch.set_default_dtype(torch.float32)
    assert got.dtype == torch.float32
    assert torch.equal(got, want)


# Bad input.


@pytest.mark.parametrize(
    ("indices", "message"),
    [([-1], "in 0 to 49, the sequences of 'val', got -1"), ([0, 50], "in 0 to 49, .* got 50")],
)
def test_index_out_of_range(small, indices, message):
    with pytest.raises(IndexError, match=message):
        small.batch(indices, 0)
    with pytest.raises(IndexError, match=message):
        small[indices[-1]]


@pytest.mark.parametrize(
    "indices",
    [[], [[1]], [0.5], torch.tensor(3), [False, True], slice(0, 3), None, "ab", [[0], [1, 2]]],
)
def test_bad_indices(small, indices):
    with pytest.raises(ValueError, match="`indices` must be a list of at least one whole number"):
        small.batch(indices, 0)


@pytest.mark.parametrize("epoch", [-1, 0.5, None])
def test_bad_epoch(small, epoch):
    for use in (lambda e: small.batch([0], e), lambda e: small.batches(1, e), small.at):
        with pytest.raises(ValueError, match="`epoch` must be a non-negative integer"):
            use(epoch)
    with pytest.raises(ValueError, match=r"`epoch` must be below 2\*\*32"):
        small.at(2**32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive integer, got 0"),
        ({"world_size": 0}, "`world_size` must be a positive integer, got 0"),
        ({"rank": 2, "world_size": 2}, "`rank` must be below `world_size` 2, got 2"),
        ({"rank": -1}, "`rank` must be a non-negative integer, got -1"),
        ({"start": -1}, "`start` must be a non-negative integer, got -1"),
        ({"start": 6}, "`start` must be at most 5, the batches of this epoch, got 6"),
    ],
)
def test_bad_batches(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        small.batches(**({"batch_size": 10, "epoch": 0} | arguments))


@pytest.mark.parametrize("start", [0, 2, 4])
def test_batches_made_at_once_are_the_same(start, small, monkeypatch):
    """As a GPU makes them; 50 items in batches of 16 end with an incomplete one."""
    one_by_one = list(small.batches(16, 1, shuffle=True, start=start))
    monkeypatch.setitem(_videos._AT_ONCE, "cpu", 40)
    at_once = list(small.batches(16, 1, shuffle=True, start=start))
    assert len(at_once) == len(one_by_one) == 4 - start
    assert all(same(a, b) for a, b in zip(at_once, one_by_one, strict=True))
