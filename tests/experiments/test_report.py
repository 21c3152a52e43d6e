"""The report: one page, whole in itself, and honest about what is missing."""

import base64
import html
import io
import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from PIL import Image
from synthetic import clip_metrics, forecast_metrics, write_forecasters, write_run
from typer.testing import CliRunner

from fernn import cli
from fernn.experiments import report, results, runs
from fernn.experiments.figures import Sources
from fernn.experiments.glimpses import glimpses
from fernn.experiments.recipes import changed, find
from fernn.experiments.results import Results

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"
SETS = ("training.batch_size=32", "training.clip=0.1")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Page(HTMLParser):
    """What a page refers to, and whether its tags match."""

    EMPTY = ("meta", "link", "img", "br", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.pictures, self.links = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        if tag == "img":
            self.pictures.append(found)
        self.links += [v for k, v in attributes if k in ("src", "href", "action", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def commands(page):
    """The commands that a page names, without the marks that keep their options whole."""
    found = re.findall(r"<code>(fernn .*?)</code>", page)
    return [html.unescape(re.sub("<.*?>", "", command)) for command in found]


def first_cells(page, summary):
    """The lines of the first cell of every row of a table that is shown when asked for."""
    rows = page.partition(f"<summary>{summary}</summary>")[2].partition("</table>")[0]
    cells = re.findall("<tr><td>(.*?)</td>", rows)
    return [re.sub("</?span.*?>", "", cell).split("<br>") for cell in cells]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    torch.manual_seed(0)
    write_forecasters(folder / "runs", [GRNN, FERNN])
    for name in ("fig5/translation/grnn", "fig6/grnn"):
        write_run(folder / "runs", name, metrics=forecast_metrics(name))
    write_run(folder / "runs", "table2/actions/grnn", metrics=clip_metrics("mocap_actions", 0.75))
    longer = changed(find(FERNN, "quick"), [*SETS, "training.learning_rate=0.123456789"])
    write_run(
        folder / "runs",
        FERNN,
        scale="quick",
        recipe=longer,
        metrics=forecast_metrics(FERNN, "quick"),
    )
    (folder / "runs" / "bad").mkdir()
    (folder / "runs" / "bad" / "record.json").write_text("<script>", encoding="utf-8")
    absent = report.write(folder / "new" / "report.html", results.load(folder / "runs"))
    return folder / "new" / "report.html", absent


def test_report_is_whole_in_itself(written):
    text = written[0].read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.pictures) >= 6
    for link in page.links:
        assert link.startswith(("data:", "#")), link[:80]
    assert "script" not in page.tags
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    anchors = re.findall(r'href="#(\w+)"', text)
    assert anchors
    assert all(f'id="{anchor}"' in text for anchor in anchors)


@pytest.mark.parametrize(
    ("forecasts", "last"), [(True, "animation of Rotating"), (False, "figure")]
)
def test_report_tells_of_every_picture_before_it_is_drawn(forecasts, last):
    told = []
    report.build(Results(()), forecasts=forecasts, progress=lambda *call: told.append(call))
    total = len(report.figures.FIGURES) + 2 * forecasts
    assert [call[:2] for call in told] == [(done, total) for done in range(total)]
    assert told[0][2] == f"figure 14 (1 of {total})"
    assert told[-1][2].startswith(last)
    assert told[-1][2].endswith(f"({total} of {total})")


def test_report_pictures_decode_and_say_what_they_are(written):
    pictures = Page(written[0].read_text(encoding="utf-8")).pictures
    kinds = []
    for picture in pictures:
        head, _, data = picture["src"].partition(",")
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        image.load()
        assert min(image.size) > 50
        assert len(picture["alt"]) > 10
        kinds.append((head, getattr(image, "n_frames", 1) > 1))
    assert ("data:image/gif;base64", True) in kinds  # an animation that moves
    assert ("data:image/png;base64", False) in kinds


def test_report_shows_tables_beside_the_paper_and_what_is_absent(written):
    path, absent = written
    text = path.read_text(encoding="utf-8")
    assert "8.1e-3 ± 6e-4" in text
    assert "0.750" in text
    assert "Accuracy of each class, mocap_actions" in text
    assert "0.665" not in text  # the paper's G-RNN on KTH, which nobody measured here
    assert any(line.startswith("Table 2: ") for line in absent)
    assert any(line.startswith("Figure 8: ") for line in absent)
    assert not any(line.startswith(("Table 1:", "Figure 3:", "Figure 6:")) for line in absent)
    assert "Invented GPU" in text
    assert "<td>0000000</td>" in text
    assert "bad/record.json" in text
    assert "<script>" not in text  # nothing of a record becomes markup


def test_report_of_nothing_is_a_page(tmp_path):
    page, absent = report.build(Results(()))
    assert Page(page).open == []
    assert "No finished run yet" in page
    assert len(absent) > 15


def test_weights_of_a_changed_run_are_weights(tmp_path):
    recipe = changed(find(FERNN, "quick"), ["training.epochs=7"])
    metrics = forecast_metrics(FERNN, "quick")
    write_run(tmp_path, FERNN, scale="quick", metrics=metrics)  # has errors to draw
    run = write_run(
        tmp_path, FERNN, scale="quick", recipe=recipe, metrics=metrics, model=recipe.build()
    )
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    assert "records alone" not in page
    (run / runs.BEST).unlink()
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    assert "records alone" in page


def test_report_of_records_alone_at_two_scales(tmp_path, monkeypatch):
    """Some rows, at `short` and at `quick`: every scale has its own table, pictures the larger."""
    rows = [GRNN, "table1/translation/fernn-v1-transported", f"{FERNN}-transported"]
    for name in rows:
        write_run(tmp_path, name, metrics=forecast_metrics(name, mse=1e-3))
    for name in (*rows, FERNN):
        metrics = forecast_metrics(name, "quick", mse=5e-2)
        write_run(tmp_path, name, scale="quick", metrics=metrics)
    page, absent = report.build(results.load(tmp_path))
    short, quick = (page.index(f"Table 1, scale {scale}: ") for scale in ("short", "quick"))
    end = page.index('id="learning"')
    assert short < quick < end
    assert page[short:quick].count("1.00e-3") == 3
    assert "5.00e-2" not in page[short:quick]
    assert page[quick:end].count("5.00e-2") == 4
    captions = re.findall("Figure (?:3|4|13)[^<]*<.*?</figcaption>", page)
    assert len(captions) == 2  # 3 and 4 of translation: nothing of rotation was measured
    assert all("scale short" in caption for caption in captions)
    assert "table1/rotation/{grnn, fernn-v2, fernn-v4}" in captions[0]
    assert "records alone, without best.safetensors" in page
    assert "image/gif" not in page
    assert any(line.startswith("Figure 12: ") for line in absent)
    assert "copy best.safetensors beside each record" in page
    rows = " ".join(f"table1/rotation/{end}" for end in ("grnn", "fernn-v2", "fernn-v4"))
    command = f"fernn reproduce {rows} --scale short --data FOLDER "
    command += "--precision bf16-mixed --out {}"
    assert command.format("RUNS") in commands(page)  # a home's name is not passed on
    monkeypatch.chdir(tmp_path.parent)
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    assert command.format(tmp_path.name) in commands(page)


def test_report_without_forecasts_runs_no_model(tmp_path, monkeypatch):
    write_forecasters(tmp_path, [FERNN])
    monkeypatch.setattr("fernn.models.load", lambda path: pytest.fail("ran a model"))
    page, absent = report.build(results.load(tmp_path), forecasts=False)
    assert "Figure 4" in page
    assert "image/gif" not in page
    assert not any(line.startswith("Figure 4:") for line in absent)
    assert "records alone" not in page


def test_report_counts_and_lists_runs_with_changed_settings(tmp_path):
    def lead():
        page, _ = report.build(results.load(tmp_path), forecasts=False)
        assert Page(page).open == []
        return page, re.search("<p>(.*?), beside the numbers", page).group(1)

    plain, clips = find(FERNN, "quick"), find("table2/actions/grnn", "quick")
    metrics = forecast_metrics(FERNN, "quick")
    made = changed(plain, ["training.epochs=7", "options.kernel_size=5"])
    write_run(tmp_path, FERNN, scale="quick", recipe=made, metrics=metrics)
    page, text = lead()  # of changed runs alone
    counted = "1 finished run of 1 recipe (1 at scale quick)"
    assert text == f"{counted}, 1 of them trained with changed settings"
    assert f"{FERNN}, training.epochs=7, options.kernel_size=5</th>" in page  # what it cost
    write_run(tmp_path, FERNN, scale="quick", metrics=metrics)
    made = changed(clips, ["training.epochs=7"])
    write_run(tmp_path, clips.name, scale="quick", recipe=made, metrics=clip_metrics("acted"))
    page, text = lead()
    counted = "3 finished runs of 2 recipes (3 at scale quick)"
    assert text == f"{counted}, 2 of them trained with changed settings"
    assert first_cells(page, "All runs") == [
        [FERNN],
        [FERNN, "with training.epochs=7, options.kernel_size=5"],
        [clips.name, "with training.epochs=7"],
    ]
    assert first_cells(page, "Accuracy of each class, acted") == [
        [clips.name, "with training.epochs=7"]
    ]
    about = page.partition('id="environment"')[2]
    assert re.findall(r"<td>(\d+)</td></tr>", about) == ["3"]  # the runs of one environment


def test_report_of_plain_runs_alone_speaks_of_no_change(tmp_path):
    write_run(tmp_path, GRNN, metrics=forecast_metrics(GRNN))
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    assert "<p>1 finished run of 1 recipe (1 at scale short), beside the numbers" in page
    assert "settings" not in page


def test_report_names_the_commands_that_draw_other_settings(tmp_path, monkeypatch):
    turning, bouncing = "table1/rotation/fernn-v4", "table4/fernn-v2"
    for name, settings in (
        (GRNN, ()),
        (GRNN, SETS),
        (FERNN, SETS),
        (turning, ("training.clip=None",)),
        (bouncing, ("training.epochs=3",)),  # in no figure
        (FERNN, ("training.epochs=3", "options.kernel_size=5")),  # another model
    ):
        recipe = changed(find(name, "short"), settings)
        write_run(tmp_path / "my runs", name, recipe=recipe, metrics=forecast_metrics(name))
    monkeypatch.chdir(tmp_path)
    page, _ = report.build(results.load(Path("my runs")), forecasts=False)
    ends = (f"--set {SETS[0]} --set {SETS[1]}", "--set training.clip=None")
    expected = [("3", ends[0]), ("3", ends[1]), ("4", ends[0]), ("13", ends[1])]
    found = [command for command in commands(page) if command.startswith("fernn figure")]
    assert found == [
        f"fernn figure {number} --scale short {end} --runs 'my runs'" for number, end in expected
    ]
    for command in found:
        result = CliRunner().invoke(cli.app, [*shlex.split(command)[1:], "--out", "drawn.svg"])
        assert result.exit_code == 0, result.output
        drawn = Path("drawn.svg").read_text(encoding="utf-8")
        assert all(word in drawn for word in shlex.split(command) if word.startswith("training."))


def figures_of(page):
    """The names of the pictures in a page, each with its note."""
    found = re.findall("<figcaption><b>(.*?)</b>(.*?)</figcaption>", page)
    return {re.sub("<.*?>", "", name): note for name, note in found}


def test_report_draws_the_settings_of_which_most_runs_kept_their_weights(tmp_path, monkeypatch):
    """Below the plain ones; other settings are named by their commands alone."""
    monkeypatch.setattr(report, "PLAYED", 2)
    small = ("options.hidden_channels=2",)
    few, most, none = ("training.epochs=3",), SETS, ("training.clip=None",)
    for name, settings, kept in (
        (GRNN, (), False),
        (FERNN, (), False),
        (GRNN, none, False),
        (GRNN, few, True),
        (FERNN, few, False),
        (GRNN, most, True),
        (FERNN, most, True),
    ):
        recipe = changed(find(name, "short"), settings)
        model = changed(recipe, small).build() if kept else None
        write_run(tmp_path, name, recipe=recipe, metrics=forecast_metrics(name), model=model)
    glimpses().save(tmp_path / "clips.npz")
    sources = Sources(archive=tmp_path / "clips.npz")
    page, absent = report.build(results.load(tmp_path), sources=sources)
    pictures = figures_of(page)
    others = {name: note for name, note in pictures.items() if "other settings" in name}
    assert [name.split(":")[0] for name in others] == [
        *(f"Figure {number}, other settings" for number in ("3", "12", "4", "4", "14")),
    ]
    assert all(setting in note for setting in most for note in others.values())
    assert not any("o results yet" in note for note in others.values())
    names = list(pictures)
    assert names.index("Figure 3: Translating MNIST, VT2.") < names.index(next(iter(others)))
    assert page.count("image/gif") == 1  # of these runs
    assert any(name.startswith("Figure 7: ") for name in names)  # once, for it is of no run
    assert not any(line.startswith(("Figure 4:", "Figure 12:", "Figure 14:")) for line in absent)
    named = {c.partition(" --runs")[0] for c in commands(page) if c.startswith("fernn figure 3 ")}
    assert named == {f"fernn figure 3 --scale short --set {s[0]}" for s in (few, none)}
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    others = [name.split(":")[0] for name in figures_of(page) if "other settings" in name]
    assert others == ["Figure 3, other settings", "Figure 4, other settings"]  # no model runs


@pytest.mark.parametrize(("scale", "kept"), [("short", False), ("quick", True)])
def test_report_draws_no_other_settings_of_quick_runs_or_without_weights(scale, kept, tmp_path):
    recipe = changed(find(FERNN, scale), ["training.epochs=7"])
    model = recipe.build() if kept else None
    metrics = forecast_metrics(FERNN, scale)
    write_run(tmp_path, FERNN, scale=scale, recipe=recipe, metrics=metrics, model=model)
    page, _ = report.build(results.load(tmp_path))
    assert figures_of(page)
    assert not any("other settings" in name for name in figures_of(page))
    assert any("--set training.epochs=7" in command for command in commands(page))


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: the page is not opened")
@pytest.mark.parametrize("width", [1280, 390])
def test_report_opens_in_chromium(written, width, tmp_path):
    """Every picture has a size, none is wider than a phone or a screen, nothing raises an error."""
    probe = """
    <script>
    const errors = [];
    const keep = event => errors.push(String(event.message || event.target.src));
    addEventListener("error", keep, true);
    </script>"""
    # A window is never as narrow as a phone, but a frame within it is.
    around = """
    <iframe src="probed.html" style="width: WIDTHpx; height: 900px"></iframe>
    <script>
    addEventListener("load", () => {
      const view = frames[0], page = view.document, images = [...page.images];
      page.querySelectorAll("details").forEach(details => details.open = true);
      const right = part => part.getBoundingClientRect().right;
      const found = {images: images.length, errors: view.eval("errors"),
                     lost: images.filter(image => !image.naturalWidth).length,
                     cut: images.filter(image => right(image) > view.innerWidth).length,
                     changes: [...page.querySelectorAll("td .soft")].map(right),
                     width: view.innerWidth,
                     wide: page.documentElement.scrollWidth - view.innerWidth};
      document.body.innerHTML = "<pre>found" + JSON.stringify(found) + "</pre>";
    });
    </script>"""
    text = written[0].read_text(encoding="utf-8")
    (tmp_path / "probed.html").write_text(text.replace("<head>", "<head>" + probe), "utf-8")
    page = tmp_path / "around.html"
    page.write_text(around.replace("WIDTH", str(width)), encoding="utf-8")
    result = subprocess.run(
        [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,900",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(re.search(r"<pre>found({.*?})</pre>", result.stdout).group(1))
    assert found["images"] == len(Page(text).pictures) > 0
    assert found["width"] == width
    assert found["lost"] == 0
    assert found["cut"] == 0
    assert 0 < max(found["changes"]) <= width
    assert found["errors"] == []
    assert found["wide"] <= 0
    assert "CONSOLE" not in result.stderr
