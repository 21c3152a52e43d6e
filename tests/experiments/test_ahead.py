"""Steps that are launched before earlier ones are known, and CUDA graphs: the same run, sooner.

Working ahead needs no GPU, so its rules are tested on a CPU too.
"""

import math
import signal

import pytest
import torch
from safetensors.torch import load_file
from trained import poison

from fernn.data import Batch, ClipArchive
from fernn.experiments import checkpoint, datasets, graph, objective, runs, step, train
from fernn.experiments.progress import Report
from fernn.experiments.recipes import find
from fernn.flows import Translation


class Told(Report):
    """Keeps what it is told, and asks to stop after a step."""

    def __init__(self, stop_at=None):
        self.said, self.losses, self.steps, self.stop_at = [], [], [], stop_at

    def say(self, text):
        self.said.append(text)

    def step(self, done, loss, rate):
        self.losses.append(loss)
        self.steps.append(done)
        if done == self.stop_at:
            signal.raise_signal(signal.SIGINT)


def _run(recipe, out, *, device="cpu", stop_at=None, **options):
    told = Told(stop_at)
    train.train(recipe, out=out, device=device, report=told, **options)
    return runs.folder(out, recipe, 0), told


def _tensors(run):
    tensors = load_file(max((run / runs.CHECKPOINTS).glob("*.safetensors")))
    return {name: t for name, t in tensors.items() if not name.startswith("random/")}


def _assert_close(one, other, tolerance):
    (one, told), (other, expected) = one, other
    assert told.steps == expected.steps
    assert told.losses == pytest.approx(expected.losses, rel=tolerance)
    tensors, others = _tensors(one), _tensors(other)
    assert tensors.keys() == others.keys()
    for name in tensors:
        torch.testing.assert_close(
            tensors[name], others[name].to(tensors[name]), rtol=tolerance, atol=tolerance
        )


@pytest.fixture
def ahead(monkeypatch):
    """A CPU that is treated as one GPU is, but for graphs."""
    monkeypatch.setattr(step, "works_ahead", lambda fabric: True)


def test_working_ahead_takes_the_same_steps(tiny, tmp_path, monkeypatch):
    plain = _run(tiny, tmp_path / "plain", precision="64-true", save_minutes=0)
    monkeypatch.setattr(step, "works_ahead", lambda fabric: True)
    ahead = _run(tiny, tmp_path / "ahead", precision="64-true", save_minutes=0)
    _assert_close(ahead, plain, 1e-9)
    assert plain[1].steps == [*range(1, 17)]


@pytest.mark.parametrize("stop_at", [1, 6, 8, 16])
def test_a_run_that_works_ahead_goes_on_where_it_stopped(stop_at, tiny, tmp_path, ahead):
    whole, _ = _run(tiny, tmp_path / "whole")
    with pytest.raises(train.Interrupted):
        _run(tiny, tmp_path / "stopped", stop_at=stop_at)
    run, told = _run(tiny, tmp_path / "stopped")
    assert told.steps == [*range(17 - len(told.steps), 17)]
    one, other = _tensors(run), _tensors(whole)
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nothing_changes_after_a_loss_that_is_not_finite(bad, tiny, tmp_path, ahead, monkeypatch):
    calls = poison(monkeypatch, 6, bad)
    with pytest.raises(train.DivergedError, match="loss of step 6 is not finite"):
        _run(tiny, tmp_path / "bad")
    assert len(calls) > 6  # later steps were on their way
    run = runs.folder(tmp_path / "bad", tiny, 0)
    assert checkpoint.read(run / runs.CHECKPOINTS, pytest.fail)[1]["step"] == 5
    _run(tiny, tmp_path / "bad")
    whole, _ = _run(tiny, tmp_path / "whole")
    one, other = _tensors(run), _tensors(whole)
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("first", [True, False])
def test_a_run_goes_on_with_another_kind_of_step(first, tiny, tmp_path, monkeypatch):
    """As one does that moves from a CPU to a GPU, or back."""
    whole = _run(tiny, tmp_path / "whole", precision="64-true")
    monkeypatch.setattr(step, "works_ahead", lambda fabric: first)
    with pytest.raises(train.Interrupted):
        _run(tiny, tmp_path / "moved", precision="64-true", stop_at=5)
    monkeypatch.setattr(step, "works_ahead", lambda fabric: not first)
    run, _ = _run(tiny, tmp_path / "moved", precision="64-true")
    one, other = _tensors(run), _tensors(whole[0])
    for name in other:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-9)


