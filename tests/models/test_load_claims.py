"""What a file claims of its model is compared with what it holds, before anything is made of it."""

import json

import pytest
import torch
from safetensors.torch import save_file

from fernn import Forecaster, Translation
from fernn.models import load, save


def doctored(path, config, **options):
    """A small model's file whose configuration claims something else."""
    model = Forecaster(flow=Translation(radius=1), hidden_channels=4, **options)
    about = {"model": "Forecaster", "config": {"hidden_channels": 4, **options, **config}}
    save_file(model.state_dict(), path, metadata={"fernn": json.dumps(about)})


@pytest.mark.parametrize("options", [{}, {"mixing": 1}], ids=str)
def test_load_compares_shapes_before_it_takes_memory(options, tmp_path):
    """The recurrent weight alone would be 130 GB."""
    doctored(tmp_path / "model", {"flow": {"Translation": {"radius": 1}}}, **options)
    load(tmp_path / "model")  # the file itself is whole
    config = {"flow": {"Translation": {"radius": 1}}, "hidden_channels": 60000}
    doctored(tmp_path / "model", config, **options)
    with pytest.raises(ValueError, match=r"recurrent\.weight: \(4, 4, .* in the f.*\(60000, 60000"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_channels": 10**12},
        {"flow": {"Translation": {"radius": 10**6}}},
        {"flow": {"Translation": {"radius": 1000}}},
        {"flow": {"Translation": {"radius": 30, "dim": 3}}},
        {"flow": {"Translation": {"closed": [1000, 1000]}}},
        {"flow": {"Rotation": {"count": 60000, "degrees": 0.001}}},
        {"flow": {"Rotation": {"count": 1, "group": {"SE2": 10**6}}}},
    ],
    ids=str,
)
def test_load_refuses_counts_that_no_model_has(config, tmp_path):
    doctored(tmp_path / "model", config)
    with pytest.raises(ValueError, match=r"a count must be at most 65536, got \d+\).*`into`"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"decoder_layers": 10**4}, r"`decoder_layers` must be at most 10, got 10000\)"),
        ({"flow": {"Translation": {"radius": 40}}, "mixing": 1}, r"mix must be at most 4096, got"),
        ({"hidden_channels": 2**16, "kernel_size": 2**16 - 1}, r"RuntimeError: .*overflow"),
    ],
    ids=str,
)
def test_load_refuses_models_that_cannot_be_made(config, message, tmp_path):
    """No more layers than the file has tensors; of velocities that mix each pair is tabulated."""
    doctored(tmp_path / "model", config)
    with pytest.raises(ValueError, match=rf"{message}.*`into`"):
        load(tmp_path / "model")


def test_save_refuses_what_load_would(tmp_path):
    with torch.device("meta"):
        model = Forecaster(flow=Translation(radius=1), mixing=1, hidden_channels=1)
    model.config["flow"] = Translation(closed=(65, 65))
    with pytest.raises(ValueError, match="the velocities that mix must be at most 4096, got 4225"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_load_draws_no_random_numbers(tmp_path):
    save(Forecaster(hidden_channels=4), tmp_path / "model")
    state = torch.get_rng_state()
    load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
