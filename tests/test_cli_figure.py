"""`fernn figure --set`: the figures of runs that were trained otherwise."""

import pytest
from drawn import draw
from synthetic import forecast_metrics, write_run
from typer.testing import CliRunner

from fernn import cli
from fernn.experiments import records, results, runs, search
from fernn.experiments.recipes import changed, find

FERNN = "table1/translation/fernn-v2"


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words])


COMMAND = "fernn figure {} --scale short"
SETS = ("training.batch_size=32", "training.clip=0.1")


def drawn(invoke, number, folder, *settings):
    """What `fernn figure --set …` answered, and the picture it drew."""
    out = folder / "picture.svg"
    out.unlink(missing_ok=True)
    words = [word for setting in settings for word in ("--set", setting)]
    result = invoke("figure", number, "--runs", folder, "--out", out, *words)
    return result, out.read_text(encoding="utf-8") if out.exists() else ""


def test_figure_of_runs_trained_otherwise_names_what_was_set(tmp_path, invoke):
    plain = find(FERNN, "short")
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    for made in (SETS, SETS[:1]):
        write_run(tmp_path, FERNN, recipe=changed(plain, made), metrics=forecast_metrics(FERNN))
    assert not any(setting in drawn(invoke, 3, tmp_path)[1] for setting in SETS)
    result, picture = drawn(invoke, 3, tmp_path, *reversed(SETS))  # in any order
    assert result.exit_code == 0, result.output
    assert all(setting in picture for setting in SETS)
    assert "1 seed," in picture  # of this run alone
    about = f"--scale short --data FOLDER --precision bf16-mixed --out {tmp_path}"
    about += "".join(f" --set {setting}" for setting in reversed(SETS))
    names = ("table1/translation/grnn", "table1/translation/fernn-v1")
    ways = " && ".join(f"fernn train {name} {about}" for name in names)
    assert f"to get it: {ways} && " in result.output
    _, picture = drawn(invoke, 3, tmp_path, SETS[0])
    assert SETS[0] in picture
    assert SETS[1] not in picture
    with pytest.raises(FileNotFoundError, match=r"--scale short .*--set training\.clip=7"):
        raise drawn(invoke, 3, tmp_path, "training.clip=7")[0].exception


def test_figure_names_what_was_set_in_runs_that_it_does_not_draw(tmp_path, invoke):
    variant = f"{FERNN}-transported"
    recipe = changed(find(variant, "short"), SETS)
    write_run(tmp_path, variant, recipe=recipe, metrics=forecast_metrics(FERNN))
    for other in ("options.kernel_size=5", "training.epochs=3"):
        name = FERNN if other.startswith("options") else "table4/fernn-v2"
        recipe = changed(find(name, "short"), [other])
        write_run(tmp_path, name, recipe=recipe, metrics=forecast_metrics(name))
    way = "fernn figure 3 --scale short --set training.batch_size=32 --set training.clip=0.1"
    told = str(drawn(invoke, 3, tmp_path)[0].exception).splitlines()
    hints = [line for line in told if "trained otherwise" in line]
    assert hints == [f"  trained otherwise: {way} --runs {tmp_path} --out {tmp_path}/picture.svg"]
    result, _ = drawn(invoke, 3, tmp_path, *SETS)
    assert result.exit_code == 0
    assert "trained otherwise" not in result.output


def test_too_few_settings_name_first_the_runs_that_have_them_and_more(tmp_path, invoke):
    for made in (("training.batch_size=16",), SETS):
        recipe = changed(find(FERNN, "short"), made)
        write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    told = str(drawn(invoke, 3, tmp_path, SETS[1])[0].exception).splitlines()[1:]
    asked, other, train = told[-3:]
    assert all(line.startswith("  missing: ") for line in told[:-3])
    assert asked.startswith(
        f"  trained otherwise: {COMMAND.format(3)} --set {' --set '.join(SETS)} "
    )
    assert other.startswith(
        f"  trained otherwise: {COMMAND.format(3)} --set training.batch_size=16 "
    )
    assert train.startswith("  to get it: fernn train ")


def test_frames_of_digits_that_are_not_there_speak_of_the_option(tmp_path, invoke):
    recipe = find(FERNN, "short")
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN), model=recipe.build())
    words = ("--runs", tmp_path, "--data", tmp_path / "none", "--out", tmp_path / "a.svg")
    assert str(invoke("figure", "14", *words).exception).startswith("`--data` must be a folder")


