"""Beside the paper: other sequence models on translating digits, alone and in moving frames."""

from collections.abc import Iterator

from fernn.experiments.recipes._base import Published, Recipe
from fernn.experiments.recipes._translation import fernn_v2
from fernn.flows import Translation

_LABELS = {"convgru": "ConvGRU", "attention": "attention"}


def alone(sequence: str) -> Recipe:
    """A sequence model by itself, trained as the rows of Table 1 are.

    64 channels, half of Table 1's: a ConvGRU has three recurrent convolutions, a G-RNN one.
    """
    parent = fernn_v2()
    return Recipe(
        name=f"wrapper/{sequence}",
        published=Published("Beside the paper: Translating MNIST V^T_2", _LABELS[sequence]),
        task="forecast",
        model="SequenceForecaster",
        options={"sequence": sequence, "flow": Translation(radius=0), "hidden_channels": 64},
        data=parent.data,
        training=parent.training,
        seeds=3,
    )


def wrapped(recipe: Recipe) -> Recipe:
    """The same model inside `FlowEquivariant`, in the frames of V^T_2; it has the same weights."""
    return recipe.but(
        name=f"{recipe.name}-flow",
        published={"row": f"{recipe.published.row} in moving frames"},
        options={"flow": Translation(radius=2)},
    )


def every() -> Iterator[Recipe]:
    """The recipes of this file."""
    for sequence in _LABELS:
        yield from (alone(sequence), wrapped(alone(sequence)))
