"""Records say what was measured on what; no number in the README's tables is typed by hand."""

import hashlib
import importlib.util
import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from synthetic import ENVIRONMENT, clip_metrics, forecast_metrics, write_run

from benchmarks import apart, controls, drift, far, left, naive, readme, runs, seen
from fernn.data import FlowingMNIST
from fernn.experiments import records, results
from fernn.experiments.recipes import changed, find, recipes
from fernn.experiments.testdata import TestData
from fernn.flows import Translation
from fernn.models import pretrained, pretrained_record


def test_environment_names_commit_versions_and_hardware():
    found = records.environment()
    for name in ("date", "commit", "dirty", "fernn", "python", "torch", "cpu", "threads", "gpu"):
        assert name in found
    here = importlib.util.find_spec("triton") and importlib.import_module("triton").__version__
    assert found["triton"] == here
    json.dumps(found)


def test_write_is_whole_or_absent(tmp_path):
    path = tmp_path / "new" / "record.json"
    records.write(path, {"ν": 1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ν": 1}
    with pytest.raises(TypeError):
        records.write(path, {"bad": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ν": 1}
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "record.json"
    records.write(path, {"a": float("nan"), "b": [(1.0, float("-inf"))], "c": {"d": float("inf")}})
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert found == {"a": None, "b": [[1.0, None]], "c": {"d": None}}


@pytest.mark.parametrize("page", readme.SECTIONS)
def test_pages_show_what_the_records_hold(page):
    text = Path(readme.ROOT, page).read_text(encoding="utf-8")
    assert readme.render(text, page) == text


def test_records_name_commits_of_this_history():
    git = ["git", "-C", str(readme.ROOT)]
    asked = ["rev-parse", "--is-shallow-repository", "--show-toplevel"]
    found = subprocess.run([*git, *asked], capture_output=True, text=True)
    if found.stdout.split("\n")[:2] != ["false", str(readme.ROOT)]:
        pytest.skip("needs a checkout with its whole history")
    listed = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=True)
    known = listed.stdout.split()
    if len(known) < 100:
        pytest.skip("needs the history in which the records were written")
    folders = ("results", "benchmarks/results", "fernn/models/weights")
    files = [file for folder in folders for file in Path(readme.ROOT, folder).rglob("*.json")]
    assert len(files) >= 40
    for file in files:
        text = file.read_text(encoding="utf-8")
        named = re.findall(r'"commit": "(\w+)"', text) + re.findall(r'"([0-9a-f]{40})\+?"', text)
        for commit in named:
            assert any(other.startswith(commit) for other in known), (file, commit)


def test_render_repairs_what_was_typed_by_hand():
    page = "docs/verification.md"
    text = Path(readme.ROOT, page).read_text(encoding="utf-8")
    typed = text.replace("| exact |", "| vague |")
    assert typed != text
    assert readme.render(typed, page) == text


def test_page_without_its_section_is_refused():
    with pytest.raises(ValueError, match=r"README\.md must have one section 'best', found 0"):
        readme.render("nothing here")


def test_readme_shows_how_runs_were_trained(tmp_path):
    turning = "table1/rotation/fernn-v4-comoving-transported"
    for name in ("table1/translation/grnn", "runtime/v1", turning):
        write_run(tmp_path, name, metrics=forecast_metrics("table1/translation/grnn"))
    write_run(tmp_path, "table2/actions/grnn", metrics=clip_metrics("mocap_actions"))
    quick = "table1/translation/fernn-v2"
    write_run(tmp_path, quick, scale="quick", metrics=forecast_metrics(quick, "quick"))
    cosine = "cosine, with 5 % of warm-up"
    assert runs.training(results.load(tmp_path)).splitlines()[2:] == [
        f"| clips | short | 50 | 32 | 0.0003 | {cosine} | – |",
        f"| moving digits | short | 1, 10 | 128 | 0.001 | {cosine} | 1 |",
        f"| turning digits | short | 10 | 32 | 0.0005 | {cosine} | 0.1 |",
    ]


def test_readme_shows_long_settings_in_full(tmp_path):
    name, long = "table1/translation/grnn", ["options.kernel_size=5", "options.hidden_channels=4"]
    long += ["training.epochs=3", "training.batch_size=64"]
    recipe = changed(find(name, "short"), long)
    write_run(tmp_path, name, recipe=recipe, metrics=forecast_metrics(name))
    shown = runs.trained(results.load(tmp_path))
    assert f"| G-RNN, {', '.join(reversed(long[:2]))} | – " in shown  # not the paper's model
    assert "| short, 4 epochs, batch size 64 |" in shown
    assert "settings 1" not in shown


def test_velocities_are_told_apart_by_what_training_showed_and_v_holds(tmp_path):
    name = "fig5/rotation/fernn-v4-comoving-transported"
    errors = {-50.0: 0.5, -40.0: 0.03, -20.0: 0.01, -10.0: 0.004, 0.0: 0.001, 10.0: 0.004}
    listed = [{"velocity": [turn], "mse": error} for turn, error in errors.items()]
    metrics = forecast_metrics(name) | {"mse_per_velocity": listed, "test_mse": 0.2}
    write_run(tmp_path, name, metrics=metrics)
    row = runs.velocities(results.load(tmp_path)).splitlines()[-1]
    assert row.startswith(f"| `{name}` | short, ")
    assert row.endswith(" | 1.0e-03 to 4.0e-03 | 1.0e-02 to 3.0e-02 | 5.0e-01 | 2.0e-01 |")


def test_readouts_are_compared_where_all_else_is_alike(tmp_path):
    for readout, error in (("", 0.5), ("-transported", 0.25)):
        name = f"table1/translation/fernn-v1{readout}"
        alike = [{"velocity": [0, v], "mse": error * (1 + v)} for v in (0, 2)]
        far_ahead = [None if readout else 0.75] * 70
        errors = {"test_mse": error, "mse_per_velocity": alike, "mse_per_step_long": far_ahead}
        write_run(tmp_path, name, metrics=forecast_metrics(name) | errors)
        if readout:  # a second seed, which the other does not have
            write_run(tmp_path, name, seed=1, metrics=forecast_metrics(name))
    name = "table1/translation/fernn-v2"  # without a run of the other readout
    write_run(tmp_path, name, metrics=forecast_metrics(name))
    name, longer = "table1/translation/fernn-v1-transported", ["training.epochs=20"]
    recipe = changed(find(name, "short"), longer)  # and one that was trained otherwise
    write_run(tmp_path, name, recipe=recipe, metrics=forecast_metrics(name))
    _, _, row = runs.readouts(results.load(tmp_path)).splitlines()
    assert row.startswith("| FERNN-V^T_1 | short, ")
    assert row.endswith(" | 1 | 5.0e-01, 2.5e-01 | 1.0e+00, 5.0e-01 | 7.5e-01, not finite |")


def test_results_name_errors_that_are_not_finite(tmp_path):
    name = "fig5/rotation/fernn-v4-comoving-transported"
    listed = [{"velocity": [turn], "mse": error} for turn, error in ((0.0, 0.1), (10.0, None))]
    metrics = forecast_metrics(name) | {"mse_per_velocity": listed, "test_mse": None}
    write_run(tmp_path, name, metrics=metrics)
    name = "table1/translation/grnn"
    metrics = forecast_metrics(name)
    metrics["mse_per_step_long"] = [0.5] * 29 + [None] * 41
    write_run(tmp_path, name, metrics=metrics)
    found = results.load(tmp_path)
    row = runs.velocities(found).splitlines()[-1]
    assert row.endswith(" | 1.0e-01 to not finite | – | – | not finite |")
    row = runs.lengths(found).splitlines()[-1]
    assert row.endswith(" | 5.0e-01" * 3 + " | not finite" * 4 + " |")


def test_readme_names_every_commit_of_a_run():
    old = {"environment": ENVIRONMENT}
    new = old | {"commits": ["a" * 40 + "+", "unknown", "b" * 40]}
    (before, after) = (runs.origins([results.Result(Path(), about)]) for about in (old, new))
    assert before[0].endswith("2000-01-01, commit 0000000")
    assert after == [before[0].replace("0000000", "aaaaaaa and changes, unknown, bbbbbbb")]


@pytest.mark.parametrize(
    ("table", "part", "setting"),
    [(controls.controls, "training", "clip"), (controls.horizons, "data", "horizon")],
)
def test_controls_on_other_digits_are_not_compared(table, part, setting, tmp_path):
    for value, data in ((8, "MNIST"), (9, "embedded digits")):
        recipe = find(controls.TRANSPORTED, "quick").but(**{part: {setting: value}})
        about = {"data": data, "metrics": forecast_metrics(recipe.name, "quick")}
        write_run(tmp_path, recipe.name, scale="quick", recipe=recipe, **about)
    with pytest.raises(ValueError, match="must share their data, got MNIST, embedded digits"):
        table(results.load(tmp_path))


def test_controls_trained_otherwise_than_they_show_are_not_compared(tmp_path):
    for clip, warmup in ((8, 0.0), (9, 0.05)):
        recipe = find(controls.TRANSPORTED, "quick").but(training={"clip": clip, "warmup": warmup})
        about = {"data": "MNIST", "metrics": forecast_metrics(recipe.name, "quick")}
        write_run(tmp_path, recipe.name, scale="quick", recipe=recipe, **about)
    with pytest.raises(ValueError, match=r"must share their training\.warmup, got 0\.0, 0\.05"):
        controls.controls(results.load(tmp_path))


def test_controls_of_mixing_are_means_over_seeds_the_largest_error_first(tmp_path):
    for name, seeds in (("fernn-v2-mixing-near", (0.01, 0.03)), ("grnn", (0.05,))):
        recipe = find(f"table4/{name}", "quick").but(data={"train_size": 8})
        for seed, mse in enumerate(seeds):
            metrics = forecast_metrics(recipe.name, "quick", mse=mse)
            about = {"seed": seed, "metrics": metrics, "data": "MNIST", "recipe": recipe}
            write_run(tmp_path, recipe.name, scale="quick", **about)
    larger, smaller = controls.mixing(results.load(tmp_path)).splitlines()[2:4]
    assert larger.startswith("| 1 | – | 16 | 1,234 | 2.0 | 1 | ")
    assert smaller.startswith("| 3 | nearest | 8 | 1,234 | 2.0 | 2 | ")
    assert smaller.endswith(" | 2.00e-02 | 1.00e-02, 3.00e-02 |")
    lost = find("table4/fernn-v2", "quick").but(data={"train_size": 8})
    about = {"metrics": forecast_metrics(lost.name, "quick") | {"test_mse": None}, "data": "MNIST"}
    write_run(tmp_path, lost.name, scale="quick", recipe=lost, **about)
    first = controls.mixing(results.load(tmp_path)).splitlines()[2]
    assert first.endswith(" | not finite | not finite |")
    write_run(tmp_path, lost.name, scale="quick", recipe=lost.but(training={"clip": 1.0}), **about)
    with pytest.raises(ValueError, match=r"must share their training\.clip"):
        controls.mixing(results.load(tmp_path))


def test_readme_has_the_training_that_validates_best_and_the_published_one(tmp_path):
    name, recipe = "table1/translation/grnn", find("table1/translation/grnn", "short")
    better = recipe.but(training={"batch_size": 32})
    another = recipe.but(options={"hidden_channels": 4})  # not the paper's model
    published = find(name, "paper")
    for made, loss, mse in (
        (recipe, 2e-2, 1e-2),
        (better, 1e-2, 1.62e-2),
        (another, 1e-3, 1e-3),
        (published, 4e-2, 2.43e-2),
        (published.but(training={"batch_size": 32}), 3e-2, 1e-3),
    ):
        metrics = forecast_metrics(name, mse=mse)
        write_run(tmp_path, name, scale=made.scale, recipe=made, metrics=metrics, val_loss=loss)
    assert runs.best(results.load(tmp_path)).splitlines() == [
        "| Table 1: Translating MNIST, V^T_2, test MSE | paper | ours | ours / paper | trained "
        "| seeds | time |",
        "|---|--:|--:|--:|---|--:|--:|",
        "| G-RNN | 8.1e-3 ± 6e-4 | 2.43e-2 | 3.00 | paper, 4 epochs | 1 of 5 | 2.0 h |",
        "| G-RNN | 8.1e-3 ± 6e-4 | 1.62e-2 | 2.00 | short, 4 epochs, batch size 32 | 1 | 2.0 h |",
        "",
        "<sub>bf16-mixed; Invented GPU, torch 9.9, 2000-01-01, commit 0000000</sub>",
    ]


def test_what_validates_best_is_judged_by_the_mean_over_seeds(tmp_path):
    name, recipe = "table1/translation/grnn", find("table1/translation/grnn", "short")
    better = recipe.but(training={"batch_size": 32})
    for made, losses in ((recipe, (1e-3, 9e-3)), (better, (2e-3, 4e-3))):
        for seed, loss in enumerate(losses):
            about = {"metrics": forecast_metrics(name)}
            write_run(tmp_path, name, recipe=made, seed=seed, val_loss=loss, **about)
    shown = runs.best(results.load(tmp_path))
    assert "| short, 4 epochs, batch size 32 | 2 | 2.0 h |" in shown
    assert "| short, 4 epochs |" not in shown
    every = runs.trained(results.load(tmp_path))
    assert "| 5.00e-3 | short, 4 epochs | 2 of 5 |" in every
    assert "| 3.00e-3 | short, 4 epochs, batch size 32 | 2 |" in every


def test_readme_shows_larger_runs(tmp_path):
    names = [f"table1/translation/{end}" for end in ("grnn", "fernn-v2-transported")]
    assert runs.trained(results.load(tmp_path)).startswith("No run at the scales")
    write_run(tmp_path, names[0], scale="quick", metrics=forecast_metrics(names[0], "quick"))
    assert runs.trained(results.load(tmp_path)).startswith("No run at the scales")
    environment = ENVIRONMENT | {"dirty": True}
    for name, mse in zip(names, (8.1e-3, 3e-4), strict=True):
        metrics = forecast_metrics(name, mse=mse)
        write_run(tmp_path, name, metrics=metrics, environment=environment)
    lines = runs.trained(results.load(tmp_path)).splitlines()
    assert lines[2:4] == [
        "| G-RNN | 8.1e-3 ± 6e-4 | 8.10e-3 | 1.00 | 2.50e-1 | short, 4 epochs | 1 of 5 | 2.0 h |",
        "| FERNN-V^T_2, transported | 1.5e-4 ± 2e-5 | 3.00e-4 | 2.00 | 2.50e-1 | short, 4 epochs "
        "| 1 of 5 | 2.0 h |",
    ]
    origin = "Invented GPU, torch 9.9, 2000-01-01, commit 0000000 and changes"
    assert lines[-1] == f"<sub>bf16-mixed; {origin}</sub>"
    fewer = find("table1/translation/fernn-v1", "short").but(training={"epochs": 3})
    write_run(tmp_path, fewer.name, recipe=fewer, metrics=metrics, environment=environment)
    shown = runs.trained(results.load(tmp_path))
    assert "| FERNN-V^T_1 | 5.3e-4 ± 8e-5 | 3.00e-4 | 0.57 | 2.50e-1 | short, 4 epochs |" in shown
    again = forecast_metrics(names[0], "paper", mse=8e-3)
    write_run(tmp_path, names[0], scale="paper", metrics=again, environment=environment)
    shown = runs.trained(results.load(tmp_path))
    assert "| hardware |" not in shown
    rows = shown.splitlines()[2:6]
    assert [row.split("|")[6].split(",")[0].strip() for row in rows] == ["paper", *["short"] * 3]
    other = "table1/translation/grnn-transported"
    write_run(tmp_path, other, metrics=metrics, environment=environment, precision="tf32")
    shown = runs.trained(results.load(tmp_path))
    assert "| seeds | hardware | time |" in shown
    assert "| 1 of 5 | Invented GPU, tf32 | 2.0 h |" in shown
    assert shown.endswith(f"<sub>{origin}</sub>")


def test_readme_shows_every_table_that_has_runs(tmp_path):
    for name, metrics in (
        ("table4/grnn", forecast_metrics("table4/grnn")),
        ("table2/actions/fernn-v1", {"accuracy": 0.5, "dataset": "acted"}),
        ("wrapper/convgru", forecast_metrics("wrapper/convgru")),
    ):
        write_run(tmp_path, name, metrics=metrics)
    stand_in, bouncing, wrapper = runs.trained(results.load(tmp_path)).split("</sub>\n\n")
    assert stand_in.startswith("| Table 2, not on KTH: Moving clips, V^T_2, test accuracy | ours |")
    assert "| FERNN-V^T_1 | 0.5" in stand_in
    assert "paper" not in stand_in.splitlines()[0]
    assert bouncing.startswith("| Table 4: Bouncing MNIST, V^T_2, test MSE | paper |")
    assert wrapper.startswith("| Beside the paper: Translating MNIST V^T_2, test MSE | ours |")


def test_readme_shows_a_run_whose_error_is_not_finite(tmp_path):
    name = "table1/rotation/grnn"
    write_run(tmp_path, name, metrics={"test_mse": None})
    shown = runs.trained(results.load(tmp_path))
    assert "| G-RNN | 4.0e-3 ± 5e-4 | not finite | – | 2.50e-1 | short" in shown


def test_a_published_run_finds_its_weights_in_the_package(tmp_path):
    found = results.load(readme.ROOT / "results" / "short")
    for name in ("table1/translation/grnn", "table1/rotation/fernn-v4-comoving-transported"):
        (run,) = (r for r in found.every if r.name == name and r.weights)  # of all trainings, one
        about = json.loads(run.weights.with_suffix(".json").read_text(encoding="utf-8"))
        assert (about["name"], about["metrics"]) == (name, run.metrics)
        again = results.Result(run.folder, run.record | {"wall_seconds": 1.0})  # another run of it
        assert again.weights is None
        (tmp_path / "best.safetensors").touch()
        if "best_sha256" in run.record:  # then other weights in its folder are not its own
            assert results.Result(tmp_path, run.record).weights == run.weights
        digest = hashlib.sha256(b"").hexdigest()
        kept = results.Result(tmp_path, run.record | {"best_sha256": digest})
        assert kept.weights == tmp_path / "best.safetensors"


def test_results_name_what_is_left_as_the_records_have_it():
    found = results.load(readme.ROOT / "results")
    record = json.loads(left.LEFT.read_text(encoding="utf-8"))
    assert list(record["families"]) == list(left.FAMILIES)
    plain = []
    for family, about in record["families"].items():
        names, settings = left.members(family), left.FAMILIES[family][1]
        assert about["recipes"] == len(names) > 0
        plain += [] if settings else names
        for scale in left.SCALES[: 1 if settings else None]:
            lacking = {}
            for name in names:
                seeds = changed(find(name, scale), settings).seeds
                have = {
                    run.seed
                    for run in (found.changed if settings else found.found)
                    if (run.name, run.scale) == (name, scale) and set(run.changes) == set(settings)
                }
                lacking[name] = (seeds - len(have), seeds)
            assert {name: (row["seeds"], row["of"]) for name, row in about[scale].items()} == {
                name: counts for name, counts in lacking.items() if counts[0]
            }
    assert sorted(plain) == sorted(name for name in recipes() if not name.startswith("runtime/"))
    assert record["environment"]["dirty"] is False


def test_left_tells_how_long_and_what_was_never_timed():
    def lacks(seeds, seconds, timed=True):
        return {"seeds": seeds, "of": 3, "seconds": seconds, "timed": timed}

    families = {
        "A": {"recipes": 2, "short": {"a": lacks(2, 60.0)}, "paper": {"a": lacks(3, 3600.0)}},
        "B": {"recipes": 3, "short": {"b": lacks(3, 60.0, timed=False)}},
        "C": {"recipes": 1, "short": {}, "paper": {}},
    }
    assert left.table({"families": families, "environment": ENVIRONMENT}).splitlines()[2:4] == [
        "| A | – | 2 runs, 2.0 min | 1 run, 1.0 h | 3 runs, 3.0 h |",
        "| B | 1 run, at least 1.0 min | 3 runs, at least 3.0 min | – | – |",
    ]
    assert left._sequences(find("table1/translation/fernn-v1", "short")) == 10 * 54_000
    assert left._sequences(find("table2/kth/fernn-v2", "short")) == 50 * 1_517


def test_left_counts_the_seeds_that_have_no_run(tmp_path, monkeypatch):
    name = "table2/actions/cnn3d"
    for seed in (0, 2):
        write_run(tmp_path, name, seed=seed, metrics=clip_metrics("acted"))
    monkeypatch.setattr(left, "RUNS", tmp_path)
    monkeypatch.setattr(left, "FAMILIES", {"Clips": (f"{name}$", ())})
    found = left.count()["families"]["Clips"]
    lacking = {
        scale: (found[scale][name]["seeds"], found[scale][name]["of"]) for scale in left.SCALES
    }
    assert lacking == {"short": (1, 3), "paper": (3, 3)}


def test_left_takes_the_fastest_run_of_a_kind_that_the_benchmark_does_not_time():
    found = results.load(readme.ROOT / "results")
    runs = found.named("table2/actions/cnn3d", "short")
    rates = left.rates_of_runs(found.every)
    assert len(runs) == 3
    assert rates["CNN3D"] == max(
        run.record["flops_per_sequence"] * run.record["sequences_per_second"] for run in runs
    )
    on_a_cpu = [results.Result(r.folder, r.record | {"device": "cpu"}) for r in runs]
    assert left.rates_of_runs(on_a_cpu) == {}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (drift.DRIFT, drift.NAMES),
        (apart.APART, apart.NAMES),
        (apart.OBSERVED, apart.NAMES[-1:]),
        (seen.SEEN, pretrained()),
        (far.FAR, pretrained()),
    ],
)
def test_records_of_pretrained_models_are_of_the_weights_in_the_package(path, names):
    kept = json.loads(path.read_text(encoding="utf-8"))["weights"]
    assert kept == {name: pretrained_record(name)["weights"]["sha256"] for name in names}


def test_apart_has_the_error_of_each_sequence_and_how_its_digits_part():
    name = "translating-mnist/grnn"
    made = apart.run(name, None, count=3)
    errors = pretrained_record(name)["check"]["sequence_mse"][:3]
    assert [one["mse"] for one in made] == pytest.approx(errors, rel=1e-4)
    digits = FlowingMNIST(Translation(radius=2), "test").batch(range(3), epoch=0).velocities
    assert [one["apart"] for one in made] == [
        max(abs(a - b) for a, b in zip(*pair, strict=True)) for pair in digits.tolist()
    ]
    longer = apart.run(name, None, count=3, observed=12)  # the same digits, seen for longer
    assert [one["apart"] for one in longer] == [one["apart"] for one in made]
    assert [one["mse"] for one in longer] != [one["mse"] for one in made]


def test_seen_has_the_error_of_each_sequence_from_fewer_frames():
    name = "translating-mnist/grnn"
    errors = seen.run(name, None, observed=10, count=3)
    assert errors == pytest.approx(pretrained_record(name)["check"]["sequence_mse"][:3], rel=1e-4)
    assert min(seen.run(name, None, observed=1, count=3)) > max(errors)
    by_frames = {str(frames): [1e-3, 3e-3] for frames in seen.FRAMES}
    record = {"sequences": {"a/b": by_frames}, "digits": "X", "environment": ENVIRONMENT}
    (_, _, row, *_) = seen.table(record).splitlines()
    assert row == "| `a/b` |" + " 2.0e-03 |" * len(seen.FRAMES)


def test_far_has_the_error_of_each_sequence_at_each_step():
    name = "translating-mnist/grnn"
    rounded = []
    found = far.errors(
        name,
        None,
        count=3,
        progress=lambda *told: rounded.append(torch.backends.cudnn.allow_tf32),
    )
    assert not any(rounded)  # float32 is not cut to ten bits on a GPU
    assert found.shape == (3, 70)
    errors = pretrained_record(name)["check"]["sequence_mse"][:3]
    assert found[:, :10].mean(1).tolist() == pytest.approx(errors, rel=1e-4)


def test_far_sums_up_with_an_interval():
    found = torch.zeros(400, 70, dtype=torch.float64)
    found[:, 9], found[::4, 59] = 2.0, 16.0  # so 4 at step 60, in one sequence of four
    made = far.summary(found)
    assert made["mean"]["60"] == 4.0
    assert made["median"]["60"] == 0.0
    assert made["standard_error"]["60"] == pytest.approx((48 / 399) ** 0.5)
    assert made["ratio"] == 2.0
    low, high = made["interval"]  # of a binomial: 2 ± 1.96 · 8 · (1/4 · 3/4 / 400)^½
    assert (low, high) == pytest.approx((1.66, 2.34), abs=0.04)
    record = {"errors": {"a/b": made}, "digits": "X", "environment": ENVIRONMENT}
    (_, _, row, *_) = far.table(record).splitlines()
    assert row.startswith("| `a/b` | 2.00e+00 ± 0 | 4.00e+00 ± 3.5e-01 |")
    assert row.endswith("| 2.0 | 1.7 to 2.3 | 2.0e+00 | 0 |")


def test_naive_forecasts_are_the_best_of_their_kind(monkeypatch):
    few = find("table4/grnn").but(data={"test_size": 40})  # more than one batch
    monkeypatch.setattr(naive, "find", lambda name: few)
    errors = naive.errors(few.name, None, lambda *told: None)
    data = TestData(few)
    frames = torch.cat([batch.frames for batch in data.batches(data.videos())]).double()
    ahead = frames[:, 10:]
    assert errors["one grey"] == pytest.approx(float(ahead.var(correction=0)))
    picture = ahead.mean((0, 1), keepdim=True)
    assert errors["one picture"] == pytest.approx(float((ahead - picture).square().mean()))
    again = (ahead - frames[:, 9:10]).square().mean()
    assert errors["the last frame"] == pytest.approx(float(again))
    assert errors["one picture"] < errors["one grey"] < errors["the last frame"]


def test_apart_sums_up_by_speed():
    one = [{"apart": 2, "mse": 3e-3}, {"apart": 0, "mse": 1e-3}, {"apart": 2, "mse": 5e-3}]
    record = {"sequences": {"a/b": one}, "digits": "X", "environment": ENVIRONMENT}
    lines = apart.table(record).splitlines()
    assert lines[0].endswith("| sequences | b, mean | b, median | b, largest |")
    assert lines[2:5] == [
        "| 0 | 1 | 1.0e-03 | 1.0e-03 | 1.0e-03 |",
        "| 2 | 2 | 4.0e-03 | 4.0e-03 | 5.0e-03 |",
        "| any | 3 | 3.0e-03 | 3.0e-03 | 5.0e-03 |",
    ]


def test_drift_observes_every_piece_before_the_next(monkeypatch):
    monkeypatch.setattr(drift, "HORIZON", 5)
    seen = torch.zeros(1, 2, 1, 1, 1)
    made = drift._anew(lambda past, frames: past[:, -frames:] + 1, seen)
    assert made.flatten().tolist() == [1, 1, 2, 2, 3]


def test_drift_has_every_form_and_step(monkeypatch):
    monkeypatch.setattr(drift, "SEQUENCES", 1)
    monkeypatch.setattr(drift, "HORIZON", 3)
    made = drift.run("translating-mnist/fernn-v2", None)
    forms = ["float32", "bfloat16", "float32, true frames", "float32, observed anew"]
    assert list(made) == forms
    float32, rounded, fed, anew = made.values()
    assert len(float32) == len(rounded) == len(fed) == len(anew) == 3
    assert anew == pytest.approx(float32, rel=1e-4)  # within the first piece
    assert float32[0] == pytest.approx(fed[0], rel=1e-4)  # no forecast has been fed back yet
    assert float32[2] != pytest.approx(fed[2], rel=1e-4)
    apart = abs(rounded[0] ** 0.5 - float32[0] ** 0.5)
    assert 0 < apart < 2**-10  # bright pixels are rounded by up to 2⁻⁹


def test_readme_names_the_frame_of_weights_that_are_not_as_published():
    record = json.loads(Path(readme.ROOT, "results/pretrained-verification.json").read_text())
    lines = readme.pretrained(record).splitlines()
    shown = {line.split("|")[1].strip(" `"): line.split("|")[2].strip() for line in lines[2:6]}
    for name, label in shown.items():
        options = readme.pretrained_record(name)["recipe"]["options"]
        assert ("co-moving" in label) == (options.get("frame") == "comoving")
        assert options["readout"] in label
    assert sum("co-moving" in label for label in shown.values()) == 1


def test_results_count_the_models_of_figure_6():
    folder = Path(readme.ROOT, "results")
    runs = [run for run in results.load(folder / "short").found if run.name.startswith("fig6/")]
    words = {1: "one", 3: "three", 7: "seven", 11: "eleven"}
    *most, last = (words[n] for n in sorted({len(find(run.name).options["flow"]) for run in runs}))
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert f"of models with {', '.join(most)} and {last} velocities](short/figures/" in text


def test_code_that_git_does_not_know_counts_as_a_change(tmp_path, monkeypatch):
    room = tmp_path / "fernn" / "experiments"
    room.mkdir(parents=True)
    (room / "records.py").touch()
    (tmp_path / "notes.txt").touch()  # not of the package
    git = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "fernn"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(records, "__file__", str(room / "records.py"))
    monkeypatch.delenv("FERNN_COMMIT", raising=False)
    assert records.environment()["dirty"] is False
    (tmp_path / "fernn" / "unseen.py").touch()
    assert records.environment()["dirty"] is True


def test_a_package_below_another_checkout_has_no_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    commit = ["commit", "-q", "--allow-empty", "-m", "another's"]
    subprocess.run(["git", "-C", tmp_path, *who, *commit], check=True)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    monkeypatch.delenv("FERNN_COMMIT", raising=False)
    assert records.environment()["commit"] is None
