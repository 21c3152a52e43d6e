"""Translating and bouncing digits: Tables 1 and 4, Figures 5 and 6, larger baseline, runtime."""

from collections.abc import Iterator
from typing import Any

from fernn.experiments.recipes._base import Data, Published, Recipe, Training, published
from fernn.flows import Translation


def row(name: str, label: str, radius: int) -> Recipe:
    """Table 1, translation: a row."""
    flow, name = Translation(radius=2), f"table1/translation/{name}"
    return Recipe(
        name=name,
        published=published(name, "Table 1, Translating MNIST V^T_2", label),
        task="forecast",
        model="Forecaster",
        options={
            "flow": Translation(radius=radius),
            "hidden_channels": 128,
            "readout": "published",
        },
        data=Data("flowing", flow, test_flow=flow, canvas=(28, 28)),
        training=Training(epochs=50, batch_size=128, learning_rate=1e-4, clip=1.0),
    )


def grnn() -> Recipe:
    """Table 1, translation, G-RNN."""
    return row("grnn", "G-RNN", 0)


def fernn_v1() -> Recipe:
    """Table 1, translation, FERNN-V^T_1."""
    return row("fernn-v1", "FERNN-V^T_1", 1)


def fernn_v2() -> Recipe:
    """Table 1, translation, FERNN-V^T_2."""
    return row("fernn-v2", "FERNN-V^T_2", 2)


def transported(recipe: Recipe) -> Recipe:
    """The same row with the readout that carries each slice on before pooling, as V moves."""
    return recipe.but(name=f"{recipe.name}-transported", options={"readout": "transported"})


def slow(recipe: Recipe) -> Recipe:
    """Figure 5, translation: train on V^T_1, test on each velocity of V^T_2."""
    return recipe.but(
        name=recipe.name.replace("table1", "fig5"),
        published=Published("Figure 5, train V^T_1, test V^T_2", recipe.published.row),
        data={"flow": Translation(radius=1)},
    )


def columns(*velocities: int) -> Translation:
    """Velocities along the columns alone."""
    return Translation(velocities=[(0, velocity) for velocity in velocities])


def interpolating(*velocities: int) -> Recipe:
    """Figure 6: a model of these x-velocities on digits of every x-velocity from −5 to 5."""
    number = len(velocities)
    every = columns(*range(-5, 6))
    return fernn_v2().but(
        name=f"fig6/fernn-{number}" if number > 1 else "fig6/grnn",
        published=Published("Figure 6, x-velocities −5 to 5", f"V = {set(velocities)}"),
        data={"flow": every, "test_flow": every},
        options={"flow": columns(*velocities)},
    )


def bouncing(name: str, label: str, **options: Any) -> Recipe:
    """Table 4, Bouncing MNIST: a row."""
    name = f"table4/{name}"
    return fernn_v2().but(
        name=name,
        published=published(name, "Table 4, Bouncing MNIST V^T_2", label),
        data={"kind": "bouncing", "canvas": (28, 48)},
        options=options,
        seeds=3,
    )


def bouncing_grnn() -> Recipe:
    """Table 4, G-RNN."""
    return bouncing("grnn", "G-RNN", flow=Translation(radius=0))


def bouncing_fernn() -> Recipe:
    """Table 4, FERNN-V^T_2."""
    return bouncing("fernn-v2", "FERNN-V^T_2")


def bouncing_mixing() -> Recipe:
    """Table 4, FERNN-V^T_2 with the full kernel over velocity differences."""
    return bouncing("fernn-v2-mixing", "FERNN-V^T_2 + V-mixing", mixing="full")


def bouncing_mixing_near() -> Recipe:
    """Beside Table 4: velocities that mix with their neighbours alone, a ninth of the kernel."""
    return bouncing("fernn-v2-mixing-near", "FERNN-V^T_2 + V-mixing, radius 1", mixing=1)


def larger() -> Recipe:
    """The larger baseline: a G-RNN with eight times the channels on Translating MNIST."""
    return grnn().but(
        name="larger/mnist",
        published=published(
            "larger/mnist", "Larger baselines, Translating MNIST V^T_2", "G-RNN ×8"
        ),
        options={"hidden_channels": 8 * 128},
    )


def runtime(number: int) -> Recipe:
    """Runtime and memory against |V|: one epoch with this many x-velocities."""
    velocities = columns(*range(-(number // 2), (number + 1) // 2))
    return fernn_v2().but(
        name=f"runtime/v{number}",
        published=Published("Runtime and memory against |V|", f"{number} x-velocities"),
        data={"flow": columns(*range(-5, 6)), "test_flow": columns(*range(-5, 6))},
        options={"flow": velocities},
        training={"epochs": 1},
        seeds=1,
    )


def every() -> Iterator[Recipe]:
    """The recipes of this file."""
    for made in (grnn(), fernn_v1(), fernn_v2()):
        yield from (made, transported(made))
    for made in (slow(grnn()), slow(fernn_v2())):
        yield from (made, transported(made))
    for velocities in ((0,), (-3, 0, 3), (-5, -3, -1, 0, 1, 3, 5), tuple(range(-5, 6))):
        made = interpolating(*velocities)
        yield from (made, transported(made))
    yield from (bouncing_grnn(), bouncing_fernn(), bouncing_mixing(), bouncing_mixing_near())
    yield larger()
    yield from (runtime(number) for number in range(1, 12))
