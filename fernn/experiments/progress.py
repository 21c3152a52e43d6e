"""How a run tells of itself: bars on a terminal, plain lines in a log, silence in a library."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

EVERY_SECONDS = 30.0  # between two plain lines, unless something happens


class Report:
    """Says nothing; the reports that do are made from it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The end of the run, however it came."""

    def begin(self, name: str, done: int, steps: int) -> None:
        """The run has `steps` steps, of which `done` are done."""

    def step(self, done: int, loss: float, rate: float) -> None:
        """A step is done: its loss, and sequences a second."""

    def validated(self, line: dict[str, Any], epochs: int, *, best: bool) -> None:
        """An epoch is done: a line of the curve."""

    def say(self, text: str) -> None:
        """Something that the user should know."""


class Lines(Report):
    """One line now and then, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = self._last = time.monotonic()
        self._first = self._steps = 0

    def begin(self, name: str, done: int, steps: int) -> None:
        self._begun = self._last = time.monotonic()
        self._first, self._steps = done, steps
        self.say(f"{name}: step {done} of {steps}")

    def step(self, done: int, loss: float, rate: float) -> None:
        now = time.monotonic()
        if now - self._last < EVERY_SECONDS:
            return
        self._last = now
        left = (now - self._begun) / max(1, done - self._first) * (self._steps - done)
        self.say(
            f"step {done}/{self._steps}  loss {loss:.3e}  {rate:.1f} seq/s  ETA {_clock(left)}"
        )

    def validated(self, line: dict[str, Any], epochs: int, *, best: bool) -> None:
        self.say(_epoch(line, epochs, best))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """A progress bar with the time left, the loss and sequences a second.

    The numbers are whole however narrow the terminal is, and the bar has the rest of it. The run
    is named above: by what was typed, or by a line of the command that trains many.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._task: TaskID | None = None
        self._bar = Progress(
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]} seq/s"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, name: str, done: int, steps: int) -> None:
        self._task = self._bar.add_task("", total=steps, completed=done, loss="–", rate="–")

    def step(self, done: int, loss: float, rate: float) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=done, loss=f"{loss:.3e}", rate=f"{rate:.1f}")


def report_for(console: Console) -> Report:
    """Bars where the console is a terminal, plain lines where it is not."""
    return Bars(console) if console.is_terminal else Lines(console)


def _epoch(line: dict[str, Any], epochs: int, best: bool) -> str:
    val = "not finite" if line["val_loss"] is None else f"{line['val_loss']:.3e}"
    return (
        f"epoch {line['epoch']}/{epochs}  step {line['step']}  train {line['train_loss']:.3e}  "
        f"val {val}{' (best)' if best else ''}  {_clock(line['seconds'])}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
