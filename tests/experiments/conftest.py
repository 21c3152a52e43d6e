"""A run that takes a second: two epochs of eight steps of a tiny model.

Its validation is no whole number of batches, nor of shares for two processes.
"""

import pytest

from fernn.experiments.recipes import changed, find

TINY = (
    "options.hidden_channels=4",
    "options.flow=Translation(velocities=[(0, 0), (0, 1)])",
    "options.decoder_layers=0",
    "data.observed=2",
    "data.horizon=2",
    "data.train_size=32",
    "data.val_size=5",
    "data.test_size=4",
    "training.batch_size=4",
    "training.epochs=2",
)


@pytest.fixture
def settings():
    return TINY


@pytest.fixture
def tiny():
    return changed(find("table1/translation/fernn-v2-transported", "quick"), TINY)
