"""`fernn reproduce`: every row once, whoever else trains, and honest about what is not done."""

import contextlib

import pytest
from typer.testing import CliRunner

from fernn import cli
from fernn.cli import _batch
from fernn.experiments import runs
from fernn.experiments.recipes import find, recipes

NAME = "table1/translation/fernn-v2-transported"


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, list(words))


@pytest.fixture
def trained(monkeypatch):
    """Which runs `reproduce` asks for; none is really trained."""
    asked = []

    def train(recipe, seed, **options):
        asked.append((recipe.name, recipe.scale, seed))
        if "grnn" in recipe.name:
            raise ValueError("`root` must be given")
        return {"val_loss": 1.0}

    monkeypatch.setattr("fernn.experiments.train.train", train)
    return asked


def test_reproduce_trains_every_row_and_names_those_it_could_not(trained, invoke, tmp_path):
    words = ("reproduce", "table1/translation", "--scale", "quick", "--seeds", "5")
    result = invoke(*words, "--out", str(tmp_path))
    names = [name for name in recipes() if name.startswith("table1/translation/")]
    assert trained == [(name, "quick", seed) for name in names for seed in range(5)]
    assert result.exit_code == 1
    assert "20 of 30 runs are done" in result.output
    # One reason is one line, however many runs it stopped.
    assert result.output.count("`root` must be given") == 1
    assert "not done: 10 runs: `root` must be given" in result.output
    assert "of table1/translation/grnn, table1/translation/grnn-transported" in result.output


def test_reproduce_takes_several_names_and_each_row_once(trained, invoke, tmp_path):
    words = ("reproduce", "wrapper/convgru", "wrapper", NAME, "--seeds", "1", "--scale", "quick")
    result = invoke(*words, "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    names = [name for name in recipes() if name.startswith("wrapper/")]
    assert sorted(name for name, *_ in trained) == sorted([*names, NAME])


def test_reproduce_takes_fewer_seeds_and_says_when_all_is_done(trained, invoke, tmp_path):
    words = ("reproduce", "wrapper", "--seeds", "1", "--out", str(tmp_path))
    result = invoke(*words, "--scale", "quick")
    assert result.exit_code == 0, result.output
    assert {seed for _, _, seed in trained} == {0}
    assert f"{len(trained)} of {len(trained)} runs are done" in result.output


def test_reproduce_refuses_what_no_recipe_begins_with(trained, invoke):
    result = invoke("reproduce", "table9")
    assert isinstance(result.exception, ValueError)
    assert not trained


@pytest.mark.parametrize("command", ["list", "reproduce"])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [("tabel1/rotation", "table1/rotation"), ("table2/kth/gnn", "table2/kth/grnn")],
)
def test_a_name_that_nobody_has_suggests_the_nearest(trained, invoke, command, wrong, right):
    result = invoke(command, wrong)
    assert isinstance(result.exception, ValueError)
    assert f"Did you mean {right}?" in str(result.exception)
    assert not trained


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "nowhere"), "found neither in nowhere"),
        (("--clips", "nowhere.npz"), "nowhere.npz"),
        (("--device", "tpu"), "`device` must be"),
        (("--precision", "8-bit"), "`precision` must be"),
        (("--device", "cuda", "--devices", "1000"), "GPU"),
    ],
)
def test_reproduce_refuses_at_once_what_no_run_could_use(trained, invoke, words, said):
    result = invoke("reproduce", "all", *words)
    assert isinstance(result.exception, ValueError | OSError)
    assert said in str(result.exception)
    assert not trained


def test_reproduce_trains_what_it_has_data_for(trained, invoke, tmp_path):
    result = invoke("reproduce", "larger", "--scale", "quick", "--out", str(tmp_path))
    assert {name for name, _, _ in trained} == {"larger/mnist", "larger/actions"}
    assert result.exit_code == 1
    before, _, after = result.output.partition("1 of ")
    for said in (before, after):  # first, and again where it is not lost above hours of lines
        assert said.count("not done: larger/kth, seed 0: `--clips` must be given") == 1
    # A path that no chosen row needs is not looked at.
    words = ("--clips", "nowhere.npz", "--scale", "quick", "--out", str(tmp_path))
    assert invoke("reproduce", "larger/mnist", *words).exit_code == 0


