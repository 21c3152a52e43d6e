"""The recorded quick runs: of the recipes as they are, and with the FERNN clearly ahead."""

from pathlib import Path

import pytest

from fernn.experiments import results

RECORDS = Path(__file__).parents[2] / "results" / "quick"
FORECASTS = [
    ("table1/translation/grnn-transported", "table1/translation/fernn-v2-transported", 0.5),
    (
        "table1/rotation/grnn-comoving-transported",
        "table1/rotation/fernn-v4-comoving-transported",
        0.5,
    ),
    ("table1/translation/grnn", "table1/translation/fernn-v2", 0.5),
    ("table1/rotation/grnn", "table1/rotation/fernn-v4", 0.75),
    ("table4/grnn", "table4/fernn-v2", 0.75),
    ("table4/grnn", "table4/fernn-v2-mixing", 0.75),
    ("fig5/translation/grnn-transported", "fig5/translation/fernn-v2-transported", 0.5),
    (
        "fig5/rotation/grnn-comoving-transported",
        "fig5/rotation/fernn-v4-comoving-transported",
        0.75,
    ),
    ("fig6/grnn-transported", "fig6/fernn-11-transported", 0.5),
    ("wrapper/convgru", "wrapper/convgru-flow", 0.5),
    ("wrapper/attention", "wrapper/attention-flow", 0.5),
]
CLIPS = ["table2/actions", "table3/actions", "table5/actions", "fig8/actions/v0"]


@pytest.fixture(scope="module")
def found():
    return results.load(RECORDS)


def metric(found, name, what):
    (run,) = found.named(name, "quick")
    return run.number(what)


def test_quick_records_are_of_the_recipes_as_they_are(found):
    assert found.left_out == ()
    assert {run.record["environment"]["dirty"] for run in found.found} == {False}


@pytest.mark.parametrize(("plain", "moving", "share"), FORECASTS)
def test_quick_forecasts_part(found, plain, moving, share):
    assert metric(found, moving, "test_mse") < share * metric(found, plain, "test_mse")


@pytest.mark.parametrize("part", ["translation", "rotation"])
def test_quick_long_forecasts_stay_ahead(found, part):
    rows = {
        "translation": ("-transported", "fernn-v2"),
        "rotation": ("-comoving-transported", "fernn-v4"),
    }
    ending, fernn = rows[part]
    (plain,) = found.named(f"table1/{part}/grnn{ending}", "quick")
    (moving,) = found.named(f"table1/{part}/{fernn}{ending}", "quick")
    steps = zip(
        plain.metrics["mse_per_step_long"], moving.metrics["mse_per_step_long"], strict=True
    )
    assert all(ours < theirs for theirs, ours in steps)


@pytest.mark.parametrize("folder", CLIPS)
def test_quick_classifiers_part(found, folder):
    ours = metric(found, f"{folder}/fernn-v2", "accuracy")
    assert ours > metric(found, f"{folder}/grnn", "accuracy") + 0.05
