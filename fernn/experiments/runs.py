"""Run folders: where a run keeps its recipe, curve, checkpoints, best weights and record.

RUNS/<recipe name>/<scale>/seed-<n>/                      the recipe as it is
RUNS/<recipe name>/<scale>/training.epochs=3/seed-<n>/    the recipe with something changed
    recipe.json          the complete recipe
    curve.jsonl          a line each validation
    checkpoints/         where to go on from; see `checkpoint`
    best.safetensors     the weights of the best validation, as `fernn.load` reads them
    tensorboard/         the curve again, to be looked at
    record.json          what the finished run measured
"""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fernn import _check
from fernn._files import part_pattern, sha256, written_whole
from fernn.experiments import records
from fernn.experiments.recipes import Recipe, changed, changes, from_json, original, to_json

RUNS = Path("out/runs")
RECIPE, CURVE, BEST, RECORD = "recipe.json", "curve.jsonl", "best.safetensors", "record.json"
CHECKPOINTS, BOARD = "checkpoints", "tensorboard"
PATIENCE, PAUSE = 3600.0, 5.0  # seconds that a finished run waits for a disk, and between two tries
PRECISION, DATA = "`--precision`", "`--data` and `--clips`"  # what a run keeps to its end
CLIPS = "the SHA-256 of `--clips`"
INSIDE = ("embedded digits", "glimpses")  # data that comes with the package
_LOCK = ".lock"
_REMEDY = "If fernn wrote it, remove it: the same command writes it again."
_LONGEST = 80  # characters of a folder's name; file systems take 255 bytes


class HeldError(ValueError):
    """Another process is training the run."""


def home(runs: str | Path, recipe: Recipe) -> Path:
    """The folder of all runs of a recipe at a scale, changed ones too."""
    return Path(runs) / recipe.name / recipe.scale


def folder(runs: str | Path, recipe: Recipe, seed: int) -> Path:
    """The folder of one run of a recipe; a changed recipe has its own, beside the plain one's."""
    _check.count("seed", seed, least=0)
    plain = original(recipe)
    made = () if plain is None else changes(recipe, plain)
    return home(runs, recipe) / _slug(made) / f"seed-{seed}"


def _slug(made: tuple[str, ...]) -> str:
    """Changes as the name of a folder. Two never share one: what is lost in it is in a digest.

    >>> _slug(("training.epochs=3", "training.schedule=constant"))
    'training.epochs=3,training.schedule=constant'
    >>> _slug(("options.flow=Translation(radius=1)",))
    'options.flow=Translation-radius=1-b697df30'
    """
    whole = ",".join(made)
    safe = re.sub(r"[^\w.,=+-]+", "-", whole, flags=re.ASCII).strip("-")
    if safe == whole and len(whole) <= _LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{safe[: _LONGEST - 9]}-{digest}"


def command(
    recipe: Recipe,
    seed: int,
    *,
    precision: str | None = None,
    source: str | None = None,
    micro_batch: int | None = None,
    out: Path = RUNS,
) -> str | None:
    """The command that trains a run, in one line; None where no command does.

    `source` is what its sequences are made from, as its record says; unless that is inside the
    package, FOLDER or FILE stands for where a user has it.

    >>> from fernn.experiments.recipes import find
    >>> command(find("table4/grnn", "quick").but(training={"epochs": 3}), 1, precision="tf32")
    'fernn train table4/grnn --scale quick --seed 1 --precision tf32 --set training.epochs=3'
    """
    plain = original(recipe)
    settings = () if plain is None else changes(recipe, plain)
    try:
        if plain is None or changes(changed(plain, settings), recipe):
            return None
    except ValueError:  # changed in Python, in what `--set` has no key for
        return None
    words = ["fernn", "train", recipe.name, "--scale", recipe.scale]
    words += ["--seed", str(seed)] if seed else []
    words += ["--precision", precision] if precision else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--micro-batch", str(micro_batch)] if micro_batch else []
    words += [] if out == RUNS else ["--out", str(out)]
    option = needed(recipe, source)
    words += [] if option is None else [option, "FILE" if option == "--clips" else "FOLDER"]
    return shlex.join(words)


def needed(recipe: Recipe, source: str | None = None) -> str | None:
    """The option by which a user gives the data, None where they come with the package.

    `source` is what a run was made from, where there is one.
    """
    small = recipe.scale == "quick" and recipe.data.archive != "kth"
    if source in INSIDE if source else small:
        return None
    return "--clips" if recipe.data.kind == "clips" else "--data"


def placed(run: Path, recipe: Recipe) -> tuple[Path, int] | None:
    """The folder of all runs that one is in, and its seed; None where it was moved elsewhere."""
    for path in (run, run.resolve()):
        named = re.fullmatch(r"seed-(\d+)", path.name)
        if named is not None:
            seed = int(named[1])
            below = folder("", recipe, seed).parts
            if path.parts[-len(below) :] == below:
                return path.parents[len(below) - 1], seed
    return None


def is_run(run: Path) -> bool:
    """Whether a folder has a recipe or a record in it."""
    return any((run / name).is_file() for name in (RECIPE, RECORD))


def below(parent: Path) -> list[Path]:
    """All runs below a folder, by their names."""
    return sorted({path.parent for name in (RECIPE, RECORD) for path in parent.rglob(name)})


