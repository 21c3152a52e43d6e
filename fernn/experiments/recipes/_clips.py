"""Clips under a moving camera, KTH and a stand-in: Tables 2, 3, 5, Figure 8, ×25 channels."""

from collections.abc import Iterator
from typing import Any

from fernn.experiments.recipes._base import Data, Published, Recipe, Training
from fernn.flows import Translation

ARCHIVES = ("kth", "actions")
RATES = (3e-3, 1e-3, 3e-4, 1e-4)
_ROWS = ("cnn3d", "grnn-plus", "grnn", "fernn-v1", "fernn-v2")
_TABLE2 = ((0.626, 0.02), (0.639, 0.02), (0.665, 0.03), (0.698, 0.03), (0.716, 0.04))
_TABLE3 = ((0.59, 0.02), (0.62, 0.04), (0.65, 0.03), (0.69, 0.04), (0.69, 0.02))
_TABLE5 = ((0.742, 0.01), (0.662, 0.04), (0.684, 0.04), (0.694, 0.05), (0.751, 0.01))


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
    return _reported(rows, "Table 2, Moving KTH V^T_2", _TABLE2)


def table3(archive: str) -> tuple[Recipe, ...]:
    """Table 3: the velocity switches half way."""
    rows = tuple(_moved(row, f"table3/{archive}", switch=True) for row in table2(archive))
    return _reported(rows, "Table 3, Moving KTH V^T_2, velocity switches half way", _TABLE3)


def table5(archive: str) -> tuple[Recipe, ...]:
    """Table 5: velocities are drawn anew in every epoch."""
    rows = tuple(_moved(row, f"table5/{archive}", redraw=True) for row in table2(archive))
    return _reported(rows, "Table 5, Moving KTH V^T_2, redrawn in every epoch", _TABLE5)


def fig8(archive: str, radius: int) -> tuple[Recipe, ...]:
    """Figure 8: train on V^T_0 or V^T_1; the evaluation tries V^T_0, V^T_1 and V^T_2."""
    where = f"Figure 8, Moving KTH, train V^T_{radius}"
    folder = f"fig8/{archive}/v{radius}"
    rows = (_moved(row, folder, flow=Translation(radius=radius)) for row in table2(archive))
    return _reported(tuple(rows), where, ((None, None),) * len(_ROWS))


def larger(archive: str) -> Recipe:
    """The larger baseline: a G-RNN with 25 times the channels of recurrence and encoder."""
    made = classifier(archive, "grnn", "G-RNN ×25", hidden_channels=25 * 128)
    made = made.but(name=f"larger/{archive}")
    return _reported((made,), "Larger baselines, Moving KTH V^T_2", ((0.546, 0.01),))[0]


def _moved(recipe: Recipe, folder: str, **data: Any) -> Recipe:
    slug = recipe.name.rpartition("/")[2]
    return recipe.but(name=f"{folder}/{slug}", data=data)


def _reported(
    rows: tuple[Recipe, ...], where: str, values: tuple[tuple[float | None, float | None], ...]
) -> tuple[Recipe, ...]:
    """The rows with what the paper reports of them, which for a stand-in is nothing."""
    made = []
    for recipe, (mean, spread) in zip(rows, values, strict=True):
        if recipe.data.archive != "kth":
            about = where.replace("Moving KTH", "stand-in for KTH")
            published = Published(about, recipe.published.row)
        else:
            published = Published(where, recipe.published.row, mean, spread)
        made.append(recipe.but(published=published))
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
