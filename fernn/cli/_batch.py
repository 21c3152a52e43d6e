"""Many runs, one after the other: what `fernn reproduce` does with the rows it was asked for."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fernn.cli._app import console
from fernn.experiments import runs, search
from fernn.experiments.recipes import Recipe

_NAMED = 4  # rows that a line about many runs names


class Job(NamedTuple):
    """One run that `reproduce` asks for: of a row, at the rate of a trial."""

    recipe: Recipe
    trial: Recipe
    seed: int

    @property
    def label(self) -> str:
        rate = self.trial.training.learning_rate
        own = rate == self.recipe.training.learning_rate
        return f"{self.recipe.name}, seed {self.seed}" + f", learning rate {rate:g}" * (not own)


class Batch:
    """The runs of one `reproduce`, and what became of each."""

    def __init__(
        self,
        run: Callable[..., dict[str, Any] | None],
        out: Path,
        jobs: Sequence[Job],
        *,
        searching: bool,
        alone: bool,
    ) -> None:
        self.run, self.out, self.jobs = run, out, jobs
        self.searching, self.alone = searching, alone
        self.tells = alone or _is_first()
        self.failed: dict[str, str] = {}  # label to reason
        self.losses: dict[str, float | None] = {}  # of runs that are done, None where one diverged
        self.elsewhere: list[Job] = []

    def leave_out(self, lacking: Mapping[str, str]) -> None:
        """Leave out the rows that lack something, and say so before what may take days."""
        names = {job.label: job.recipe.name for job in self.jobs}
        self.failed = {label: lacking[name] for label, name in names.items() if name in lacking}
        if len(self.failed) < len(self.jobs):
            self._print_failed()

    def train(self, **options: Any) -> None:
        """Train one after the other, then come back once to those that others were training."""
        todo = [job for job in self.jobs if job.label not in self.failed]
        for turn in ("", "once more, "):
            self.elsewhere = []
            for number, job in enumerate(todo, start=1):
                self._say(f"[bold]{turn}{number} of {len(todo)}: {job.label}[/]")
                self._train(job, options)
            todo = self.elsewhere

    def _train(self, job: Job, options: Mapping[str, Any]) -> None:
        from fernn.experiments.train import DivergedError

        try:
            record = self.run(job.trial, job.seed, self.out, **options)
            if record is not None:  # the first process alone has it
                self.losses[job.label] = record["val_loss"]
        except DivergedError as error:
            if self.searching:
                self.losses[job.label] = None  # a rate that is too high is a result of the search
                self._say(f"{job.label} diverged")
            else:
                self.failed[job.label] = str(error)
        except (ValueError, OSError) as error:
            if not self.alone:
                raise  # the other processes are inside this run and would not follow to the next
            if isinstance(error, runs.HeldError):
                self.elsewhere.append(job)
                self._say("being trained elsewhere; left for later")
            else:
                self.failed[job.label] = str(error)

    def choose(self, wanted: Iterable[Recipe]) -> None:
        """Choose the rate of every row whose trials are all done."""
        for recipe in wanted:
            trials = [job for job in self.jobs if job.recipe.name == recipe.name]
            if not recipe.rates or any(job.label not in self.losses for job in trials):
                continue
            losses: dict[float, list[float | None]] = {}
            for job in trials:
                seen = losses.setdefault(job.trial.training.learning_rate, [])
                seen.append(self.losses[job.label])
            try:
                rate = search.choose(self.out, recipe, losses)["learning_rate"]
                self._say(f"{recipe.name}: learning rate {rate:g} is the best on validation")
            except ValueError as error:
                self.failed[recipe.name] = str(error)

    def print_end(self) -> None:
        """How many runs are done, how many others train, and why the rest is not done."""
        left = sum(job.label in self.failed for job in self.jobs) + len(self.elsewhere)
        self._say(f"{len(self.jobs) - left} of {len(self.jobs)} runs are done, in {self.out}")
        if self.elsewhere:
            are = "is" if len(self.elsewhere) == 1 else "are"
            self._say(f"{len(self.elsewhere)} more {are} being trained elsewhere")
        self._print_failed()

    def _print_failed(self) -> None:
        """A line a reason; one that many runs share names the first rows."""
        by_reason: dict[str, list[str]] = {}
        for label, why in self.failed.items():
            by_reason.setdefault(why, []).append(label)
        for why, labels in by_reason.items():
            if len(labels) == 1:
                self._say(f"not done: {labels[0]}: {why}", markup=False)
                continue
            rows = list(dict.fromkeys(label.partition(",")[0] for label in labels))
            more = f" and {len(rows) - _NAMED} more rows" * (len(rows) > _NAMED)
            self._say(f"not done: {len(labels)} runs: {why}", markup=False)
            self._say(f"  of {', '.join(rows[:_NAMED])}{more}")

    def _say(self, line: str, *, markup: bool = True) -> None:
        if self.tells:
            console.print(line, markup=markup, highlight=False, soft_wrap=True)


def _is_first() -> bool:
    """Whether this is the first of the processes that share a run, by what their launchers set."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
    ranks = (os.environ.get(name, "") for name in names)
    return not any(rank.isdecimal() and int(rank) for rank in ranks)
