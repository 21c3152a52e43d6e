"""What tests of training share: a report that remembers, and the weights of a run."""

import torch
from safetensors.torch import load_file

from fernn.experiments import checkpoint, objective, runs
from fernn.experiments.progress import Report


class Told(Report):
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.losses, self.shares = [], [], []

    def say(self, text):
        self.said.append(text)

    def step(self, done, loss, rate):
        self.losses.append(loss)

    def evaluated(self, done, total, what):
        self.shares.append(done / total)


def weights(run):
    """Those of its newest checkpoint."""
    newest = max((run / runs.CHECKPOINTS).glob("*.safetensors"))
    return checkpoint.part(load_file(newest), "model/")


def assert_equal(one, other, tolerance=0.0):
    """Tensors by name are the same."""
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance)


def poison(monkeypatch, step, bad):
    """The loss of one step is `bad`; those after it are not. Returns the list of all steps."""
    honest, calls = objective.loss, []

    def poisoned(recipe, model, batch):
        loss = honest(recipe, model, batch)
        if model.training:
            calls.append(None)
            if len(calls) == step:
                return loss * bad
        return loss

    monkeypatch.setattr(objective, "loss", poisoned)
    return calls