def test_reproduce_hands_on_every_option_of_train(monkeypatch, invoke, tmp_path):
    given = {}

    def train(recipe, seed, **options):
        given.update(options)
        return {"val_loss": 1.0}

    monkeypatch.setattr("fernn.experiments.train.train", train)
    words = ("--devices", "2", "--nodes", "3", "--micro-batch", "4", "--save-minutes", "5")
    always = ("reproduce", NAME, "--scale", "quick", "--device", "cpu", "--out", str(tmp_path))
    assert invoke(*always, *words).exit_code == 0
    asked = {"device": "cpu", "devices": 2, "nodes": 3, "micro_batch": 4, "save_minutes": 5.0}
    assert given.items() >= asked.items()


def _held_for(monkeypatch, turns):
    """Another process trains seed 0 the first times that `reproduce` asks for it."""
    asked = []

    def train(recipe, seed, *, out, **options):
        asked.append(seed)
        with runs.held(runs.folder(out, recipe, seed)):
            return {"val_loss": 1.0}

    @contextlib.contextmanager
    def held(run):
        if run.name == "seed-0" and asked.count(0) <= turns:
            raise runs.HeldError(f"{run}, which another process is training")
        yield

    monkeypatch.setattr("fernn.experiments.train.train", train)
    monkeypatch.setattr(runs, "held", held)
    return asked


@pytest.mark.parametrize(
    ("turns", "done"), [(1, "2 of 2 runs are done"), (9, "1 more is being trained elsewhere")]
)
def test_reproduce_comes_back_to_a_run_that_another_process_trains(
    monkeypatch, invoke, tmp_path, turns, done
):
    asked = _held_for(monkeypatch, turns)
    words = ("--scale", "quick", "--seeds", "2", "--out", str(tmp_path))
    result = invoke("reproduce", NAME, *words)
    assert asked == [0, 1, 0]
    assert result.exit_code == 0, result.output
    assert done in result.output
    assert "not done" not in result.output


def test_reproduce_knows_a_lock_of_another_process(invoke, tmp_path):
    recipe = find(NAME, "quick")
    with runs.held(runs.folder(tmp_path, recipe, 0)):
        words = ("--scale", "quick", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path))
        result = invoke("reproduce", NAME, *words)
    assert result.exit_code == 0, result.output
    assert "0 of 1 runs are done" in result.output
    assert "1 more is being trained elsewhere" in result.output


def test_processes_of_one_run_stay_together(monkeypatch, invoke, trained, tmp_path):
    words = ("reproduce", "table1/translation", "--scale", "quick", "--device", "cpu")
    result = invoke(*words, "--devices", "2", "--out", str(tmp_path))
    assert isinstance(result.exception, ValueError)  # the others would not follow to the next run
    assert len(trained) == 1
    monkeypatch.setenv("LOCAL_RANK", "1")
    quiet = invoke("reproduce", "wrapper", *words[2:], "--devices", "2", "--out", str(tmp_path))
    assert (quiet.exit_code, quiet.output) == (0, "")


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"SLURM_PROCID": ""}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"RANK": "unset"}, True),
    ],
    ids=str,
)
def test_the_first_of_the_processes_that_a_launcher_started_tells(ranks, first, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, rank in ranks.items():
        monkeypatch.setenv(name, rank)
    assert _batch._is_first() == first


def test_reproduce_leaves_a_run_of_other_settings_alone(invoke, tmp_path):
    recipe = find(NAME, "quick")
    there = runs.folder(tmp_path, recipe, 0)
    runs.begin(there, recipe.but(training={"epochs": 3}))  # as the recipe was, say, last year
    before = (there / runs.RECIPE).read_bytes()
    result = invoke("reproduce", NAME, "--scale", "quick", "--seeds", "1", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "not done" in result.output
    assert "which has training.epochs=3" in result.output
    assert (there / runs.RECIPE).read_bytes() == before
    assert not (there / runs.CHECKPOINTS).exists()
