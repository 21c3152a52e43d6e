"""Tables: the paper's numbers are its own, ours come from records, and nothing is mixed."""

import io
import json

import pytest
from rich.console import Console
from synthetic import clip_metrics, forecast_metrics, write_run

from fernn.experiments import figures, paper, render, results, tables, tabular
from fernn.experiments.recipes import changed, find, recipes

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"


def cells(table, model, scale="short"):
    (row,) = [r for r in table.rows if r.cells[0] == model and r.data["scale"] == scale]
    return dict(zip(table.columns, row.cells, strict=True))


def text(table, width=120):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render.to_rich(table))
    return console.export_text()


def test_paper_values_are_those_of_the_recipes():
    known = recipes()
    for value in paper.VALUES:
        published = known[value.recipe].published
        assert (published.mean, published.spread) == (value.mean, value.spread), value.recipe
    reported = {name for name, recipe in known.items() if recipe.published.mean is not None}
    assert {paper.base(name) for name in reported} == {value.recipe for value in paper.VALUES}


def test_paper_has_every_row_of_every_table():
    counts = {key: len(paper.rows(key)) for key in ("1", "2", "3", "4", "5", "larger")}
    assert counts == {"1": 6, "2": 5, "3": 5, "4": 3, "5": 5, "larger": 2}


def test_table_of_nothing_is_all_missing():
    for key in tables.KEYS:
        table = tables.table(key, results.Results(()))
        assert not table.measured
        if key != tables.COST:
            assert {row.cells[table.columns.index("ours")] for row in table.rows} == {"missing"}
            assert table.rows


def test_table_has_mean_spread_and_ratio_over_seeds(tmp_path):
    for seed, (mse, precision) in enumerate(((1e-4, "bf16-mixed"), (3e-4, "32-true"))):
        metrics = forecast_metrics(FERNN, mse=mse)
        write_run(tmp_path, FERNN, seed=seed, metrics=metrics, precision=precision)
    table = tables.table("1", results.load(tmp_path))
    row = cells(table, "FERNN-V^T_2")
    assert row["paper"] == "1.5e-4 ± 2e-5"
    assert row["ours"] == "2.00e-4 ± 1.4e-4"
    assert row["ours / paper"] == "1.33"
    assert row["seeds"] == "2 of 5"
    assert (row["epochs"], row["hardware"]) == ("4", "Invented GPU")
    assert row["precision"] == "32-true, bf16-mixed"  # seeds in two of them are seen to be
    assert cells(table, "FERNN-V^T_1")["ours"] == "missing"
    assert render.heading(table).startswith("Table 1, scale short: ")


def test_table_keeps_scales_apart_and_quick_has_no_ratio(tmp_path):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN, mse=1e-4))
    metrics = forecast_metrics(FERNN, "quick", mse=5e-3)
    write_run(tmp_path, FERNN, scale="quick", metrics=metrics)
    write_run(tmp_path, f"{FERNN}-transported", scale="quick", metrics=metrics)
    short, quick = tables.by_scale("1", results.load(tmp_path))  # the larger scale comes first
    assert [row.data["scale"] for row in short.rows] == ["short"] * 6
    assert [row.data["scale"] for row in quick.rows] == ["quick"] * 7
    assert cells(short, "FERNN-V^T_2")["ours"] == "1.00e-4"
    row = cells(quick, "FERNN-V^T_2", "quick")
    assert (row["ours"], row["ours / paper"], row["seeds"]) == ("5.00e-3", "–", "1 of 1")
    # A row that is missing asks for as many seeds as its scale does.
    assert cells(short, "FERNN-V^T_1")["seeds"] == "0 of 5"
    assert cells(quick, "FERNN-V^T_1", "quick")["seeds"] == "0 of 1"
    assert tables.by_scale("1", results.load(tmp_path), scale="quick") == [quick]
    assert tables.table("1", results.load(tmp_path)) == short
    rows = json.loads(render.to_json(short, quick))["rows"]
    assert [row["scale"] for row in rows] == ["short"] * 6 + ["quick"] * 7
    costs = tables.by_scale("cost", results.load(tmp_path))
    assert [(table.scale, len(table.rows)) for table in costs] == [("short", 1), ("quick", 2)]


