"""How work tells of itself: bars on a terminal, plain lines in a log, silence in a library."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from fernn import data

EVERY_SECONDS = 30.0  # between two plain lines, unless something happens


class _Pace:
    """When the next plain line is due, and how long the rest takes at the speed so far."""

    def __init__(self, done: int = 0, *, at_once: bool = False) -> None:
        self.restart(done)
        self._last = -math.inf if at_once else self._begun

    def restart(self, done: int) -> None:
        """Other work, at another speed; the next line is due when it was."""
        self._first, self._begun = done, time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < EVERY_SECONDS:
            return False
        self._last = now
        return True

    def left(self, done: int, total: int) -> str:
        """The time left, unknown before anything is done."""
        if done <= self._first:
            return "ETA –"
        seconds = (time.monotonic() - self._begun) / (done - self._first) * (total - done)
        return f"ETA {_clock(seconds)}"


class Report:
    """Says nothing; the reports that do are made from it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The end of the run, however it came."""

    def begin(self, name: str, done: int, steps: int) -> None:
        """The run has `steps` steps, of which `done` are done."""

    def step(self, done: int, loss: float, rate: float) -> None:
        """A step is done: its loss, and sequences a second."""

    def validated(self, line: dict[str, Any], epochs: int, *, best: bool) -> None:
        """An epoch is done: a line of the curve."""

    def evaluated(self, done: int, total: int, what: str) -> None:
        """After the last epoch: how much of the evaluation is done, and what is being done."""

    def say(self, text: str) -> None:
        """Something that the user should know."""


class Lines(Report):
    """One line now and then, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace, self._steps = _Pace(), 0
        self._count: data.Progress | None = None

    def begin(self, name: str, done: int, steps: int) -> None:
        self._pace, self._steps = _Pace(done), steps
        self.say(f"{name}: step {done} of {steps}")

    def step(self, done: int, loss: float, rate: float) -> None:
        if self._pace.due():
            left = self._pace.left(done, self._steps)
            self.say(f"step {done}/{self._steps}  loss {loss:.3e}  {rate:.1f} seq/s  {left}")

    def validated(self, line: dict[str, Any], epochs: int, *, best: bool) -> None:
        self.say(_epoch(line, epochs, best))

    def evaluated(self, done: int, total: int, what: str) -> None:
        if self._count is None:
            self._count = _counted_in_lines(self._console, _Pace(), even=True)
        self._count(done, total, what)

    def say(self, text: str) -> None:
        _say(self._console, text)


class Bars(Lines):
    """A progress bar with the time left, the loss and sequences a second.

    The numbers are whole however narrow the terminal is, and the bar has the rest of it. The run
    is named above: by what was typed, or by a line of the command that trains many.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._task: TaskID | None = None
        self._evaluation: TaskID | None = None
        self._bar = Progress(
            _rest(),
            TextColumn("{task.description}", markup=False),
            console=console,
            expand=True,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._evaluation is not None:
            self._bar.remove_task(self._evaluation)
        self._bar.stop()

    def begin(self, name: str, done: int, steps: int) -> None:
        self._pace, self._steps = _Pace(done), steps
        self._task = self._bar.add_task(self._told(done, "–", "–"), total=steps, completed=done)

    def step(self, done: int, loss: float, rate: float) -> None:
        if self._task is not None:
            told = self._told(done, f"{loss:.3e}", f"{rate:.1f}")
            self._bar.update(self._task, completed=done, description=told)

    def evaluated(self, done: int, total: int, what: str) -> None:
        if self._evaluation is None:
            self._pace = _Pace(done)
            self._evaluation = self._bar.add_task("", total=total)
        told = f"{what}  {self._pace.left(done, total)}"
        self._bar.update(self._evaluation, completed=done, description=told)

    def _told(self, done: int, loss: str, rate: str) -> str:
        left = self._pace.left(done, self._steps)  # known from the first step on
        return f"{done}/{self._steps} loss {loss}  {rate} seq/s  {left}"


def report_for(console: Console) -> Report:
    """Bars where the console is a terminal, plain lines where it is not."""
    return Bars(console) if console.is_terminal else Lines(console)


@contextmanager
def counting(console: Console, *, even: bool = True) -> Iterator[data.Progress]:
    """A callback for how far work is: done, total (0 where unknown) and what is being done.

    A terminal has a bar for as long as it takes, a log a line at once, then one now and then. The
    time left is told where the work is `even`, each part of the total as long as any other.
    """
    if not console.is_terminal:
        yield _counted_in_lines(console, _Pace(at_once=True), even=even)
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        _rest(),
        TaskProgressColumn(),
        *([TimeRemainingColumn()] if even else []),
        console=console,
        expand=True,
        transient=True,
        speed_estimate_period=math.inf,  # a batch may take longer than any period
    ) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield tell


def _counted_in_lines(console: Console, pace: _Pace, *, even: bool) -> data.Progress:
    known = 0

    def tell(done: int, total: int, what: str) -> None:
        nonlocal known
        if total != known:  # another file
            pace.restart(done)
            known = total
        if pace.due():
            share = f"{done / total:.0%}" if total else f"{done:,}"
            left = f"  {pace.left(done, total)}" if even and total else ""
            _say(console, f"{what}  {share}{left}")

    return tell


def _rest() -> BarColumn:
    """A bar as wide as the other columns leave it: numbers are whole on a narrow terminal."""
    return BarColumn(bar_width=None, table_column=Column(ratio=1))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _epoch(line: dict[str, Any], epochs: int, best: bool) -> str:
    val = "not finite" if line["val_loss"] is None else f"{line['val_loss']:.3e}"
    return (
        f"epoch {line['epoch']}/{epochs}  step {line['step']}  train {line['train_loss']:.3e}  "
        f"val {val}{' (best)' if best else ''}  {_clock(line['seconds'])}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
