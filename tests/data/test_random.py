"""The counter-based generator: known answers, uniformity, independence."""

import pytest
import torch

from fernn.data._random import Stream, integers, permutation, philox, seeded, uniform, words

# From the authors' own list of known answers for Philox4x32-10.
KNOWN = [
    ((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFF_FFFFFFFF, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0_A4093822,
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
ITEMS = torch.arange(20_000)


def chi_square(values: torch.Tensor, cells: int) -> float:
    """How far counts are from uniform, in standard deviations of the chi-square statistic."""
    counts = values.bincount(minlength=cells).double()
    assert len(counts) == cells
    expected = len(values) / cells
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (cells - 1)) / (2 * (cells - 1)) ** 0.5


@pytest.mark.parametrize(("counter", "seed", "answer"), KNOWN)
def test_known_answers(counter, seed, answer):
    found = philox(tuple(torch.tensor(word) for word in counter), seed)
    assert " ".join(f"{word:08x}" for word in found.tolist()) == answer


@pytest.mark.gpu
def test_same_on_the_gpu():
    drawn = words(123456789012, ITEMS, Stream.START, 7, split=2, epoch=5)
    there = words(123456789012, ITEMS.cuda(), Stream.START, 7, split=2, epoch=5)
    assert torch.equal(drawn, there.cpu())
    assert torch.equal(uniform(drawn), uniform(there).cpu())
    assert torch.equal(integers(drawn, 54_000), integers(there, 54_000).cpu())


def test_an_item_does_not_depend_on_its_batch():
    whole = words(3, ITEMS[:100], Stream.DIGIT, 6, split=1, epoch=2)
    shuffled = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    parts = [words(3, part, Stream.DIGIT, 6, split=1, epoch=2) for part in shuffled.split(7)]
    assert torch.equal(torch.cat(parts), whole[shuffled])
    # Nor on how much else is drawn for it.
    assert torch.equal(words(3, ITEMS[:100], Stream.DIGIT, 3, split=1, epoch=2), whole[:, :3])


@pytest.mark.parametrize("cells", [2, 3, 25, 784])
@pytest.mark.parametrize("draw", [0, 3, 4])
def test_integers_are_uniform(cells, draw):
    drawn = integers(words(0, ITEMS, Stream.VELOCITY, 5)[:, draw], cells)
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < cells
    assert abs(chi_square(drawn, cells)) < 4


def test_integers_below_a_tensor():
    word = torch.tensor([0, 2**31, 2**32 - 1])
    assert integers(word, torch.tensor([5, 5, 5])).tolist() == [0, 2, 4]
    assert integers(word, torch.tensor([1, 2, 3])).tolist() == [0, 1, 2]
    assert integers(word, 2**31).tolist() == [0, 2**30, 2**31 - 1]


def test_uniform():
    drawn = uniform(words(0, ITEMS, Stream.START, 1)[:, 0])
    assert drawn.dtype == torch.float64
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=4 * (1 / 12 / len(ITEMS)) ** 0.5)
    assert float(drawn.var()) == pytest.approx(1 / 12, abs=0.003)
    assert uniform(torch.tensor(2**32 - 1)) < 1


def test_every_coordinate_of_the_counter_matters_and_none_is_correlated():
    """Seed, split, epoch, stream, draw and neighbouring items give unrelated numbers."""
    base = words(1, ITEMS, Stream.DIGIT, 8)
    series = {
        "base": base[:, 0],
        "draw in the block": base[:, 1],
        "draw in the next block": base[:, 4],
        "next item": base[:, 0].roll(1),
        "seed": words(2, ITEMS, Stream.DIGIT, 1)[:, 0],
        "high seed": words(1 + 2**32, ITEMS, Stream.DIGIT, 1)[:, 0],
        "stream": words(1, ITEMS, Stream.START, 1)[:, 0],
        "split": words(1, ITEMS, Stream.DIGIT, 1, split=1)[:, 0],
        "epoch": words(1, ITEMS, Stream.DIGIT, 1, epoch=1)[:, 0],
    }
    correlation = torch.corrcoef(torch.stack([uniform(word) for word in series.values()]))
    off = correlation - torch.eye(len(series), dtype=torch.double)
    assert float(off.abs().max()) < 4.5 / len(ITEMS) ** 0.5, dict(zip(series, off, strict=True))


def test_permutation():
    order = permutation(0, 5400, Stream.ORDER, epoch=1)
    assert torch.equal(order.sort().values, torch.arange(5400))
    assert not torch.equal(order, permutation(0, 5400, Stream.ORDER, epoch=2))
    # Where an item lands does not depend on the item.
    place = torch.corrcoef(torch.stack([order.double(), torch.arange(5400.0, dtype=torch.double)]))
    assert abs(float(place[0, 1])) < 4 / 5400**0.5


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="`seed` must be a non-negative integer"):
        seeded(seed)


def test_seed_beyond_64_bits():
    assert seeded(2**64 - 1) == 2**64 - 1
    with pytest.raises(ValueError, match=r"`seed` must be below 2\*\*64"):
        seeded(2**64)
