"""Training: what a run leaves behind, and what it refuses."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from trained import Told, assert_equal, weights

from fernn import load
from fernn.experiments import checkpoint, datasets, glimpses, records, runs, state, train
from fernn.experiments.evaluate import evaluate
from fernn.experiments.loop import Loop
from fernn.experiments.recipes import changed, find, from_json, to_json
from fernn.models import Forecaster


def test_a_run_leaves_everything_that_a_table_needs(tiny, tmp_path):
    record = train.train(tiny, seed=3, out=tmp_path, device="cpu")
    run = runs.folder(tmp_path, tiny, 3)
    assert run.is_relative_to(tmp_path / tiny.name / "quick")
    assert run.name == "seed-3"
    assert json.loads((run / "record.json").read_text()) == record
    assert from_json(json.loads((run / "recipe.json").read_text())) == tiny
    assert from_json(record["recipe"]) == tiny
    curve = [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]
    assert curve == record["curve"]
    assert [line["epoch"] for line in curve] == [1, 2]
    assert [line["step"] for line in curve] == [8, 16]
    assert [line["sequences"] for line in curve] == [32, 64]
    keys = {"step", "epoch", "sequences", "seconds", "train_loss", "val_loss", "lr"}
    assert all(line.keys() == keys for line in curve)
    assert curve[1]["lr"] < curve[0]["lr"] < tiny.training.learning_rate
    assert record["val_loss"] == min(line["val_loss"] for line in curve)
    assert record["curve"][record["best_epoch"] - 1]["val_loss"] == record["val_loss"]
    assert (record["name"], record["scale"], record["seed"]) == (tiny.name, "quick", 3)
    assert (record["device"], record["precision"], record["epochs"]) == ("cpu", "32-true", 2)
    assert record["peak_memory_bytes"] is None
    assert record["flops_per_sequence"] > 0
    assert record["sequences_per_second"] > 0
    assert record["metrics"]["test_mse"] > 0
    assert record["data"] == "embedded digits"
    assert {"commit", "dirty", "torch"} <= record["environment"].keys()
    model = load(run / "best.safetensors")
    assert isinstance(model, Forecaster)
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    assert list((run / "tensorboard").iterdir())
    assert len(list((run / runs.CHECKPOINTS).iterdir())) == 4


def test_a_finished_run_is_not_trained_again(tiny, tmp_path):
    record, told = train.train(tiny, out=tmp_path, device="cpu"), Told()
    assert train.train(tiny, out=tmp_path, device="cpu", report=told) == record
    assert told.losses == []
    assert "is finished" in told.said[0]


def test_a_run_tells_how_far_its_evaluation_is(tiny, tmp_path):
    told = Told()
    train.train(tiny, out=tmp_path, device="cpu", report=told)
    assert told.shares[0] == 0 < told.shares[-1] < 1
    assert told.shares == sorted(told.shares)


def test_a_run_says_where_it_runs_and_how_exactly(tiny, tmp_path):
    told = Told()
    train.train(tiny, out=tmp_path, device="cpu", precision="bf16-mixed", report=told)
    assert told.said[0] == "on cpu, in bf16-mixed"
    assert not any("--scale" in text for text in told.said)


def test_a_scale_for_a_gpu_is_told_of_on_a_cpu_before_the_first_step(
    settings, tmp_path, monkeypatch
):
    class Before(Told):
        def step(self, done, loss, rate):
            if done == 1:
                assert [text for text in self.said if "takes very long on a CPU" in text]
            super().step(done, loss, rate)

    recipe = changed(find("table1/translation/fernn-v2-transported", "short"), settings)
    monkeypatch.setattr(datasets, "source", lambda *_: "MNIST")  # the digits inside will do
    train.train(recipe, out=tmp_path, device="cpu", report=(told := Before()))
    assert told.losses
    (said,) = [text for text in told.said if "--scale quick" in text]
    assert said.startswith("scale short is made for a GPU")
    again = Told()
    train.train(recipe, out=tmp_path, device="cpu", report=again)
    assert not any("--scale" in text for text in again.said)  # it is finished


def test_a_finished_run_of_another_precision_or_data_is_refused(tiny, tmp_path, monkeypatch):
    train.train(tiny, out=tmp_path, device="cpu", precision="bf16-mixed")
    run = str(runs.folder(tmp_path, tiny, 0))
    with pytest.raises(ValueError, match="`--precision` must be what the run in") as caught:
        train.train(tiny, out=tmp_path, device="cpu")
    assert f"{run} began with, 'bf16-mixed', got '32-true'. Go on with that" in str(caught.value)
    monkeypatch.setattr(datasets, "source", lambda *_: "MNIST")
    with pytest.raises(ValueError, match="`--data` and `--clips` must be what the run in"):
        train.train(tiny, out=tmp_path, device="cpu", precision="bf16-mixed")


def test_other_clips_of_the_same_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(glimpses, "SIZES", {"train": 12, "val": 6, "test": 6})
    archive = glimpses.glimpses.__wrapped__()
    monkeypatch.setattr(datasets, "glimpses", lambda: archive)
    recipe = find("table2/actions/cnn3d", "quick").but(training={"epochs": 2})
    record = train.train(recipe, out=tmp_path, device="cpu")
    assert record["data_sha256"] == archive.sha256
    other = replace(archive, label=archive.label.flip(0))
    assert other.name == archive.name
    monkeypatch.setattr(datasets, "glimpses", lambda: other)
    expected = "the SHA-256 of `--clips` must be what the run in"
    with pytest.raises(ValueError, match=expected):
        train.train(recipe, out=tmp_path, device="cpu")
    (runs.folder(tmp_path, recipe, 0) / runs.RECORD).unlink()  # so it goes on from its checkpoint
    with pytest.raises(ValueError, match=expected):
        train.train(recipe, out=tmp_path, device="cpu")


def test_another_recipe_in_the_same_folder_is_refused(tiny, tmp_path):
    # As where the package's own recipe has changed since.
    runs.begin(runs.folder(tmp_path, tiny, 0), tiny.but(training={"epochs": 3}))
    with pytest.raises(
        ValueError, match=r"has training\.epochs=3 and not training\.epochs=2\. Use"
    ):
        train.train(tiny, out=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("part", "value"),
    [("options", {"hidden_channels": 0}), ("training", {"batch_size": 10**6})],
)
def test_a_recipe_that_cannot_be_trained_leaves_no_run(part, value, tiny, tmp_path):
    with pytest.raises(ValueError, match=next(iter(value))):
        train.train(tiny.but(**{part: value}), out=tmp_path, device="cpu")
    assert [path.name for path in tmp_path.rglob("*.*") if path.is_file()] in ([], [".lock"])


def test_a_run_that_diverged_before_it_saved_stays(tmp_path):
    wild = find("table2/actions/grnn", "quick").but(training={"learning_rate": 1e30})
    with pytest.raises(train.DivergedError, match="and nothing was saved yet"):  # for batch-norm
        train.train(wild, out=tmp_path, device="cpu")
    run = runs.folder(tmp_path, wild, 0)
    assert (run / runs.RECIPE).is_file()
    assert not (run / runs.CHECKPOINTS).exists()


def test_a_finished_run_stays_one_where_it_is_refused(tiny, tmp_path):
    train.train(tiny, out=tmp_path, device="cpu")
    run = runs.folder(tmp_path, tiny, 0)
    shutil.rmtree(run / runs.CHECKPOINTS)
    with pytest.raises(ValueError, match=r"must be what the run .* began with"):
        train.train(tiny, out=tmp_path, device="cpu", precision="bf16-mixed")
    assert (run / runs.RECIPE).is_file()


def test_a_record_of_another_recipe_is_refused(tiny, tmp_path):
    run = runs.folder(tmp_path, tiny, 0)
    other = tiny.but(training={"epochs": 3})
    records.write(run / runs.RECORD, {"recipe": to_json(other)})  # as this repository keeps them
    with pytest.raises(ValueError, match=r"has training\.epochs=3 and not training\.epochs=2"):
        train.train(tiny, out=tmp_path, device="cpu")
    assert not (run / runs.RECIPE).exists()
    records.write(run / runs.RECIPE, to_json(tiny))
    assert runs.read_recipe(run) == other


def test_what_a_killed_process_was_writing_is_removed(tiny, tmp_path):
    run = runs.folder(tmp_path, tiny, 0)
    (run / runs.CHECKPOINTS).mkdir(parents=True)
    for path in (run / ".best.safetensors.00ff.part", run / runs.CHECKPOINTS / ".1.json.0f.part"):
        path.write_text("half")
    runs.begin(run, tiny)
    assert sorted(path.name for path in run.rglob("*") if path.is_file()) == ["recipe.json"]


def test_what_a_recipe_says_of_itself_may_change(tiny, tmp_path):
    run = runs.folder(tmp_path, tiny, 0)
    runs.begin(run, tiny)
    runs.begin(run, tiny.but(seeds=9, published={"row": "another name"}))


def test_a_run_from_before_a_setting_existed_goes_on(tiny, tmp_path):
    run = runs.folder(tmp_path, tiny, 0)
    runs.begin(run, tiny)
    plain = json.loads((run / runs.RECIPE).read_text())
    del plain["data"]["switch"]  # false by default, as a new setting is
    (run / runs.RECIPE).write_text(json.dumps(plain))
    assert runs.begin(run, tiny) is None
    with pytest.raises(ValueError, match=r"has data\.switch=False and not data\.switch=True"):
        runs.begin(run, tiny.but(data={"switch": True}))


def test_two_processes_cannot_train_one_run(tiny, tmp_path):
    run = runs.folder(tmp_path, tiny, 0)
    runs.begin(run, tiny)
    with runs.held(run), pytest.raises(runs.HeldError, match="another process is training"):
        train.train(tiny, out=tmp_path, device="cpu")


def test_a_seed_decides_everything(tiny, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.rand(3)  # the caller's generator has no say
        train.train(tiny, seed, out=tmp_path / name, device="cpu")
    a, b, c = (
        weights(runs.folder(tmp_path / n, tiny, s)) for n, s in (("a", 1), ("b", 1), ("c", 2))
    )
    assert_equal(a, b)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_training_leaves_the_callers_generator_alone(tiny, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train.train(tiny, out=tmp_path, device="cpu")
    assert torch.equal(torch.rand(1), expected)


def test_micro_batches_take_the_same_steps(tiny, tmp_path):
    for size in (None, 3):
        train.train(
            tiny, out=tmp_path / str(size), device="cpu", precision="64-true", micro_batch=size
        )
    whole, parts = (weights(runs.folder(tmp_path / n, tiny, 0)) for n in ("None", "3"))
    assert whole["decoder.0.weight"].dtype == torch.float64
    assert_equal(whole, parts, 1e-11)


@pytest.mark.parametrize("precision", ["tf32", "bf16-mixed"])
def test_every_precision_trains(precision, tiny, tmp_path):
    told = Told()
    train.train(tiny, out=tmp_path, device="cpu", precision=precision, report=told)
    assert all(math.isfinite(loss) for loss in told.losses)
    assert told.losses[-1] < told.losses[0]
    assert torch.get_float32_matmul_precision() == "highest"  # as it was
    assert weights(runs.folder(tmp_path, tiny, 0))["decoder.0.weight"].dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("precision", train.PRECISIONS)
def test_every_precision_trains_on_a_gpu(precision, tiny, tmp_path):
    told = Told()
    record = train.train(tiny, out=tmp_path, device="cuda", precision=precision, report=told)
    assert told.losses[-1] < told.losses[0]
    assert record["peak_memory_bytes"] > 0
    _, state = checkpoint.read(runs.folder(tmp_path, tiny, 0) / runs.CHECKPOINTS, pytest.fail)
    assert (state["scaler"] is not None) == (precision == "16-mixed")


def test_loss_scaling_is_saved(tmp_path):
    """On a CPU, where a run with it is refused: the state alone."""

    def made(scale):
        module = torch.nn.Linear(2, 2)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        adam = torch.optim.Adam(module.parameters())
        return state.State(module, adam, scaler, torch.device("cpu"), state.Progress(micro_batch=4))

    one, other = made(4.0), made(8.0)
    one.scaler.scale(torch.ones(()))  # it has no scale before the first use
    one.write(tmp_path)
    other.take(*checkpoint.read(tmp_path, pytest.fail))
    assert other.scaler.get_scale() == 4.0
    assert_equal(other.module.state_dict(), one.module.state_dict())


def test_the_gradient_is_clipped(tiny, tmp_path, monkeypatch):
    norms = []
    step = torch.optim.Adam.step

    def spy(self, *rest, **named):
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))
        return step(self, *rest, **named)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    train.train(tiny.but(training={"clip": 1e-3}), out=tmp_path, device="cpu")
    assert norms
    assert max(norms) <= 1e-3 * (1 + 1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "tpu"}, "`device` must be one of"),
        ({"precision": "8"}, "`precision` must be one of"),
        ({"precision": "16-mixed"}, 'Use "bf16-mixed"'),
        ({"devices": 0}, "`devices` must be a positive integer"),
        ({"micro_batch": 0}, "`micro_batch` must be a positive integer"),
        ({"seed": -1}, "`seed` must be a non-negative integer"),
    ],
)
def test_refuses(arguments, message, tiny, tmp_path):
    with pytest.raises(ValueError, match=message):
        train.train(tiny, out=tmp_path, **{"device": "cpu"} | arguments)


def test_a_batch_larger_than_an_epoch_is_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match="at most the 32 sequences"):
        train.train(tiny.but(training={"batch_size": 33}), out=tmp_path, device="cpu")


@pytest.mark.parametrize("scale", ["paper", "short"])
def test_the_embedded_digits_are_for_quick_runs_alone(scale, tmp_path):
    with pytest.raises(ValueError, match="`--data` must be a folder with MNIST's files"):
        train.train(find("table1/translation/grnn", scale), out=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())


def test_clips_need_an_archive(tmp_path):
    with pytest.raises(ValueError, match="`--clips` must be given"):
        train.train(find("table2/kth/grnn", "quick"), out=tmp_path, device="cpu")


def test_training_sees_neither_the_test_split_nor_another_validation(tiny, tmp_path, monkeypatch):
    asked, videos = [], datasets.videos

    def spy(recipe, split, **options):
        asked.append((split, options.get("seed", 0)))
        return videos(recipe, split, **options)

    monkeypatch.setattr(datasets, "videos", spy)
    monkeypatch.setattr(train, "evaluate", lambda *args, **options: asked.append("tested") or {})
    train.train(tiny, seed=3, out=tmp_path, device="cpu")
    assert asked == [("train", 3), ("val", 0), "tested"]


def test_the_weights_of_the_best_validation_are_kept_and_tested(tiny, tmp_path, monkeypatch):
    losses = iter([1.0, 2.0])
    monkeypatch.setattr(Loop, "_validate", lambda loop: next(losses))
    best, end_of_epoch = {}, Loop._end_of_epoch

    def noted(loop):
        if loop.progress.epoch == 0:
            best.update({k: v.clone() for k, v in loop.module.state_dict().items()})
        end_of_epoch(loop)

    monkeypatch.setattr(Loop, "_end_of_epoch", noted)
    record = train.train(tiny, out=tmp_path, device="cpu")
    kept = load(runs.folder(tmp_path, tiny, 0) / runs.BEST)
    assert (record["best_epoch"], record["epochs"]) == (1, 2)
    assert_equal(dict(kept.state_dict()), best)
    assert record["metrics"]["test_mse"] == evaluate(kept, tiny)["test_mse"]
