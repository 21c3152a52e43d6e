"""Recipes: a complete, frozen configuration for every row of every table and figure."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from fernn._nearest import nearest
from fernn.experiments.recipes import _clips, _rotation, _translation, _wrapper
from fernn.experiments.recipes._base import SCALES, Data, Published, Recipe, Training
from fernn.experiments.recipes._codec import changed, changes, from_json, of_training, to_json

__all__ = [
    "SCALES",
    "Data",
    "Published",
    "Recipe",
    "Training",
    "changed",
    "changes",
    "find",
    "from_json",
    "of_training",
    "original",
    "recipes",
    "to_json",
]


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name, at scale "paper", in the order of the paper.

    >>> [name for name in recipes() if name.startswith("table4")]
    ['table4/grnn', 'table4/fernn-v2', 'table4/fernn-v2-mixing', 'table4/fernn-v2-mixing-near']
    """
    return dict(_every())


@cache
def _every() -> Mapping[str, Recipe]:
    made = (*_translation.every(), *_rotation.every(), *_clips.every(), *_wrapper.every())
    order = ("table", "fig", "larger", "runtime", "wrapper")
    rank = {
        recipe.name: [recipe.name.startswith(start) for start in order].index(True)
        for recipe in made
    }
    listed = sorted(made, key=lambda recipe: (rank[recipe.name], recipe.name.partition("/")[0]))
    return MappingProxyType({recipe.name: recipe for recipe in listed})


def find(name: str, scale: str = "paper") -> Recipe:
    """The recipe of this name at this scale; a name that nobody has suggests the nearest."""
    known = recipes()
    if name not in known:
        if any(other.startswith(f"{name.rstrip('/')}/") for other in known):
            raise ValueError(
                f"`recipe` must be one recipe, got {name!r}, which is several; "
                f"`fernn reproduce {name}` trains them all, `fernn list {name}` names them."
            )
        raise ValueError(
            "`recipe` must be one of those that `fernn list` shows, got "
            f"{name!r}.{nearest(name, known)}"
        )
    return known[name].at(scale)


def original(recipe: Recipe) -> Recipe | None:
    """The recipe that this one is, or was changed from; None for a name that nobody has."""
    known = _every().get(recipe.name)
    return None if known is None else known.at(recipe.scale)