def test_frames_without_weights_name_first_the_runs_that_have_them(tmp_path, invoke):
    for made in ((), ("training.batch_size=16",), SETS):
        recipe = changed(find(FERNN, "short"), made)
        model = recipe.build() if made == SETS else None
        write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN), model=model)
    data, out = tmp_path / "my digits", tmp_path / "four.svg"
    result = invoke("figure", "4", "--runs", tmp_path, "--data", data, "--out", out)
    about = f"--data '{data}' --out"
    sets = f"--set {' --set '.join(SETS)}"
    *_, lost, kept, otherwise, way = result.output.splitlines()
    assert lost == f"no frames: the weights of {FERNN} were not kept"
    assert kept == f"runs with weights: {COMMAND.format(4)} {sets} --runs {tmp_path} {about} {out}"
    assert otherwise.startswith(
        f"trained otherwise: {COMMAND.format(4)} --set training.batch_size=16 "
    )
    like = f"--scale short --data '{data}' --precision bf16-mixed --out"
    again = f"fernn reproduce {FERNN} {like} ANOTHER-FOLDER; or, where you have it"
    assert way.startswith("to get it: fernn reproduce table1/translation/grnn ")
    assert f"{like} {tmp_path}; {again}, copy best.safetensors beside" in way
    picture = " ".join(out.read_text(encoding="utf-8").split())
    assert f"the weights of {FERNN} were not kept" in picture


def test_lost_weights_are_trained_again_at_the_scale_of_their_runs(tmp_path, invoke):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    other = "table4/grnn"
    write_run(tmp_path, other, scale="paper", metrics=forecast_metrics(other, "paper"))
    result = invoke("figure", "14", "--runs", tmp_path, "--out", tmp_path / "a.png")
    assert isinstance(result.exception, FileNotFoundError)
    assert "to get it: fernn reproduce " in str(result.exception)
    assert "--scale short" in str(result.exception)
    assert "--scale paper" not in str(result.exception)


def test_figure_takes_a_plain_run_that_was_trained_so_anyway(tmp_path, invoke):
    rotating = "table1/rotation/fernn-v4"
    assert find(rotating, "short").training.batch_size == 32
    write_run(tmp_path, rotating, metrics=forecast_metrics(rotating))
    result, picture = drawn(invoke, 3, tmp_path, SETS[0])
    assert "1 seed," in picture, result.output
    assert "missing: table1/rotation/{grnn, fernn-v2}" in result.output


def test_figure_compares_with_the_recipe_and_not_with_the_chosen_rate(tmp_path, invoke):
    plain, epochs = find(FERNN, "short"), "training.epochs=3"
    runs.home(tmp_path, plain).mkdir(parents=True)
    records.write(runs.home(tmp_path, plain) / search.CHOICE, {"learning_rate": 5e-4})
    for rate in ((), ("training.learning_rate=0.0005",)):
        recipe = changed(plain, [epochs, *rate])
        write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    known = str(drawn(invoke, 3, tmp_path)[0].exception)
    for settings in ((epochs,), (epochs, "training.learning_rate=0.0005")):
        sets = " ".join(f"--set {setting}" for setting in settings)
        assert f"trained otherwise: fernn figure 3 --scale short {sets} --runs" in known
        result, picture = drawn(invoke, 3, tmp_path, *settings)
        assert "1 seed," in picture, result.output


@pytest.mark.parametrize("number", ["12", "14"])
def test_strips_name_what_was_set(number, tmp_path, invoke):
    recipe, epochs = find(FERNN, "quick"), "training.epochs=7"
    for made in (recipe, changed(recipe, [epochs])):
        write_run(tmp_path, FERNN, scale="quick", recipe=made, model=made.build(), metrics={})
    assert epochs not in drawn(invoke, number, tmp_path)[1]
    result, picture = drawn(invoke, number, tmp_path, epochs)
    assert epochs in picture, result.output


@pytest.mark.parametrize(
    ("number", "setting", "words"),
    [
        ("3", "training.batch=7", r"Did you mean training\.batch_size\?"),
        ("3", "nonsense", "key=value"),
        ("3", "options.kernel_size=5", "must be of training"),
        *((number, SETS[0], "must be left out") for number in ("2", "7", "9", "10")),
    ],
)
def test_figure_refuses_settings_that_no_run_could_have(number, setting, words, tmp_path, invoke):
    result, picture = drawn(invoke, number, tmp_path, setting)
    assert not picture
    with pytest.raises(ValueError, match=words):
        raise result.exception


def test_figure_counts_training_steps_in_whole_numbers(tmp_path):
    first = {"step": 200, "epoch": 1, "train_loss": 1.0, "val_loss": 1.0}
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN), curve=[first])
    (axes,) = draw("3", results.load(tmp_path)).axes
    assert 200 in axes.get_xticks()
    assert all(tick == round(tick) for tick in axes.get_xticks())
