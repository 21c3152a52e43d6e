"""What a file claims of its model is compared with what it holds, before anything is made of it."""

import json

import pytest
import torch
from safetensors.torch import save_file

from fernn import Forecaster, Stream, Translation
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
        {"flow": {"RigidMotion": {"velocities": [[0, 0, i] for i in range(2**16 + 1)]}}},
    ],
    ids=lambda config: str(config)[:60],
)
def test_load_refuses_counts_that_no_model_has(config, tmp_path):
    doctored(tmp_path / "model", config)
    with pytest.raises(ValueError, match=r"a count must be at most 65536, got \d+\).*`into`"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"decoder_layers": 10**4}, r"`decoder_layers` must be at most 10, got 10000\)"),
        ({"flow": {"Translation": {"radius": 23}}, "mixing": 1}, r"mix must be at most 2048, got"),
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
    with pytest.raises(ValueError, match="the velocities that mix must be at most 2048, got 4225"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_load_draws_no_random_numbers(tmp_path):
    save(Forecaster(hidden_channels=4), tmp_path / "model")
    state = torch.get_rng_state()
    load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)


class Drift(Translation):
    """A flow of one's own, of which a file could say the name alone."""


def normed():
    model = Forecaster(hidden_channels=4, decoder_layers=0)
    torch.nn.utils.parametrizations.weight_norm(model.decoder[0])
    return model


def decoded_otherwise():
    model = Forecaster(hidden_channels=4, decoder_layers=0)
    model.decoder = torch.nn.Conv2d(4, 1, 1)
    return model


def claiming(**config):
    model = Forecaster(hidden_channels=4, decoder_layers=1)
    model.config.update(config)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Forecaster(flow=Drift(radius=1), hidden_channels=4),
            "a flow must be one of Translation, Rotation, RigidMotion, got Drift",
        ),
        (normed, r"decoder\.0\.parametrizations\.weight\.original0: not in its config"),
        (decoded_otherwise, r"decoder\.weight: not in its config"),
        (
            lambda: claiming(hidden_channels=5),
            r"decoder\.0\.bias: \(4,\) in the model, \(5,\) in its config",
        ),
        (lambda: claiming(decoder_layers=2), r"decoder\.4\.bias: missing in the model"),
        (lambda: claiming(flow=object()), "TypeError: .*not JSON serializable"),
        (lambda: claiming(width=3), "TypeError: .*'width'"),
    ],
)
def test_save_refuses_a_model_that_its_config_does_not_make(make, message, tmp_path):
    expected = rf"(?s)`model` must be what its `config` makes.*{message}.*save_model.*into=model\)"
    with pytest.raises(ValueError, match=expected):
        save(make(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_save_refuses_a_subclass_by_the_name_of_its_model(tmp_path):
    own = type("Forecaster", (Forecaster,), {})
    with pytest.raises(TypeError, match=r"`model` must be one of .*safetensors\.torch\.save_model"):
        save(own(hidden_channels=4), tmp_path / "model")


def test_save_draws_no_random_numbers_and_changes_no_model(tmp_path):
    model = Forecaster(flow=Translation(radius=1), mixing=1, hidden_channels=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    save(model, tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (torch.nn.DataParallel, "module"),
        (lambda m: torch.compile(m, backend="eager"), "_orig_mod"),
        (lambda m: torch.nn.DataParallel(torch.compile(m, backend="eager")), "module._orig_mod"),
    ],
    ids=["parallel", "compiled", "both"],
)
def test_a_wrapped_model_is_refused_with_where_it_is(wrap, path, tmp_path):
    model = Forecaster(hidden_channels=4)
    save(model, tmp_path / "model")
    wrapped = wrap(Forecaster(hidden_channels=4))
    with pytest.raises(TypeError, match=rf"`model` must be one of .* Pass model\.{path}, which"):
        save(wrapped, tmp_path / "other")
    with pytest.raises(TypeError, match=rf"`into` must be the model .* Pass into\.{path}, which"):
        load(tmp_path / "model", into=wrapped)
    with pytest.raises(TypeError, match=rf"Forecaster or a FlowRNN.* Pass model\.{path}, which"):
        Stream(wrapped)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_load_fills_a_module_that_holds_a_model(tmp_path):
    """What has a model inside need not be a wrapper: its names are what counts."""
    holder = torch.nn.Module()
    holder.module = Forecaster(hidden_channels=4)
    save_file(holder.state_dict(), tmp_path / "weights")
    assert load(tmp_path / "weights", into=holder) is holder


def test_load_of_a_pretrained_name_says_how_to_get_it():
    with pytest.raises(FileNotFoundError, match=r"load_pretrained\('translating-mnist/fernn-v2'\)"):
        load("translating-mnist/fernn-v2")


def test_save_refuses_a_folder(tmp_path):
    with pytest.raises(IsADirectoryError, match="`path` must be a file, got the folder"):
        save(Forecaster(hidden_channels=4), tmp_path)
