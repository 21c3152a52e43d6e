"""What tables and figures lack, in few words, and the command that makes it."""

import shlex
from collections.abc import Iterable, Set
from pathlib import Path

from fernn.experiments.recipes import recipes
from fernn.experiments.results import Results
from fernn.experiments.runs import BEST, RUNS

ARCHIVE = "an archive of clips (--clips FILE)"
_WEIGHTS = f"{BEST} of "


def weights_of(name: str) -> str:
    """The weights of a recipe whose record is there."""
    return f"{_WEIGHTS}{name}"


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


def remedy(names: Iterable[str], results: Results, scale: str | None = None) -> str:
    """How to get what is missing among results: a command, and a sentence where weights were not
    kept. Without a scale it is the largest that they have, so that what is made is beside them.

    >>> remedy(["fig5/rotation/grnn", "fig6/grnn"], Results(()))
    'fernn reproduce fig5/rotation/grnn fig6/grnn --scale quick'
    """
    names, known = list(dict.fromkeys(names)), recipes()
    ways = []
    train = [name for name in names if name in known]
    if train:
        ways.append(_command(train, scale or results.largest_scale or "quick", results))
    if any(name.startswith(_WEIGHTS) for name in names):
        ways.append(f"needs weights: copy {BEST} beside each record, or train in another folder")
    if ARCHIVE in names:
        fetch = "fernn data fetch kth --out FOLDER"
        prepare = "fernn data prepare kth --source FOLDER --out FILE"
        ways.append(f"{fetch} && {prepare}, then --clips FILE")
    return "; ".join(ways)


def lines(names: Iterable[str], results: Results, scale: str | None = None) -> list[str]:
    """What is missing and how to get it, for a person at a terminal."""
    names = list(names)
    way = remedy(names, results, scale)
    return [*(f"missing: {g}" for g in grouped(names)), *([f"to get it: {way}"] if way else [])]


def drawing(number: str, results: Results) -> str:
    """The command that draws a figure of these runs, all at one scale and with one change."""
    about = f"--scale {results.largest_scale}{_sets(results.settings)}"
    return f"fernn figure {number} {about}{_below('--runs', results.folder)}"


def _sets(settings: Iterable[str]) -> str:
    return "".join(f" --set {shlex.quote(setting)}" for setting in settings)


def instead(command: str, key: str, results: Results) -> str:
    """Where runs on the clips that stand in for KTH are shown: a table or a figure by its key."""
    return f"runs on the stand-in: fernn {command} {key}{_below('--runs', results.folder)}"


def _below(option: str, folder: Path) -> str:
    """The option that names a folder of runs, where it is not the usual one."""
    return "" if folder == RUNS else f" {option} {shlex.quote(str(folder))}"


def _command(names: list[str], scale: str, results: Results) -> str:
    """The command that trains all of these recipes, or, where they are changed, one for each."""
    data = [recipes()[name].data for name in names]
    needs = f" --scale {scale}"
    if any(d.kind != "clips" for d in data) and scale != "quick":
        needs += " --data FOLDER"
    if any(d.archive == "kth" or (d.kind == "clips" and scale != "quick") for d in data):
        needs += " --clips FILE"
    needs += _below("--out", results.folder)  # where the results are looked for
    if results.settings:
        needs += _sets(results.settings)
        return " && ".join(f"fernn train {name}{needs}" for name in names)
    return f"fernn reproduce {_briefly(names)}{needs}"


def _briefly(names: list[str]) -> str:
    """The names of recipes, or the first parts of names below which there are no others."""
    return " ".join(dict.fromkeys(_first_parts(name, frozenset(names)) for name in names))


def _first_parts(name: str, among: Set[str]) -> str:
    parts = name.split("/")
    ways = ("/".join(parts[:count]) for count in range(1, len(parts)))
    below = {way: {n for n in recipes() if n.startswith(f"{way}/")} for way in ways}
    return next((way for way, every in below.items() if every <= among), name)
