"""The published formulation of the classifier computes the library's function."""

import pytest
import torch
from tolerances import error

import fernn
from benchmarks.published_clips import PublishedClassifier


@pytest.mark.parametrize("radius", [0, 1])
def test_published_classifier_is_the_library_classifier(radius: int) -> None:
    model = fernn.Classifier(flow=fernn.Translation(radius=radius), hidden_channels=8).double()
    published = PublishedClassifier.of(model)
    clip, label = torch.randn(3, 4, 1, 7, 6).double(), torch.tensor([0, 5, 2])
    losses = [torch.nn.functional.cross_entropy(m(clip), label) for m in (model, published)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    # Both register encoder, recurrence and head in an order of their own: compare by norm.
    got, want = (
        sorted((p.grad for p in m.parameters()), key=lambda g: (g.shape, g.norm().item()))
        for m in (published, model)
    )
    assert len(got) == len(want) == 12
    assert all(error(a, b) < 1e-12 for a, b in zip(got, want, strict=True))
    for mine, theirs in zip(
        published.norms, (model.rnn.layers[0].input[i] for i in (1, 4, 7)), strict=True
    ):
        assert error(mine.running_var, theirs.running_var) < 1e-12