def test_table_shows_variants_below_their_row(tmp_path):
    name = f"{FERNN}-transported"
    write_run(tmp_path, name, metrics=forecast_metrics(FERNN, mse=1e-4))
    models = [row.cells[0] for row in tables.table("1", results.load(tmp_path)).rows]
    assert models[2:4] == ["FERNN-V^T_2", "FERNN-V^T_2, transported"]


def test_table_variant_that_the_paper_does_not_have_shows_no_paper_value(tmp_path):
    name = "table4/fernn-v2-mixing-near"
    write_run(tmp_path, name, metrics=forecast_metrics(name, mse=1e-2))
    table = tables.table("4", results.load(tmp_path))
    row = cells(table, "FERNN-V^T_2 + V-mixing, near")
    assert (row["paper"], row["ours / paper"]) == ("–", "–")
    assert row["ours"] == "1.00e-2"


def test_table_never_puts_a_stand_in_beside_kth(tmp_path):
    write_run(tmp_path, "table2/actions/grnn", metrics=clip_metrics("mocap_actions", 0.75))
    # A recipe on KTH that was somehow given other clips is not a result on KTH either.
    write_run(tmp_path, "table2/kth/grnn", metrics=clip_metrics("mocap_actions", 0.25))
    write_run(tmp_path, "table2/kth/grnn", seed=1, metrics=clip_metrics("kth", 0.5))
    found = results.load(tmp_path)
    kth, other = tables.table("2", found), tables.table("2-actions", found)
    assert cells(kth, "G-RNN")["ours"] == "0.500"
    assert cells(other, "G-RNN")["ours"] == "0.750"
    assert "paper" not in other.columns
    assert all(row.data["paper"] is None and row.data["ratio"] is None for row in other.rows)
    assert "0.665" not in render.to_markdown(other) + text(other) + render.to_html(other)


def test_table_of_other_sequence_models_is_not_beside_the_paper(tmp_path):
    for name, mse in (("wrapper/convgru", 6e-2), ("wrapper/convgru-flow", 1e-2)):
        write_run(tmp_path, name, metrics=forecast_metrics(name, mse=mse))
    table = tables.table("wrapper", results.load(tmp_path))
    assert "paper" not in table.columns
    assert [row.cells[:3] for row in table.rows] == [
        ("ConvGRU", "6.00e-2", "1 of 3"),
        ("ConvGRU in moving frames", "1.00e-2", "1 of 3"),
        ("attention", "missing", "0 of 3"),
        ("attention in moving frames", "missing", "0 of 3"),
    ]


def test_table_of_a_stand_in_names_its_clips(tmp_path):
    about = {"data": "glimpses", "data_sha256": "a" * 64}
    write_run(tmp_path, "table2/actions/grnn", metrics=clip_metrics("glimpses", 0.75), **about)
    assert "data: glimpses" in tables.table("2-actions", results.load(tmp_path)).folded().notes
    about["data_sha256"] = "b" * 64  # made again, by the same name
    metrics = clip_metrics("glimpses", 0.5)
    write_run(tmp_path, "table2/actions/fernn-v1", metrics=metrics, **about)
    table = tables.table("2-actions", results.load(tmp_path)).folded()
    assert [row.cells[-1] for row in table.rows if row.data["n"]] == [
        "glimpses (aaaaaaa)",
        "glimpses (bbbbbbb)",
    ]


def test_table_names_numbers_that_are_not(tmp_path):
    folder = write_run(tmp_path, FERNN, metrics={"test_mse": float("nan")})
    assert json.loads((folder / "record.json").read_text())["metrics"] == {"test_mse": None}
    write_run(tmp_path, GRNN, metrics={})
    table = tables.table("1", results.load(tmp_path))
    assert cells(table, "FERNN-V^T_2")["ours"] == "not finite"
    assert cells(table, "FERNN-V^T_2")["seeds"] == "0 of 5"
    assert table.measured
    write_run(tmp_path, FERNN, seed=1, metrics=forecast_metrics(FERNN, mse=1e-4))
    table = tables.table("1", results.load(tmp_path))
    assert cells(table, "FERNN-V^T_2")["ours"] == "1.00e-4"
    assert "FERNN-V^T_2: no finite number, so in no mean, seed 0" in table.notes
    assert "FERNN-V^T_2: no seed 2, 3, 4" in table.notes