def begin(run: Path, recipe: Recipe) -> dict[str, Any] | None:
    """Make the folder and write the recipe, or return the record of a run that is finished.

    A folder with another recipe in it raises. Whoever calls this holds the folder.
    """
    run.mkdir(parents=True, exist_ok=True)
    for part in [*run.glob(part_pattern("*")), *run.glob(f"*/{part_pattern('*')}")]:
        part.unlink(missing_ok=True)  # what a killed process was writing
    for path in (run / RECIPE, run / RECORD):
        there = _recipe_in(path) if path.is_file() else recipe
        has, wanted = changes(there, recipe), changes(recipe, there)
        if has:
            raise ValueError(
                f"`--out` must hold runs of the same recipe, got {run}, which has {', '.join(has)} "
                f"and not {', '.join(wanted)}. Use another --out, or remove that folder."
            )
    if not (run / RECIPE).exists():
        records.write(run / RECIPE, to_json(recipe))
    return read_record(run)


def forget(run: Path) -> None:
    """A recipe that could not be trained is no run; one of which a step was kept stays."""
    if not any((run / CHECKPOINTS).glob("*")):
        (run / RECIPE).unlink(missing_ok=True)


def check_began(run: Path, there: str | None, here: str | None, option: str) -> None:
    """Raise where a run would go on otherwise than it began; an old one may not say how (None)."""
    if there not in (None, here):
        raise ValueError(
            f"{option} must be what the run in {run} began with, {there!r}, got {here!r}. Go "
            "on with that, use another --out, or remove that folder to begin again."
        )


def check_data(
    run: Path, there: tuple[str | None, str | None], here: tuple[str | None, str | None]
) -> None:
    """Raise where a run would go on with other data, by name and SHA-256; the same content may
    have been renamed."""
    if there[1] is None or there[1] != here[1]:
        check_began(run, there[0], here[0], DATA)
        check_began(run, there[1], here[1], CLIPS)


def read_recipe(run: Path) -> Recipe:
    """The recipe of a run: that which its record is of, once it is finished."""
    path = run / RECORD if (run / RECORD).is_file() else run / RECIPE
    if not path.is_file():
        raise FileNotFoundError(
            f"`run` must be a folder that `fernn train` made, with {RECIPE} or {RECORD} in it, got "
            f"{str(run)!r}."
        )
    return _recipe_in(path)


def _recipe_in(path: Path) -> Recipe:
    plain = read_json(path)
    try:
        return from_json(plain if path.name == RECIPE else plain["recipe"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"it has no {error}." if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path} must hold a recipe that this version knows: {why} Use the version that "
            "wrote it, or another folder."
        ) from None


def read_record(run: Path) -> dict[str, Any] | None:
    """The record of a finished run, None for one that is not finished."""
    return read_json(run / RECORD) if (run / RECORD).is_file() else None


def check_weights(run: Path, record: dict[str, Any] | None) -> Path:
    """The best weights of a run; others than those that its record is of raise."""
    if not (run / BEST).is_file():
        raise FileNotFoundError(f"`run` must have weights, got {str(run)!r} without {BEST}.")
    if not holds(run, record):
        recorded = (record or {})["best_sha256"]
        raise ValueError(
            f"`run` must hold the weights that its record is of, got {run / BEST}, which was "
            f"changed since: its SHA-256 is not {recorded}. Put them back, or train it again."
        )
    return run / BEST


def holds(run: Path, record: dict[str, Any] | None) -> bool:
    """Whether a run has kept weights, and those that its record is of, where that says which."""
    recorded = (record or {}).get("best_sha256")
    return (run / BEST).is_file() and recorded in (None, sha256(run / BEST))


def read_curve(run: Path) -> list[dict[str, Any]]:
    """The validations of a run, in their order."""
    path = run / CURVE
    if not path.is_file():
        return []
    try:
        return [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ValueError(f"{path} must hold a JSON value a line: {error}. {_REMEDY}") from None


def write_curve(run: Path, curve: list[dict[str, Any]]) -> None:
    """Write all of the curve, or nothing: a run that resumes may have to take lines back."""
    with written_whole(run / CURVE) as part:
        part.write_text("".join(f"{records.to_text(line)}\n" for line in curve), encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        plain = _parsed(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} must be JSON, got a file that is not: {error}. {_REMEDY}"
        ) from None
    if not isinstance(plain, dict):
        raise ValueError(f"{path} must be a JSON object, got {type(plain).__name__}. {_REMEDY}")
    return plain


def _parsed(text: str) -> Any:
    """JSON, in which older runs wrote NaN."""
    return json.loads(text, parse_constant=lambda _: None)


def insist(write: Callable[[], None], say: Callable[[str], None]) -> None:
    """Retry `write` for a while: at the end of a run, to wait for a full disk loses nothing."""
    until, told = time.monotonic() + PATIENCE, ""
    while True:
        try:
            return write()
        except OSError as error:
            if time.monotonic() >= until:
                raise
            if str(error) != told:
                say(
                    f"cannot save: {error}. The run is at its end and waits "
                    f"{PATIENCE / 60:.0f} minutes for you to free some space."
                )
            told = str(error)
        time.sleep(PAUSE)


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Holds the folder for this process, or raises `HeldError`.

    The kernel lets go when the process dies, however it does.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: nothing guards the folder there
        yield
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / _LOCK).open("w")
    except OSError as error:
        raise OSError(
            f"`--out` must be a folder that can be written to, got {run}: {error.strerror}."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(
                f"`--out` must hold runs that nobody else trains, got {run}, which another process "
                "is training. Wait for it, or use another --seed or --out."
            ) from None
        yield
