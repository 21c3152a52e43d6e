"""Clips under a moving camera, KTH and a stand-in: Tables 2, 3, 5, Figure 8, ×25 channels."""

from collections.abc import Iterable, Iterator
from typing import Any

from fernn.experiments.recipes._base import Data, Published, Recipe, Training, published
from fernn.flows import Translation

ARCHIVES = ("kth", "actions")
RATES = (3e-3, 1e-3, 3e-4, 1e-4)


def cnn3d(archive: str) -> Recipe:
    """Table 2, 3D-CNN."""
    return grnn(archive).but(
        name=f"table2/{archive}/cnn3d",
        published={"row": "3D-CNN"},
        model="CNN3D",
        options={},
        training={"learning_rate": 1e-3},
    )


def grnn(archive: str) -> Recipe:
    """Table 2, G-RNN: the parent of every recipe here."""
    flow = Translation(radius=2)
    return Recipe(
        name=f"table2/{archive}/grnn",
        published=Published("Table 2, Moving KTH V^T_2", "G-RNN"),
        task="classify",
        model="Classifier",
        data=Data("clips", flow, test_flow=flow, canvas=(32, 32), archive=archive),
        training=Training(epochs=500, batch_size=32, learning_rate=3e-4),
        seeds=3,
        rates=RATES,
    )


def classifier(archive: str, name: str, label: str, **options: Any) -> Recipe:
    """Table 2: a recurrent row with these options of its model."""
    options = {"flow": Translation(radius=0), "hidden_channels": 128} | options
    return grnn(archive).but(
        name=f"table2/{archive}/{name}", published={"row": label}, options=options
    )


def table2(archive: str) -> tuple[Recipe, ...]:
    """Table 2: five models on clips that move with V^T_2."""
    near, far = Translation(radius=1), Translation(radius=2)
    rows = (
        cnn3d(archive),
        classifier(archive, "grnn-plus", "G-RNN+", flow=far, transport="learned"),
        classifier(archive, "grnn", "G-RNN"),
        classifier(archive, "fernn-v1", "FERNN-V^T_1", flow=near),
        classifier(archive, "fernn-v2", "FERNN-V^T_2", flow=far),
    )
    return _reported(rows, "Table 2, Moving KTH V^T_2")


def table3(archive: str) -> tuple[Recipe, ...]:
    """Table 3: the velocity switches half way."""
    rows = tuple(_moved(row, f"table3/{archive}", switch=True) for row in table2(archive))
    return _reported(rows, "Table 3, Moving KTH V^T_2, velocity switches half way")


def table5(archive: str) -> tuple[Recipe, ...]:
    """Table 5: velocities are drawn anew in every epoch."""
    rows = tuple(_moved(row, f"table5/{archive}", redraw=True) for row in table2(archive))
    return _reported(rows, "Table 5, Moving KTH V^T_2, redrawn in every epoch")


def fig8(archive: str, radius: int) -> tuple[Recipe, ...]:
    """Figure 8: train on V^T_0 or V^T_1; the evaluation tries V^T_0, V^T_1 and V^T_2."""
    where = f"Figure 8, Moving KTH, train V^T_{radius}"
    folder = f"fig8/{archive}/v{radius}"
    rows = (_moved(row, folder, flow=Translation(radius=radius)) for row in table2(archive))
    return _reported(rows, where)


def larger(archive: str) -> Recipe:
    """The larger baseline: a G-RNN with 25 times the channels of recurrence and encoder."""
    made = classifier(archive, "grnn", "G-RNN ×25", hidden_channels=25 * 128)
    made = made.but(name=f"larger/{archive}")
    return _reported((made,), "Larger baselines, Moving KTH V^T_2")[0]


def _moved(recipe: Recipe, folder: str, **data: Any) -> Recipe:
    slug = recipe.name.rpartition("/")[2]
    return recipe.but(name=f"{folder}/{slug}", data=data)


def _reported(rows: Iterable[Recipe], where: str) -> tuple[Recipe, ...]:
    """The rows with what the paper reports of them, which for a stand-in is nothing."""
    made = []
    for recipe in rows:
        kth = recipe.data.archive == "kth"
        about = where if kth else where.replace("Moving KTH", "stand-in for KTH")
        made.append(recipe.but(published=published(recipe.name, about, recipe.published.row)))
    return tuple(made)


def every() -> Iterator[Recipe]:
    """The recipes of this file."""
    for archive in ARCHIVES:
        yield from table2(archive)
        yield from table3(archive)
        yield from table5(archive)
        yield from fig8(archive, 0)
        yield from fig8(archive, 1)
        yield larger(archive)
