"""Batch-norm is judged by its running statistics, and judging leaves them as they were."""

import pytest
import torch
import torch.nn.functional as F
from trained import assert_equal

from fernn.experiments import datasets, glimpses, train
from fernn.experiments.evaluate import evaluate
from fernn.experiments.loop import Loop
from fernn.experiments.recipes import find
from fernn.flows import Translation


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.setattr(glimpses, "SIZES", {"train": 12, "val": 6, "test": 12})
    monkeypatch.setattr(datasets, "glimpses", glimpses.glimpses.__wrapped__)
    flow = Translation(velocities=[(0, 0), (0, 1)])
    return find("table2/actions/fernn-v1", "quick").but(
        options={"flow": flow, "hidden_channels": 4},
        training={"epochs": 1, "batch_size": 4},
    )


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def judged(recipe, state, split, *, training=False):
    """Logits and labels of a split from a model that has these weights, in evaluation mode."""
    model = recipe.build().train(training)
    model.load_state_dict(state)
    videos = datasets.videos(recipe, split, archive=datasets.clips(recipe, None))
    batch = videos.batch(range(len(videos)), epoch=0)
    with torch.no_grad():
        return model(batch.frames), batch.labels


def confusion(logits, labels):
    counts = [[0] * logits.shape[1] for _ in range(logits.shape[1])]
    for label, called in zip(labels.tolist(), logits.argmax(-1).tolist(), strict=True):
        counts[label][called] += 1
    return counts


def test_evaluate_of_a_classifier_that_is_still_training(recipe):
    torch.manual_seed(1)
    model = recipe.build().train()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.01, 0.05)
    before = state_of(model)
    metrics = evaluate(model, recipe, archive=datasets.clips(recipe, None))
    assert metrics["confusion"] == confusion(*judged(recipe, before, "test"))
    assert metrics["confusion"] != confusion(*judged(recipe, before, "test", training=True))
    assert_equal(state_of(model), before)
    assert all(module.training for module in model.modules())


def test_validation_takes_the_statistics_of_training(recipe, tmp_path, monkeypatch):
    seen, validate = [], Loop._validate

    def spy(loop):
        before = state_of(loop.module)
        seen.append((before, validate(loop), state_of(loop.module)))
        return seen[-1][1]

    monkeypatch.setattr(Loop, "_validate", spy)
    train.train(recipe, out=tmp_path, device="cpu")
    ((before, loss, after),) = seen
    assert loss == pytest.approx(float(F.cross_entropy(*judged(recipe, before, "val"))), rel=1e-5)
    assert_equal(after, before)
