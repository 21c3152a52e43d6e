"""What the rows of clips and of V-mixing count, against torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import fernn
from benchmarks.gpu import clips, mixing


def test_flops_of_a_clip_are_those_of_its_convolutions() -> None:
    """At |V| = 1 nothing is shared over ν but h_1, which the counter sees W act on as well."""
    model = fernn.Classifier(hidden_channels=clips.CHANNELS)
    clip = torch.randn(1, clips.FRAMES, 1, clips.CANVAS, clips.CANVAS)
    with FlopCounterMode(display=False) as counter:
        model(clip).sum().backward()
    assert clips.flops(0) == pytest.approx(counter.get_total_flops(), rel=1e-2)


def test_pairs_and_sums_of_mixing() -> None:
    conv = fernn.nn.FlowConv(1, 1, flow=fernn.Translation(radius=2), radius=1)
    held = conv._neighbours.on(conv.weight.device) < len(conv.flow)
    assert held.sum() == mixing.PAIRS
    assert len(held.unique(dim=0)) == mixing.SUMS
    assert mixing.mixing_flops() == pytest.approx(2.16e12, rel=1e-2)
