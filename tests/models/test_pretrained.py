"""load_pretrained: the weights in the package are the ones that were measured."""

import hashlib
import re
import shutil

import pytest
import torch

import fernn
from fernn.experiments.evaluate import sequence_errors
from fernn.experiments.publish import MOST_BYTES, SEQUENCES
from fernn.experiments.recipes import from_json
from fernn.models import _pretrained, pretrained_record

NAMES = (
    "rotating-mnist/fernn-v4",
    "translating-mnist/fernn-v1",
    "translating-mnist/fernn-v2",
    "translating-mnist/grnn",
)
CHECKED = 3  # of the recorded sequences: seconds on one core


def test_pretrained_lists_what_is_shipped():
    assert fernn.pretrained() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_pretrained_weights_reach_what_their_record_says(name):
    record = pretrained_record(name)
    recorded = record["check"]["sequence_mse"]
    assert len(recorded) == SEQUENCES
    found = sequence_errors(fernn.load_pretrained(name), from_json(record["recipe"]), CHECKED)
    assert found == pytest.approx(recorded[:CHECKED], rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_pretrained_files_are_small_and_recorded(name):
    path, record = _pretrained.weights_path(name), pretrained_record(name)
    content = path.read_bytes()
    assert len(content) == record["weights"]["bytes"] <= MOST_BYTES
    assert hashlib.sha256(content).hexdigest() == record["weights"]["sha256"]
    assert {t.dtype for t in fernn.load(path).state_dict().values()} == {torch.float16}
    for key in ("recipe", "seed", "epochs", "precision", "wall_seconds", "parameters", "device"):
        assert record[key] is not None
    assert re.fullmatch("[0-9a-f]{7,40}", record["environment"]["commit"])
    assert record["data"] == "MNIST"
    # Rounding to float16 costs nothing worth naming.
    assert record["check"]["mean"] == pytest.approx(record["check"]["mean_unrounded"], rel=0.02)


def test_load_pretrained_gives_the_model_of_its_recipe():
    for name in NAMES:
        model = fernn.load_pretrained(name)
        options = pretrained_record(name)["recipe"]["options"]
        assert not model.training
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert model.config["hidden_channels"] == options["hidden_channels"]
        assert model.config["readout"] == options["readout"]


def test_load_pretrained_refuses_a_file_that_was_changed(tmp_path, monkeypatch):
    shutil.copytree(_pretrained.FOLDER, tmp_path / "weights")
    monkeypatch.setattr(_pretrained, "FOLDER", tmp_path / "weights")
    path = _pretrained.weights_path(NAMES[-1])
    content = bytearray(path.read_bytes())
    fernn.load_pretrained(NAMES[-1])
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"SHA-256.*damaged or was changed"):
        fernn.load_pretrained(NAMES[-1])
    fernn.load(path)  # a readable file all the same: nothing but the digest can tell


def test_load_pretrained_suggests_the_nearest_name():
    with pytest.raises(ValueError, match=r"Did you mean translating-mnist/fernn-v2\?"):
        fernn.load_pretrained("translating-mnist/fernn-v22")
    with pytest.raises(ValueError, match="`name` must be one of rotating-mnist/fernn-v4, "):
        fernn.load_pretrained("cats")


@pytest.mark.parametrize("name", NAMES)
def test_load_pretrained_knows_a_name_by_its_last_part(name):
    with pytest.raises(ValueError, match=rf"Did you mean {name}\?$"):
        fernn.load_pretrained(name.partition("/")[2])