def test_figures_ignore_losses_that_are_not(tmp_path):
    nothing = [{"step": step, "epoch": step, "val_loss": None} for step in (1, 2)]
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    write_run(tmp_path, GRNN, metrics=forecast_metrics(GRNN), curve=nothing)
    missing = figures.panels("3", results.load(tmp_path))[0].missing
    assert GRNN in missing
    assert FERNN not in missing


def test_load_leaves_out_what_it_cannot_trust_and_says_so(tmp_path):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    longer = find(FERNN, "short").but(training={"epochs": 99})
    write_run(tmp_path, FERNN, seed=1, recipe=longer, metrics=forecast_metrics(FERNN))
    broken = tmp_path / "broken" / "record.json"
    broken.parent.mkdir()
    broken.write_text("{", encoding="utf-8")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "record.json").write_text("[]", encoding="utf-8")
    found = results.load(tmp_path)
    assert [result.seed for result in found.found] == [0]
    assert len(found.left_out) == 2
    assert [result.changes for result in found.changed] == [("training.epochs=99",)]
    assert any(str(broken) in reason for reason in found.left_out)


def test_load_accepts_records_from_before_a_setting_existed(tmp_path):
    folder = write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    del record["recipe"]["data"]["val_size"]
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert len(results.load(tmp_path).found) == 1


def test_cost_table_has_what_training_costs(tmp_path):
    write_run(tmp_path, FERNN, metrics={}, wall_seconds=3600.0)
    write_run(tmp_path, FERNN, seed=1, metrics={}, peak_memory_bytes=None)
    (row,) = tables.table("cost", results.load(tmp_path)).rows
    assert row.cells == (
        FERNN, "1 234", "2", "50", "1.00", "1.5 h", "bf16-mixed", "Invented GPU",
    )  # fmt: skip


def test_cost_table_has_changed_recipes_below_the_plain(tmp_path):
    long = ["training.epochs=3", "training.batch_size=32", "training.learning_rate=0.0123"]
    for name, settings, seconds in (
        (FERNN, (), 3600.0),
        (FERNN, long, 60.0),
        (FERNN, long[:1], 120.0),
        (GRNN, long[:1], 180.0),  # without a plain run
        ("wrapper/convgru", (), 240.0),
    ):
        recipe = changed(find(name, "short"), settings)
        write_run(tmp_path, name, recipe=recipe, metrics={}, wall_seconds=seconds)
    again = changed(find(FERNN, "short"), long[:1])
    write_run(tmp_path, FERNN, seed=1, recipe=again, metrics={}, wall_seconds=240.0)
    table = tables.table("cost", results.load(tmp_path))
    assert [(row.section, row.cells[0], row.cells[5]) for row in table.rows] == [
        ("table1", f"{GRNN}, training.epochs=3", "3.0 min"),
        ("table1", FERNN, "1.0 h"),
        ("table1", f"{FERNN}, training.epochs=3", "3.0 min"),
        ("table1", f"{FERNN}, settings 1", "1.0 min"),
        ("wrapper", "wrapper/convgru", "4.0 min"),
    ]
    assert [row.data["recipe"] for row in table.rows] == [GRNN, *[FERNN] * 3, "wrapper/convgru"]
    assert [row.data["changes"] for row in table.rows[1:4]] == [(), (long[0],), (*long,)]
    assert table.settings == (f"settings 1: {', '.join(long)}",)


def test_renderings_hold_the_same_rows(tmp_path):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN, mse=1e-4))
    table = tables.table("1", results.load(tmp_path))
    markdown, page = render.to_markdown(table), render.to_html(table)
    plain = json.loads(render.to_json(table))
    assert len(plain["rows"]) == len(table.rows) == 6
    ours = [row["ours"] for row in plain["rows"]]
    assert ours.count(None) == 5
    assert {"mean": pytest.approx(1e-4), "spread": None} in ours
    (measured,) = [row for row in plain["rows"] if row["n"]]
    assert measured["ours_frame_sum"] == pytest.approx(1e-4 * 784)
    for shown in (markdown, page, text(table)):
        assert shown.count("1.00e-4") == 1
        assert shown.count("missing") >= 5
    # What is the same in every row stands below the table once, where space is short.
    assert "hardware" in markdown.splitlines()[2]
    assert "hardware: Invented GPU" in page
    assert "<th>hardware</th>" not in page
    assert all(len(line) <= 80 for line in text(table, width=80).splitlines())


