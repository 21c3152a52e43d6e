"""Convolution on Z² ⋊ C_N: exact at quarter turns, close at others, and far better than without."""

from fernn.experiments.steering import steering


def test_steering_is_exact_at_quarter_turns_and_close_at_others():
    rows = steering()
    assert {row["orientations"] for row in rows} == {4, 8, 12, 36}
    for row in rows:
        assert row["quarter"] < 1e-12
        assert row["lift"] < 0.01
        assert row["stack"] < 0.03
        assert row["fixed"] > 5 * row["lift"]
