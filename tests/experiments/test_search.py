"""The search for a learning rate: trials are ordinary runs, and validation alone chooses."""

import json

import pytest
from synthetic import clip_metrics, write_run
from typer.testing import CliRunner

from fernn import cli
from fernn.cli import train as commands
from fernn.experiments import glimpses, results, runs, search, tables
from fernn.experiments.recipes import find
from fernn.experiments.train import DivergedError

NAME = "table2/actions/fernn-v1"


def test_recipes_on_clips_search_as_the_paper_does():
    recipe = find("table2/kth/fernn-v2")
    assert [t.training.learning_rate for t in search.trials(recipe)] == [3e-3, 1e-3, 3e-4, 1e-4]
    assert recipe.seeds == 3
    assert search.trials(find("table4/grnn")) == (find("table4/grnn"),)


def test_choice_is_by_mean_validation_loss(tmp_path):
    recipe = find(NAME)
    losses = {3e-3: [0.1, None], 1e-3: [0.1, 0.9], 3e-4: [0.4, 0.4], 1e-4: [0.5, 0.5]}
    choice = search.choose(tmp_path, recipe, losses)
    assert choice["learning_rate"] == 3e-4
    assert [trial["mean"] for trial in choice["trials"]] == [None, 0.5, 0.4, 0.5]
    assert search.chosen(tmp_path, recipe).training.learning_rate == 3e-4
    assert search.chosen(tmp_path, find(NAME, "short")) is None
    with pytest.raises(ValueError, match="at which no seed of 'table2/actions/fernn-v1' diverges"):
        search.choose(tmp_path, recipe, {3e-3: [None, 0.1]})


def test_tables_take_the_chosen_rate(tmp_path):
    out = tmp_path / "runs"
    recipe = find(NAME)
    for trial, accuracy in zip(search.trials(recipe), (0.9, 0.5, 0.8, 0.7), strict=True):
        metrics = clip_metrics("mocap_actions", accuracy)
        write_run(out, NAME, scale="paper", metrics=metrics, recipe=trial)
    before = results.load(out)
    assert [r.metrics["accuracy"] for r in before.found] == [0.8]  # the recipe's own rate
    assert len(before.changed) == 3
    search.choose(out, recipe, {3e-3: [0.4], 1e-3: [0.1], 3e-4: [0.2], 1e-4: [0.3]})
    after = results.load(out)  # the test accuracy of the chosen one is the worst
    assert [r.metrics["accuracy"] for r in after.found] == [0.5]
    assert (after.left_out, after.changed) == ((), ())
    # Looked at from above it is the same.
    above = results.load(tmp_path)
    assert [r.metrics["accuracy"] for r in above.found] == [0.5]
    assert above.changed == ()
    # A rate that the search did not try is a change as any other.
    metrics = clip_metrics("mocap_actions", 0.6)
    other = recipe.but(training={"learning_rate": 7e-3})
    write_run(out, NAME, scale="paper", metrics=metrics, recipe=other)
    (changed,) = results.load(out).changed
    assert changed.changes == ("training.learning_rate=0.007",)


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    """`fernn reproduce --search` of one recipe, with one epoch of two steps a trial."""
    run = commands.run
    monkeypatch.setattr(glimpses, "SIZES", {"train": 12, "val": 6, "test": 6})
    glimpses.glimpses.cache_clear()
    trained = []

    def short(recipe, seed, out, **options):
        trained.append(recipe.training.learning_rate)
        return run(recipe.but(training={"epochs": 1}), seed, out, **options)

    monkeypatch.setattr(commands, "run", short)
    words = ["reproduce", NAME, "--scale", "quick", "--device", "cpu", "--out", str(tmp_path)]
    yield lambda *more: (CliRunner().invoke(cli.app, [*words, *more]), trained)
    glimpses.glimpses.cache_clear()


def test_search_is_one_command_that_goes_on(reproduce, tmp_path):
    result, trained = reproduce("--search")
    assert result.exit_code == 0, result.output
    rates = find(NAME, "quick").rates
    assert trained == [*rates]
    assert "is the best on validation" in result.output
    choice = json.loads((tmp_path / NAME / "quick" / search.CHOICE).read_text())
    losses = [trial["val_loss"][0] for trial in choice["trials"]]
    assert choice["learning_rate"] == rates[losses.index(min(losses))]
    (line,) = [n for n in tables.table("2-actions", results.load(tmp_path)).notes if "rate" in n]
    assert line.endswith(f"learning rate {choice['learning_rate']:g}, searched for on validation")
    kept = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob(runs.RECORD))]
    assert len(kept) == len(rates)
    again, _ = reproduce("--search")
    assert again.exit_code == 0
    assert kept == [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob(runs.RECORD))]


def test_search_counts_a_trial_that_diverges(reproduce, tmp_path, monkeypatch):
    run, (high, low) = commands.run, find(NAME, "quick").rates

    def diverges(recipe, *place, **options):
        if recipe.training.learning_rate == high:
            raise DivergedError("too high")
        return run(recipe, *place, **options)

    monkeypatch.setattr(commands, "run", diverges)
    result, _ = reproduce("--search")
    assert result.exit_code == 0, result.output
    assert "diverged" in result.output
    choice = json.loads((tmp_path / NAME / "quick" / search.CHOICE).read_text())
    assert choice["learning_rate"] == low
    assert choice["trials"][0] == {"learning_rate": high, "val_loss": [None], "mean": None}
    after, trained = reproduce()  # without the search: what it chose is done
    assert after.exit_code == 0
    assert trained[-1] == low
