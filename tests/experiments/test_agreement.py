"""Whether a measurement is what its record says."""

import copy

import pytest

from fernn.experiments.agreement import agreement

FORECAST = {
    "dataset": "MNIST",
    "test_mse": 1e-3,
    "mse_per_step": [1e-3, 2e-3],
    "mse_per_step_long": [1e-3, 2e-3, 4e-3],
    "mse_per_velocity": [{"velocity": [0, 1], "mse": 1e-3}],
    "sequences": {"test": 100},
}
CLIPS = {
    "dataset": "clips",
    "accuracy": 0.5,
    "accuracy_per_class": {"box": 0.1, "run": 0.9},
    "accuracy_per_motion": {"V^T_0": 0.6, "V^T_1": 0.5},
    "confusion": [[5, 5], [5, 5]],
    "sequences": {"test": 100},
}


def changed(metrics, *place, to):
    made = copy.deepcopy(metrics)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = to
    return made


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (FORECAST, "agrees with its record: all that is compared is the same"),
        (
            changed(FORECAST, "mse_per_step", 1, to=2.02e-3),
            "agrees with its record: mse per step 2 differs most, by 0.99% (2% is allowed)",
        ),
        (
            changed(FORECAST, "mse_per_velocity", 0, "mse", to=2e-3),
            "differs from its record: mse per velocity 1 mse differs most, by 50% (2% is allowed)",
        ),
        (
            changed(FORECAST, "mse_per_step_long", 2, to=9.0),  # a rounding grows so far
            "agrees with its record: all that is compared is the same",
        ),
        (
            changed(FORECAST, "dataset", to="others"),
            "differs from its record: dataset is MNIST, recorded others",
        ),
        (
            changed(FORECAST, "test_mse", to=None),
            "differs from its record: test mse is 0.001, recorded not finite",
        ),
        (
            changed(FORECAST, "mse_per_velocity", 0, "velocity", to=[0, 2]),
            "differs from its record: mse per velocity 1 velocity 2 is 1, recorded 2",
        ),
        (
            changed(FORECAST, "mse_per_step", to=[1e-3]),
            "differs from its record: mse per step 2 is 0.002, recorded missing",
        ),
    ],
)
def test_forecasts(recorded, said):
    assert agreement(FORECAST, recorded) == said


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (
            changed(CLIPS, "accuracy", to=0.53),
            "agrees with its record: accuracy differs most, by 3 of 100 clips (3 are allowed)",
        ),
        (
            changed(CLIPS, "accuracy_per_motion", "V^T_1", to=0.45),
            "differs from its record: accuracy per motion V^T_1 differs most, by 5 of 100 clips "
            "(3 are allowed)",
        ),
        (
            # One clip of a small class is a large share of it.
            changed(CLIPS, "accuracy_per_class", "box", to=0.2),
            "agrees with its record: all that is compared is the same",
        ),
        (
            changed(CLIPS, "accuracy_per_motion", to={"V^T_0": 0.6, "V^T_2": 0.5}),
            "differs from its record: accuracy per motion V^T_1 is 0.5, recorded missing",
        ),
    ],
)
def test_clips(recorded, said):
    assert agreement(CLIPS, recorded) == said


def test_the_first_sequences_are_named():
    recorded = {"mean": 1.0, "sequence_mse": [0.5, 1.5]}
    said = agreement({"mean": 1.0, "sequence_mse": [0.5, 3.0]}, recorded)
    assert said.endswith("the MSE of sequence 2 differs most, by 50% (2% is allowed)")
    said = agreement({"mean": 4.0, "sequence_mse": [0.5, 1.5]}, recorded)
    assert "the mean of these sequences differs most, by 75%" in said


def test_nothing_is_said_of_records_without_these_metrics():
    assert agreement(FORECAST, {}) is None
    assert agreement({"test_mse": 1.0}, {"accuracy": 1.0}) is None
