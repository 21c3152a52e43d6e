"""What tables and figures lack, in few words, and the command that makes it."""

import os
import shlex
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from fernn.experiments.recipes import Recipe, recipes
from fernn.experiments.results import Result, Results
from fernn.experiments.runs import BEST, INSIDE, RUNS, needed

ARCHIVE = "an archive of clips (--clips FILE)"
ANOTHER = Path("ANOTHER-FOLDER")  # in which nothing is finished, so that all is trained again
_WEIGHTS = "weights of "
_USUAL = "32-true"  # the precision of a run that was not asked for another


@dataclass(frozen=True)
class Given:
    """What a user gave a command; the commands named in reply have it again."""

    data: str | os.PathLike[str] | None = None
    clips: str | os.PathLike[str] | None = None
    out: Path | None = None


def weights_of(name: str) -> str:
    """The weights of a recipe whose record is there."""
    return f"{_WEIGHTS}{name}"


def are_weights(name: str) -> bool:
    """Whether what is missing is the weights of a run that has a record."""
    return name.startswith(_WEIGHTS)


def recipe_of(name: str) -> str:
    """The recipe that what is missing belongs to."""
    return name.removeprefix(_WEIGHTS)


def grouped(names: Iterable[str]) -> list[str]:
    """Each name once, and those of one folder together.

    >>> grouped(["table1/rotation/grnn", "table4/grnn", "table1/rotation/fernn-v2", "table4/grnn"])
    ['table1/rotation/{grnn, fernn-v2}', 'table4/grnn']
    """
    folders: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        folder, _, last = name.rpartition("/")
        folders.setdefault(folder, []).append(last)
    made: list[str] = []
    for folder, ends in folders.items():
        within = ends[0] if len(ends) == 1 else f"{{{', '.join(ends)}}}"
        made += [f"{folder}/{within}"] if folder else ends
    return made


def said(names: Iterable[str]) -> list[str]:
    """What is missing, for a caption: a sentence for recipes and other things, one for weights.

    >>> said(["fig6/grnn", weights_of("table1/rotation/grnn")])
    ['not trained so: fig6/grnn', 'no frames: the weights of table1/rotation/grnn were not kept']
    """
    names = list(dict.fromkeys(names))
    rest = [name for name in names if not are_weights(name)]
    trained = all(name in recipes() for name in rest)
    made = [f"{'not trained so' if trained else 'missing'}: {', '.join(grouped(rest))}"]
    return [*(made if rest else []), *_without_weights(names)]


def _without_weights(names: Iterable[str]) -> list[str]:
    """The sentence about runs whose weights are missing, where there are any."""
    lost = grouped(recipe_of(name) for name in names if are_weights(name))
    return [f"no frames: the weights of {', '.join(lost)} were not kept"] if lost else []


def remedy(
    names: Iterable[str], results: Results, scale: str | None = None, given: Given | None = None
) -> str:
    """How to get what is missing among results: a command, and a sentence where weights were not
    kept. Without a scale it is the largest that they have, so that what is made is beside them.

    >>> remedy(["fig5/rotation/grnn", "fig6/grnn"], Results(()))
    'fernn reproduce fig5/rotation/grnn fig6/grnn --scale quick'
    """
    names, known = list(dict.fromkeys(names)), recipes()
    given = Given() if given is None else given
    at = scale or results.largest_scale or "quick"
    ways = []
    train = [name for name in names if name in known]
    if train:
        ways.append(_command(train, at, results, given))
    lost = [recipe_of(name) for name in names if are_weights(name)]
    if again := [name for name in lost if name in known]:
        ways.append(_command(again, at, replace(results, folder=ANOTHER), given))
    if lost:
        ways.append(f"or, where you have it, copy {BEST} beside each record")
    if ARCHIVE in names:
        fetch = "fernn data fetch kth --out FOLDER"
        prepare = "fernn data prepare kth --source FOLDER --out FILE"
        ways.append(f"{fetch} && {prepare}, then --clips FILE")
    return "; ".join(ways)


def lines(names: Iterable[str]) -> list[str]:
    """What is missing, for a person at a terminal."""
    names = list(names)
    rest = grouped(name for name in names if not are_weights(name))
    return [*(f"missing: {group}" for group in rest), *_without_weights(names)]


def drawing(number: str, results: Results, given: Given | None = None) -> str:
    """The command that draws a figure of these runs, all at one scale and with one change."""
    given = Given() if given is None else given
    about = f"--scale {results.largest_scale}{_sets(results.settings)}"
    options = {"--data": given.data, "--clips": given.clips, "--out": given.out}
    same = "".join(f" {key} {_quoted(value)}" for key, value in options.items() if value)
    return f"fernn figure {number} {about}{_below('--runs', results.folder)}{same}"


def _quoted(path: str | os.PathLike[str]) -> str:
    return shlex.quote(os.fspath(path))


def _sets(settings: Iterable[str]) -> str:
    return "".join(f" --set {shlex.quote(setting)}" for setting in settings)


def instead(command: str, key: str, results: Results) -> str:
    """Where runs on the clips that stand in for KTH are shown: a table or a figure by its key."""
    return f"runs on the stand-in: fernn {command} {key}{_below('--runs', results.folder)}"


def _below(option: str, folder: Path) -> str:
    """The option that names a folder of runs, where it is not the usual one."""
    return "" if folder == RUNS else f" {option} {_quoted(folder)}"


def _command(names: list[str], scale: str, results: Results, given: Given) -> str:
    """The command that trains all of these recipes, or, where they are changed, one for each."""
    wanted, at = [recipes()[name].at(scale) for name in names], results.at(scale)
    beside = at.found or at.changed  # those that what is made stands among
    options = {needed(recipe, _source(recipe, beside)) for recipe in wanted}
    needs = f" --scale {scale}"
    if "--data" in options:
        needs += f" --data {_quoted(given.data or 'FOLDER')}"
    if "--clips" in options:
        needs += f" --clips {_quoted(given.clips or 'FILE')}"
    precisions = {str(r.record.get("precision", _USUAL)) for r in beside}
    if len(precisions) == 1 and precisions != {_USUAL}:
        needs += f" --precision {precisions.pop()}"
    needs += _below("--out", results.folder)  # where the results are looked for
    if results.settings:
        needs += _sets(results.settings)
        return " && ".join(f"fernn train {name}{needs}" for name in names)
    if any(r.searched for r in beside):
        needs += " --search"
    return f"fernn reproduce {_briefly(names)}{needs}"


def _source(recipe: Recipe, beside: Iterable[Result]) -> str | None:
    """What runs beside it were made from that is not in the package, None where all of it is."""
    ours = recipe.data.kind == "clips"
    alike = (r.data for r in beside if (r.record["recipe"]["data"]["kind"] == "clips") == ours)
    return next((source for source in alike if source not in INSIDE), None)


def _briefly(names: list[str]) -> str:
    """The names of recipes, or the first parts of names below which there are no others."""
    return " ".join(dict.fromkeys(_first_parts(name, frozenset(names)) for name in names))


def _first_parts(name: str, among: Set[str]) -> str:
    parts = name.split("/")
    ways = ("/".join(parts[:count]) for count in range(1, len(parts)))
    below = {way: {n for n in recipes() if n.startswith(f"{way}/")} for way in ways}
    return next((way for way, every in below.items() if every <= among), name)