def test_text_keeps_brackets_everywhere():
    row = tables.Row("a [bold] section", ("[red]model[/red]",), {"n": 1})
    shown = text(tables.Table("own", "runs in [new]", ("[x]",), (row,), ("on [GPU 0]",)))
    for word in ("runs in [new]", "a [bold] section", "[red]model[/red]", "[x]", "on [GPU 0]"):
        assert word in shown


def test_table_suggests_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean larger"):
        tables.table("larges", results.Results(()))
    with pytest.raises(ValueError, match=r"`scale` must be .* got 'papper'. Did you mean paper"):
        tables.table("1", results.Results(()), scale="papper")


@pytest.mark.parametrize(
    "change",
    [
        "options.kernel_size=5",
        "options.decoder_layers=4",
        "options.mixing=full",
        "options.flow=Translation(velocities=((0, 0),))",
        "data.test_flow=Translation(velocities=((0, 0),))",
    ],
)
@pytest.mark.parametrize("trained", [(), ("training.epochs=99",)])
def test_a_changed_model_or_task_is_no_row_of_the_paper(change, trained, tmp_path):
    recipe = changed(find(FERNN, "short"), [change, *trained])
    write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    found = results.load(tmp_path)
    assert found.found == ()
    assert [set(run.changes) for run in found.changed] == [{change, *trained}]
    table = tables.table("1", found)
    assert cells(table, "FERNN-V^T_2")["ours"] == "missing"
    (row,) = [row for row in table.rows if row.data["changes"]]
    assert table.rows[table.rows.index(row) - 1].cells[0] == "FERNN-V^T_2"
    assert row.data["paper"] is None
    assert row.data["ratio"] is None
    assert row.data["n"] == 1
    assert change in row.cells[0] or any(change in line for line in table.settings)


def test_a_changed_recipe_stands_below_its_baseline_with_its_own_seeds(tmp_path):
    longer = changed(find(FERNN, "short"), ["training.epochs=99"])
    for seed in (0, 1):
        write_run(tmp_path, FERNN, seed=seed, metrics=forecast_metrics(FERNN, mse=1e-3))
        mse = 1e-4 * (1 + seed)
        write_run(
            tmp_path, FERNN, seed=seed, recipe=longer, metrics=forecast_metrics(FERNN, mse=mse)
        )
    table = tables.table("1", results.load(tmp_path))
    below = cells(table, "FERNN-V^T_2, training.epochs=99")
    assert (below["ours"], below["seeds"]) == ("1.50e-4 ± 7.1e-5", "2")
    assert below["paper"] == cells(table, "FERNN-V^T_2")["paper"] == "1.5e-4 ± 2e-5"
    assert below["ours / paper"] == "1.00"
    assert cells(table, "FERNN-V^T_2")["ours"] == "1.00e-3 ± 0.0e0"
    assert all(len(line) <= 80 for line in text(table, width=80).splitlines())
    assert "training.epochs=99" in text(table, width=80)
    variant = changed(find(f"{FERNN}-transported", "short"), ["training.epochs=99"])
    write_run(tmp_path, variant.name, recipe=variant, metrics=forecast_metrics(FERNN))
    labels = [row.cells[0] for row in tables.table("1", results.load(tmp_path)).rows]
    assert labels[4:6] == [
        "FERNN-V^T_2, transported",
        "FERNN-V^T_2, transported, training.epochs=99",
    ]


def test_long_changes_are_numbered_and_noted(tmp_path):
    long = [
        f"training.epochs={n}, training.batch_size=32, training.learning_rate=0.003" for n in (3, 4)
    ]
    for changes in long:
        recipe = changed(find(FERNN, "short"), changes.split(", "))
        write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    write_run(
        tmp_path,
        GRNN,
        recipe=changed(find(GRNN, "short"), long[0].split(", ")),
        metrics=forecast_metrics(GRNN),
    )
    table = tables.table("1", results.load(tmp_path))
    assert cells(table, "G-RNN, settings 1")["seeds"] == "1"  # the same note
    for place in (1, 2):
        assert cells(table, f"FERNN-V^T_2, settings {place}")["seeds"] == "1"
    lines = (
        "all settings: training.batch_size=32, training.learning_rate=0.003",
        "settings 1: training.epochs=3",
        "settings 2: training.epochs=4",
    )
    assert table.settings == lines  # what they share is said once
    shown = [" ".join(line.split()) for line in text(table).splitlines()]
    assert shown[-3:] == list(lines)  # each has a line of its own, below the table
    assert render.to_markdown(table).endswith("\n\n- " + "\n- ".join(lines) + "\n")
    assert "<br>".join(("", *lines)) in render.to_html(table)
    assert json.loads(render.to_json(table))["notes"][-3:] == list(lines)