def _work():
    """A weight, and passes that leave a gradient in it."""
    weight = torch.nn.Parameter(torch.ones(2))

    def work(part, share):
        loss = (part.frames * weight).sum() * share
        loss.backward()
        return loss.detach()

    return weight, work


def test_graphed_runs_its_work_as_it_is_on_a_cpu():
    weight, work = _work()
    graphed = graph.Graphed(work, [weight], pytest.fail, enabled=False)
    part = Batch(torch.ones(2), torch.zeros(1), torch.zeros(1))
    for _ in range(5):
        graphed.zero()
        assert graphed(part, 0.5) + graphed(part, 0.5) == 2
        assert torch.equal(weight.grad, part.frames)
    assert not graphed.recorded


def test_graphed_replays_what_it_recorded(monkeypatch):
    """With a recording that runs the work again: buffers, keys and gradients without a device."""
    recorded, said = [], []

    def capture(work, device):
        result = torch.zeros(())
        recorded.append(device)
        return lambda: result.copy_(work()), result

    monkeypatch.setattr(graph, "capture", capture)
    weight, work = _work()
    graphed = graph.Graphed(work, [weight], said.append, enabled=True)
    labels = torch.zeros(1), torch.zeros(1)
    for index in range(1, 8):
        graphed.zero()
        part = Batch(torch.full((2,), float(index)), *labels)
        assert graphed(part, 0.5) == index  # a graph reads its inputs where it was recorded
        assert graphed.recorded == (index >= 3)
        assert graphed(part, 0.25) == index / 2  # another share runs as it is
        assert torch.equal(weight.grad, 0.75 * part.frames)
        assert graphed(Batch(torch.ones(1), *labels), 0.5) == 1  # and so does another shape
    assert recorded == [weight.device]
    graphed.release()
    assert not graphed.recorded
    assert graphed(part, 0.5) == 7

    def unable(work, device):
        raise RuntimeError("the work waits for the device")

    monkeypatch.setattr(graph, "capture", unable)
    graphed = graph.Graphed(work, [weight], said.append, enabled=True)
    for _ in range(5):
        assert graphed(part, 0.5) == 7
    assert not graphed.recorded
    assert len(said) == 1
    assert "the work waits for the device" in said[0]


@pytest.fixture
def recorded(monkeypatch):
    """How many graphs were recorded."""
    made, capture = [], graph.capture

    def spy(work, device):
        made.append(None)
        return capture(work, device)

    monkeypatch.setattr(graph, "capture", spy)
    return made


def _without_graphs(monkeypatch):
    monkeypatch.setattr(graph, "_WARM", 10**9)


def _wide(tiny):
    """Channels that the GPU's own kernels take, and validations enough for a graph of them."""
    return _validated(tiny.but(options={"hidden_channels": 8, "decoder_layers": 1}))


def _validated(tiny):
    """Two whole batches a validation: four of them in two epochs."""
    return tiny.but(data={"val_size": 8})


