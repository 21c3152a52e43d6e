"""Random numbers that depend on where they are used, not on what was drawn before.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011) turns a counter of four 32-bit words, under a key of two, into four random words. Here the
key is the seed and the counter names the draw: (item, epoch, split and stream, block). So an item
is the same in every batch, order, worker and process, and, because only integer products, shifts
and exclusive ors are used, on every device to the bit.

The words are kept in int64 tensors. A 32×32-bit product wraps around at 2⁶³, which leaves its two
halves right once they are masked.
"""

from enum import IntEnum

import torch
from torch import Tensor

from fernn import _check

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_STREAM_BITS = 16


class Stream(IntEnum):
    """What a number is drawn for; each has its own sequence, so that none disturbs another.

    The values are part of every dataset: to change one changes what a seed means.
    """

    DIGIT = 0
    START = 1
    VELOCITY = 2
    WINDOW = 3
    FLIP = 4
    ORDER = 5
    HOLD_OUT = 6


def seeded(seed: object) -> int:
    """`seed`, checked: a non-negative integer below 2⁶⁴."""
    value = _check.count("seed", seed, least=0)
    if value >> 64:
        raise ValueError(f"`seed` must be below 2**64, got {value}.")
    return value


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> Tensor:
    """Four random words for each counter: four broadcasting int64 tensors [*S] → int64 [*S, 4].

    >>> zero = torch.tensor(0)
    >>> [f"{word:08x}" for word in philox((zero, zero, zero, zero), seed=0).tolist()]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter
    key = (seed & _MASK, seed >> 32 & _MASK)
    for _ in range(_ROUNDS):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (second >> 32 & _MASK) ^ b ^ key[0], second & _MASK
        c, d = (first >> 32 & _MASK) ^ d ^ key[1], first & _MASK
        key = ((key[0] + _KEY_STEPS[0]) & _MASK, (key[1] + _KEY_STEPS[1]) & _MASK)
    return torch.stack(torch.broadcast_tensors(a, b, c, d), -1)


def words(
    seed: int, items: Tensor, stream: Stream, count: int, *, split: int = 0, epoch: int = 0
) -> Tensor:
    """`count` random words for each item: int64 [B] → int64 [B, count], each in 0 … 2³² − 1.

    The first words of an item do not depend on how many are drawn.
    """
    blocks = torch.arange(-(-count // 4), device=items.device)
    place = torch.tensor(split << _STREAM_BITS | stream, device=items.device)
    when = torch.tensor(epoch, device=items.device)
    return philox((items[:, None], when, place, blocks), seed).flatten(1)[:, :count]


def integers(word: Tensor, below: int | Tensor) -> Tensor:
    """Words as uniform integers in 0 … below − 1, where `below` is at most 2³¹.

    The word, read as a fraction of 2³², is scaled by `below`. Two results differ in probability by
    at most 2⁻³², relative to their share by below / 2³²: 1.4e-5 for 60 000 digits, far under what
    an epoch could show.
    """
    return word * below >> 32


def uniform(word: Tensor) -> Tensor:
    """Words as float64 in [0, 1), in steps of 2⁻³²: exact on every device."""
    return word.double() * 2.0**-32


def permutation(seed: int, size: int, stream: Stream, *, split: int = 0, epoch: int = 0) -> Tensor:
    """The numbers 0 … size − 1 in random order, int64 [size]."""
    keys = words(seed, torch.arange(size, device="cpu"), stream, 1, split=split, epoch=epoch)
    # Equal words are rare but possible; a stable sort has one answer for them too.
    return keys[:, 0].argsort(stable=True)