def test_settings_with_nothing_of_their_own_say_so():
    lines = tabular.settings_lines([("a=1", "b=1"), ("a=1",)])
    assert lines == ("all settings: a=1", "settings 1: b=1", "settings 2: nothing else")
    assert tabular.settings_lines([("a=1",)]) == ("settings 1: a=1",)
    assert tabular.settings_lines([]) == ()


def test_words_for_variants_are_explained_where_they_are_used(tmp_path):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    assert not any("reads out" in note for note in tables.table("1", results.load(tmp_path)).notes)
    turning = "table1/rotation/fernn-v4-comoving-transported"
    write_run(tmp_path, turning, metrics=forecast_metrics(turning))
    notes = tables.table("1", results.load(tmp_path)).notes
    assert [note.partition(":")[0] for note in notes[1:3]] == ["transported", "comoving"]


def test_a_ratio_stays_in_its_row_and_missing_seeds_are_named_below(tmp_path):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN, mse=3e-4))
    write_run(tmp_path, GRNN, scale="quick", metrics=forecast_metrics(GRNN, "quick", mse=5e-2))
    table = tables.table("1", results.load(tmp_path)).folded()
    assert cells(table, "FERNN-V^T_2")["ours / paper"] == "2.00"
    assert not any("ours / paper" in note for note in table.notes)
    assert "FERNN-V^T_2: no seed 1, 2, 3, 4" in table.notes
    assert "<sub>2</sub>: no seed 1, 2, 3, 4" in render.to_html(table)
    write_run(tmp_path, GRNN, metrics=forecast_metrics(GRNN))
    table = tables.table("1", results.load(tmp_path)).folded()
    assert [note for note in table.notes if "no seed" in note] == ["no seed 1, 2, 3, 4"]
    longer = changed(find(GRNN, "short"), ["training.epochs=99"])
    write_run(tmp_path, GRNN, recipe=longer, metrics=forecast_metrics(GRNN))
    table = tables.table("1", results.load(tmp_path)).folded()
    assert cells(table, "G-RNN, training.epochs=99")["seeds"] == "1"
    assert [note for note in table.notes if "no seed" in note] == ["no seed 1, 2, 3, 4"]
    write_run(tmp_path, GRNN, seed=1, metrics=forecast_metrics(GRNN))
    table = tables.table("1", results.load(tmp_path)).folded()
    assert [note for note in table.notes if "no seed" in note] == [
        "G-RNN: no seed 2, 3, 4",
        "FERNN-V^T_2: no seed 1, 2, 3, 4",
    ]
    quick = tables.table("1", results.load(tmp_path), scale="quick").folded()
    assert "ours / paper" not in quick.columns


def test_a_copy_of_a_run_and_a_seed_on_other_data_are_left_out(tmp_path):
    for folder, seed, data in (("a", 0, "MNIST"), ("a", 1, "digits"), ("b", 0, "MNIST")):
        run = write_run(
            tmp_path / folder, FERNN, seed=seed, metrics=forecast_metrics(FERNN, mse=3e-4)
        )
        record = json.loads((run / "record.json").read_text())
        (run / "record.json").write_text(json.dumps(record | {"data": data}))
    found = results.load(tmp_path)
    assert [r.seed for r in found.found] == [0]
    assert "is the same run as" in found.left_out[0]
    assert found.left_out[1].endswith("seed-1 is on digits, and seed 0 on MNIST")


def test_seeds_are_on_the_data_of_most_of_them_by_its_content(tmp_path):
    name = "table2/actions/grnn"
    for seed, (data, sha) in enumerate((("old", "a"), ("mine", "b"), ("copy", "b"), ("mine", "c"))):
        about = {"data": data, "data_sha256": sha}
        write_run(tmp_path, name, seed=seed, metrics=clip_metrics(data, 0.5), **about)
    found = results.load(tmp_path)
    assert [r.seed for r in found.found] == [1, 2]
    first, last = found.left_out
    assert first.endswith("seed-0 is on old, and seed 1 on mine")
    assert last.endswith("seed-3 is on other data of the name mine, and seed 1 on mine")