@pytest.mark.gpu
@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("64-true", 1e-9), ("32-true", 1e-4), ("bf16-mixed", 2e-2), ("16-mixed", 5e-3)],
)
def test_a_graph_takes_the_same_steps(
    micro_batch, precision, tolerance, tiny, tmp_path, monkeypatch, recorded
):
    options = {"device": "cuda", "precision": precision, "micro_batch": micro_batch}
    replayed = _run(_wide(tiny), tmp_path / "graph", **options)
    assert len(recorded) == 2  # training and validation
    assert not [text for text in replayed[1].said if "CUDA graph" in text]
    _without_graphs(monkeypatch)
    launched = _run(_wide(tiny), tmp_path / "plain", **options)
    assert len(recorded) == 2
    _assert_close(replayed, launched, tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("stop_at", [2, 6])
def test_a_run_with_graphs_goes_on_where_it_stopped(stop_at, tiny, tmp_path):
    options = {"device": "cuda", "precision": "64-true"}
    whole = _run(tiny, tmp_path / "whole", **options)
    with pytest.raises(train.Interrupted):
        _run(tiny, tmp_path / "stopped", stop_at=stop_at, **options)
    run, told = _run(tiny, tmp_path / "stopped", **options)
    assert told.steps == [*range(17 - len(told.steps), 17)]
    one, other = _tensors(run), _tensors(whole[0])
    for name in other:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
def test_batch_norm_keeps_its_statistics_in_a_graph(tmp_path, monkeypatch, recorded):
    frames = torch.randint(0, 256, (48 * 32, 32, 32), dtype=torch.uint8)
    archive = ClipArchive(
        "kth",
        ("a", "b", "c"),
        frames,
        torch.full((48,), 32),
        torch.arange(48) % 3,
        torch.arange(48),
        torch.zeros(48, dtype=torch.int64),
        clip=tuple(f"clip{i}" for i in range(48)),
        split=("train", "train", "val", "test") * 12,
    )
    monkeypatch.setattr(datasets, "clips", lambda *_: archive)
    flow = Translation(velocities=[(0, 0), (0, 1)])
    recipe = find("table2/kth/fernn-v1", "quick").but(
        options={"flow": flow, "hidden_channels": 4, "classes": 3},
        training={"batch_size": 4},
    )
    options = {"device": "cuda", "precision": "64-true"}
    replayed = _run(recipe, tmp_path / "graph", **options)
    assert len(recorded) == 2
    _without_graphs(monkeypatch)
    launched = _run(recipe, tmp_path / "plain", **options)
    assert any("running_var" in name for name in _tensors(launched[0]))
    _assert_close(replayed, launched, 1e-7)


@pytest.mark.gpu
def test_what_cannot_be_recorded_runs_as_it_is(tiny, tmp_path, monkeypatch):
    honest = objective.loss

    def waiting(recipe, model, batch):
        loss = honest(recipe, model, batch)
        assert loss.item() >= 0
        return loss

    tiny = _validated(tiny)
    plain = _run(tiny, tmp_path / "plain", device="cuda", precision="64-true")
    monkeypatch.setattr(objective, "loss", waiting)
    run = _run(tiny, tmp_path / "waiting", device="cuda", precision="64-true")
    assert len([text for text in run[1].said if "no CUDA graph" in text]) == 2
    _assert_close(run, plain, 1e-9)


@pytest.mark.gpu
def test_memory_that_is_too_small_gives_the_graph_up_first(tiny, tmp_path, monkeypatch, recorded):
    plain = _run(tiny, tmp_path / "plain", device="cuda", precision="64-true")
    gradients, calls = step.Stepper._gradients, []

    def small(self, batch):
        calls.append(None)
        if len(calls) > 5 and (self._pass.recorded or self.progress.micro_batch > 2):
            raise torch.OutOfMemoryError("made up")
        return gradients(self, batch)

    monkeypatch.setattr(step.Stepper, "_gradients", small)
    run = _run(tiny, tmp_path / "tight", device="cuda", precision="64-true")
    said = [text for text in run[1].said if "out of memory" in text]
    assert len(said) == 2
    assert "without CUDA graphs" in said[0]
    assert "going on with 2" in said[1]
    _assert_close(run, plain, 1e-9)
