"""The table that `fernn verify` prints, and the counter-example that `make demo` draws."""

import pytest
import torch

from fernn.experiments import counterexample as counter
from fernn.experiments.steering import steering
from fernn.experiments.verification import cases, run


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c.flow_name}: {c.model_name}")
def test_run_gives_the_verdict_of_the_theory(case):
    (result,) = run([case])
    assert result.float64.verdict == case.verdict
    assert result.trained.verdict == case.verdict
    assert result.float32.verdict == case.verdict
    assert result.as_expected
    assert len(result.float64.times) >= (1 if "Classifier" in case.model_name else 4)


def test_run_depends_on_its_seed_alone():
    torch.manual_seed(1)
    first = [r.float64.error for r in run(cases()[4:5], seed=3)]
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = [r.float64.error for r in run(cases()[4:5], seed=3)]
    assert torch.equal(first[0], second[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_counterexample_grnn_leaves_a_train_and_the_fernn_does_not():
    example = counter.counterexample()
    f, plain, lifted = example.still
    moving_f, train, moving = example.moving
    zero = example.flow.zero
    along = [tuple(v) for v in example.flow.velocities.tolist()].index(counter.VELOCITY)
    steps = counter.STEPS
    torch.testing.assert_close(plain[-1], steps * f[0])
    torch.testing.assert_close(lifted[:, zero], plain)
    # The slice that moves along sums the bump in place: one bump, as high as at rest.
    torch.testing.assert_close(moving[-1, along], steps * moving_f[-1])
    # The G-RNN leaves one bump a step, none higher than the input.
    torch.testing.assert_close(train[-1], moving_f.sum(0))
    assert train[-1].max() < 1.2 * f.max()


def test_verification_seeds_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", pytest.fail)
    next(run())
    steering()
