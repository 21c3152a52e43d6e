"""`fernn verify --plot`: it shows what the verdict is of, and what it cannot do it says at once."""

import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

from fernn import FlowRNN, Forecaster, Translation, cli, save
from fernn.verify import sample_video, verify


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def plotted(monkeypatch, tmp_path):
    """The axes that a report plots, drawn."""

    def plot(report):
        report.plot(tmp_path / "errors.png")
        (axes,) = figures.pop().axes
        axes.figure.draw_without_rendering()
        return axes

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return plot


def test_plot_shows_what_comes_out_of_the_model_as_well(tmp_path, invoke):
    path, plot = tmp_path / "model.safetensors", tmp_path / "new" / "errors.svg"
    torch.manual_seed(0)
    save(Forecaster(flow=Translation(radius=1), hidden_channels=4, readout="published"), path)
    result = invoke("verify", path, "--plot", plot)
    assert result.exit_code == 1
    picture = plot.read_text(encoding="utf-8")
    for words in (
        "The recurrence inside",
        "Translation(radius=1), float64: exact",
        "The whole model",
        "Translation(closed=(5, 5)), float64: broken",
    ):
        assert f"<!-- {words} -->" in picture


@pytest.mark.parametrize("what", [(), ("pretrained",)])
@pytest.mark.parametrize("given", ["--plot x.png", "--dtype float64", "--steps 4", "--radius 2"])
def test_a_table_refuses_what_is_for_one_model(what, given, invoke, monkeypatch):
    for table in ("print_all", "print_pretrained"):
        monkeypatch.setattr(f"fernn.cli.verify.{table}", lambda _: False)
    result = invoke("verify", *what, *given.split())
    assert result.exit_code == 2
    assert f"{given.split()[0]} is for one model: give a file, a run, or one of" in result.output
    assert invoke("verify", *what).exit_code == 0


def test_a_plot_of_no_known_kind_is_refused_at_once(tmp_path, invoke, monkeypatch):
    monkeypatch.setattr(
        "fernn.experiments.pretrained.verify", lambda *_, **__: pytest.fail("too late")
    )
    plot = tmp_path / "errors.xyz"
    error = invoke("verify", "translating-mnist/grnn", "--plot", plot).exception
    assert str(error) == f"`--plot` must end with .png, .svg or .pdf, got '{plot}'."
    error = invoke("figure", 3, "--out", plot).exception
    assert str(error) == f"`--out` must end with .png, .svg or .pdf, got '{plot}'."


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_plot_counts_steps_in_whole_numbers(steps, plotted):
    flow = Translation(radius=1)
    axes = plotted(verify(lambda video: video[:, -steps:], sample_video(flow), flow, start=9))
    low, high = axes.get_xlim()
    shown = [float(tick) for tick in axes.get_xticks() if low <= tick <= high]
    assert shown == [*map(float, range(9, 9 + steps))]


def test_plot_names_the_worst_of_many_velocities(plotted):
    flow = Translation(radius=2)
    report = verify(lambda video: video.cumsum(1), sample_video(flow), flow)
    worst = report.velocities[int(report.error.amax(1).argmax())]
    legend = plotted(report).get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == 11
    assert f"ν̂ = ({worst[0]:g}, {worst[1]:g})" in names
    assert names[-1] == "14 more, none worse"


def test_plot_has_a_zero(plotted):
    flow = Translation(radius=1)
    axes = plotted(verify(FlowRNN(1, 2, flow=flow), sample_video(flow), flow))
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[0] == r"$\mathdefault{0}$"
    assert axes.get_ylim()[0] == 0
    assert {line.get_ydata()[0] for line in axes.get_lines()[:8]} == {0}


def test_plot_leaves_out_what_was_not_compared(plotted):
    flow = Translation(velocities=[(0, 1), (0, 3), (0, 4)])  # only 4 − 1 and 4 − 3 lie in V
    report = verify(FlowRNN(1, 2, flow=flow), sample_video(flow), flow)
    assert report.pairs == (1, 1, 0)
    names = [text.get_text() for text in plotted(report).get_legend().get_texts()]
    assert names == ["ν̂ = (0, 1)", "ν̂ = (0, 3)"]
    nothing = Translation(velocities=[(0, 1), (0, 3)])
    report = verify(FlowRNN(1, 2, flow=nothing), sample_video(nothing), nothing)
    assert plotted(report).get_legend() is None
