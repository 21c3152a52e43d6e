"""Training a recipe: one function, on a CPU, a GPU, several of them or several machines.

record = train(find("table1/translation/fernn-v2", "quick"), seed=0)
"""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from fernn._files import sha256
from fernn.data import ClipArchive
from fernn.experiments import datasets, records, runs
from fernn.experiments.datasets import Source
from fernn.experiments.devices import DEVICES, PRECISIONS, described
from fernn.experiments.evaluate import evaluate
from fernn.experiments.fabric import launched, of_the_first, tf32
from fernn.experiments.flops import flops_per_sequence
from fernn.experiments.loop import DivergedError, Interrupted, Loop
from fernn.experiments.progress import Report
from fernn.experiments.recipes import Recipe, to_json

__all__ = ["DEVICES", "PRECISIONS", "DivergedError", "Interrupted", "train"]

STOPPING = (
    "stopping after this step or validation, and saving; again to stop sooner, without saving"
)


def train(
    recipe: Recipe,
    seed: int = 0,
    *,
    out: str | Path = runs.RUNS,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    precision: str = "32-true",
    root: Source | None = None,
    clips: Source | None = None,
    micro_batch: int | None = None,
    save_minutes: float = 10.0,
    report: Report | None = None,
) -> dict[str, Any] | None:
    """Train, or go on training, one run of a recipe; its record, None on ranks but the first.

    The run's folder is `runs.folder(out, recipe, seed)`; a finished run is returned as it is. Data
    and precision are the run's for good; device, devices and nodes may change when it goes on. The
    first rank alone needs the folder.

    - `root` is a folder with MNIST's files, `clips` an archive of labelled clips.
    - `device` is "auto", "cpu" or "cuda", and `devices` of them on each of `nodes` machines share
      every batch. Several start further processes of the same command.
    - `precision` is "32-true", "tf32", "bf16-mixed", "16-mixed" (with loss scaling) or "64-true".
    - `micro_batch` sequences at most go through a device at once; gradients are added up, so the
      steps stay the same (batch-norm sees micro-batches).
    - on one GPU the passes over a micro-batch become a CUDA graph after three of them, and steps
      are launched before the losses of earlier ones are known.
    - a checkpoint is written every `save_minutes` and at the end of each epoch.

    Ctrl-C ends the step or the validation, saves, then raises `Interrupted`; a second one raises
    `KeyboardInterrupt`. A loss that is not finite raises `DivergedError`; so does a gradient that
    overflows float16 where the loss is not scaled up any more.
    """
    report = Report() if report is None else report
    archive = datasets.clips(recipe, clips)
    source = datasets.source(recipe, root, archive)
    digest = None if archive is None else archive.sha256
    fabric = launched(device, devices, nodes, precision, micro_batch)
    environment = records.environment()  # of now: the code may change while it runs
    first, folder = fabric.is_global_zero, runs.folder(out, recipe, seed)
    cuda = [fabric.device] if fabric.device.type == "cuda" else []
    report = report if first else Report()  # one rank alone tells of the run
    with ExitStack() as holding, torch.random.fork_rng(devices=cuda), tf32(precision == "tf32"):

        def begin() -> dict[str, Any] | None:
            holding.enter_context(runs.held(folder))
            if not (folder / runs.RECIPE).exists():  # one that cannot be trained leaves no run
                holding.push(lambda _, error, __: _forget(folder, error))
            done = runs.begin(folder, recipe)
            if done is not None:
                runs.check_began(folder, done.get("precision"), precision, runs.PRECISION)
                kept = done.get("data"), done.get("data_sha256")
                runs.check_data(folder, kept, (source, digest))
            return done

        done = of_the_first(fabric, begin)
        if done is not None:
            report.say(f"{folder} is finished; remove it to train it again")
            return done if first else None
        report.say(described(fabric.device, fabric.world_size, precision))
        if fabric.device.type == "cpu" and recipe.scale != "quick":
            report.say(
                f"scale {recipe.scale} is made for a GPU and takes very long on a CPU; "
                "`--scale quick` is what fits one"
            )
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` seeds every GPU, too
        if cuda:
            with torch.cuda.device(fabric.device):
                torch.cuda.manual_seed(seed)
        train_videos, val_videos = (
            datasets.videos(
                recipe,
                split,
                seed=seed if split == "train" else 0,
                root=root,
                archive=archive,
                device=fabric.device,
            )
            for split in ("train", "val")
        )
        with _wish_to_stop(lambda: report.say(STOPPING)) as stop:
            loop = Loop(
                fabric,
                recipe,
                folder,
                train=train_videos,
                val=val_videos,
                source=source,
                digest=digest,
                precision=precision,
                environment=environment,
                report=report,
                micro_batch=micro_batch,
                save_minutes=save_minutes,
                stop=stop,
            )
            loop.run()
        if not first:
            return None
        return _finish(loop, seed, precision, root, archive)


def _forget(folder: Path, error: BaseException | None) -> None:
    if isinstance(error, ValueError) and not isinstance(error, DivergedError):
        runs.forget(folder)


def _finish(
    loop: Loop, seed: int, precision: str, root: Source | None, archive: ClipArchive | None
) -> dict[str, Any]:
    """Evaluate the best weights on the test split, and write the record."""
    recipe, progress, fabric = loop.recipe, loop.progress, loop.fabric
    if not loop.state.best:
        raise DivergedError(
            f"no validation of {recipe.name!r} had a finite loss, so there are no best weights. "
            "Lower `training.learning_rate`."
        )
    runs.insist(loop.write_best, loop.report.say)
    loop.report.say("evaluating the best weights on the test split")
    model: nn.Module = loop.best_model()
    parameters = sum(p.numel() for p in model.parameters())
    # In batches that are known to fit; the numbers do not depend on them.
    fitting = recipe.but(training={"batch_size": progress.micro_batch})
    cuda = fabric.device.type == "cuda"
    low = cuda and precision not in ("32-true", "64-true")  # float32, multiplied at least as well
    with tf32(low):
        metrics = evaluate(
            model.float(),
            fitting,
            device=fabric.device,
            root=root,
            archive=archive,
            progress=loop.report.evaluated,
        )
    record: dict[str, Any] = {
        "recipe": to_json(recipe),
        "name": recipe.name,
        "scale": recipe.scale,
        "seed": seed,
        "environment": loop.environment,
        "commits": progress.commits,
        "device": str(fabric.device),
        "processes": fabric.world_size,
        "data": progress.source,
        "data_sha256": progress.digest,
        "precision": precision,
        "evaluation_precision": "tf32" if low else "32-true",
        "micro_batch": progress.micro_batch,
        "parameters": parameters,
        "flops_per_sequence": flops_per_sequence(recipe),
        "sequences_per_second": progress.sequences / progress.train_seconds,
        "peak_memory_bytes": progress.peak_memory if cuda else None,
        "wall_seconds": progress.seconds,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "val_loss": progress.best_loss,
        "best_sha256": sha256(loop.folder / runs.BEST),
        "metrics": metrics,
        "curve": progress.curve,
    }
    runs.insist(lambda: runs.write_curve(loop.folder, progress.curve), loop.report.say)
    runs.insist(lambda: records.write(loop.folder / runs.RECORD, record), loop.report.say)
    return record


@contextmanager
def _wish_to_stop(tell: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C and SIGTERM into a wish that the loop asks for; a second one stops at once.

    `tell` is called at the first, in a thread: Python runs no handler before the call into PyTorch
    that it is in returns, and a backward pass may take minutes. Nor does it count: of two signals
    in one call the handler hears as of one, the thread as of two.
    """
    wished, heard = threading.Event(), 0
    if threading.current_thread() is not threading.main_thread():
        yield wished.is_set  # signals belong to the main thread
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def wish(number: int, frame: FrameType | None) -> None:
        wished.set()
        signal.signal(number, before[signal.Signals(number)])
        if heard > 1:
            signal.raise_signal(number)

    def listen() -> None:
        nonlocal heard
        while byte := ear.recv(1):
            heard += byte[0] in signals
            if heard == 1 and byte[0] in signals:
                tell()

    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    wakened = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, wish)
    try:
        yield wished.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakened)
        mouth.shutdown(socket.SHUT_WR)  # the listener hears the end, also where a fork kept a copy
        mouth.close()
        listener.join()
        ear.close()
