"""Rotating digits: Table 1 and Figure 5, in the paper's construction and in the co-moving one."""

from collections.abc import Iterator

from fernn.experiments.recipes._base import Data, Published, Recipe, Training, published
from fernn.experiments.recipes._translation import transported
from fernn.flows import Rotation
from fernn.groups import SE2

ORIENTATIONS = 36  # C_36: every velocity of V^R_N is a multiple of its 10°


def row(name: str, label: str, count: int) -> Recipe:
    """Table 1, rotation: a row, on SE(2) with 32 channels in 36 orientations, in the lab frame."""
    flow, name = Rotation(count=4), f"table1/rotation/{name}"
    return Recipe(
        name=name,
        published=published(name, "Table 1, Rotating MNIST V^R_4", label),
        task="forecast",
        model="Forecaster",
        options={
            "flow": Rotation(count=count, group=SE2(ORIENTATIONS)),
            "hidden_channels": 32,
            "readout": "published",
            "frame": "lab",
        },
        data=Data("flowing", flow, test_flow=flow, canvas=(40, 40)),
        training=Training(epochs=50, batch_size=32, learning_rate=1e-4),
    )


def grnn() -> Recipe:
    """Table 1, rotation, G-RNN."""
    return row("grnn", "G-RNN", 0)


def fernn_v2() -> Recipe:
    """Table 1, rotation, FERNN-V^R_2."""
    return row("fernn-v2", "FERNN-V^R_2", 2)


def fernn_v4() -> Recipe:
    """Table 1, rotation, FERNN-V^R_4."""
    return row("fernn-v4", "FERNN-V^R_4", 4)


def comoving(recipe: Recipe) -> Recipe:
    """The same row with 128 ordinary channels in frames that turn with the velocities."""
    return recipe.but(
        name=f"{recipe.name}-comoving",
        options={
            "flow": Rotation(count=len(recipe.options["flow"]) // 2),
            "hidden_channels": 128,
            "frame": "comoving",
        },
    )


def slow(recipe: Recipe) -> Recipe:
    """Figure 5, rotation: train on V^R_1, test on each velocity of V^R_5."""
    return recipe.but(
        name=recipe.name.replace("table1", "fig5"),
        published=Published("Figure 5, train V^R_1, test V^R_5", recipe.published.row),
        data={"flow": Rotation(count=1), "test_flow": Rotation(count=5)},
    )


def every() -> Iterator[Recipe]:
    """The recipes of this file."""
    for made in (grnn(), fernn_v2(), fernn_v4()):
        yield from (made, transported(made), comoving(made), transported(comoving(made)))
    for made in (slow(grnn()), slow(fernn_v4())):
        yield from (made, transported(comoving(made)))
