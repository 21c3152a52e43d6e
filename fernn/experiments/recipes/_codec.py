"""Recipes as JSON and back, and `key=value` changes of them; nothing is evaluated or unpickled."""

import ast
import dataclasses
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import fernn.flows
from fernn._nearest import nearest
from fernn.experiments.recipes._base import Data, Published, Recipe, Training
from fernn.flows import Flow
from fernn.groups import SE2
from fernn.models import MODELS

_VALUES = {
    **{name: getattr(fernn.flows, name) for name in ("Translation", "Rotation", "RigidMotion")},
    "SE2": SE2,
}
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The complete recipe as plain JSON values; a flow is {its class: its arguments}."""
    encoded = _encode(recipe)
    assert isinstance(encoded, dict)
    return encoded


def from_json(plain: Mapping[str, Any]) -> Recipe:
    """The recipe that `to_json` wrote.

    >>> from fernn.experiments.recipes import find
    >>> recipe = find("table1/translation/fernn-v2", "quick")
    >>> from_json(to_json(recipe)) == recipe
    True
    """
    try:
        parts = {name: _decode(value) for name, value in plain.items()}
        parts["published"] = Published(**parts["published"])
        parts["data"] = Data(**parts["data"] | {"canvas": tuple(parts["data"]["canvas"])})
        parts["training"] = Training(**parts["training"])
        parts["rates"] = tuple(parts.get("rates", ()))
        return Recipe(**parts)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"`recipe` must be what a run wrote, got one that lacks: {error}."
        ) from None


def changed(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe after `key=value` settings such as `training.epochs=3`, checked and typed.

    >>> from fernn.experiments.recipes import find
    >>> recipe = find("table1/translation/fernn-v2", "quick")
    >>> changed(recipe, ["options.flow=Translation(radius=1)"]).options["flow"]
    Translation(radius=1)
    """
    for setting in settings:
        key, equals, text = setting.partition("=")
        part, _, name = key.strip().partition(".")
        kinds = _kinds(recipe)
        if not equals:
            raise ValueError(
                f"`--set` must be key=value, such as training.epochs=3, got {setting!r}."
            )
        if f"{part}.{name}" not in kinds:
            raise ValueError(
                f"`--set` must be key=value with a key of this recipe, got {setting!r}."
                f"{nearest(key.strip(), kinds)} The keys are {', '.join(sorted(kinds))}."
            )
        value = _typed(key.strip(), text.strip(), kinds[f"{part}.{name}"])
        recipe = recipe.but(**{part: {name: value}})
    return recipe


def changes(recipe: Recipe, since: Recipe) -> tuple[str, ...]:
    """The settings that make the one recipe of the other, as `--set` takes them.

    A model's default is no change, nor is a setting that an older recipe did not know.

    >>> from fernn.experiments.recipes import find
    >>> recipe = find("table1/translation/fernn-v2", "quick")
    >>> changes(changed(recipe, ["options.flow=Translation(radius=1)"]), recipe)
    ('options.flow=Translation(radius=1)',)
    """
    has, had = recipe.settings(), since.settings()
    return tuple(
        f"{key}={has.get(key)}"
        for key in dict.fromkeys((*had, *has))
        if has.get(key) != had.get(key)
    )


def of_training(settings: Iterable[str]) -> bool:
    """Whether settings are of training alone, so that model and data are those of the recipe.

    >>> of_training(["training.epochs=3"]), of_training(["training.epochs=3", "data.horizon=5"])
    (True, False)
    """
    return all(setting.strip().startswith("training.") for setting in settings)


def _kinds(recipe: Recipe) -> dict[str, Any]:
    """Every key that can be set, and the type of its value."""
    kinds: dict[str, Any] = {}
    for part, made in (("data", Data), ("training", Training)):
        kinds |= {f"{part}.{name}": kind for name, kind in get_type_hints(made).items()}
    arguments = inspect.signature(MODELS[recipe.model].__init__).parameters
    hints = get_type_hints(MODELS[recipe.model].__init__)
    return kinds | {f"options.{name}": hints[name] for name in arguments if name != "self"}


def _typed(key: str, text: str, kind: Any) -> Any:
    """The text of a setting as a value of `kind`, or an error that says what is expected."""
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    value = _parse(text)
    for choice in choices:
        made = get_origin(choice) or choice
        if made is float and type(value) is int:
            return float(value)
        if made is tuple and isinstance(value, list):
            value = tuple(value)
        if isinstance(value, made) and (made is bool or not isinstance(value, bool)):
            if made is tuple and [type(item) for item in value] != [*get_args(choice)]:
                continue
            return value
    expected = " or ".join("None" if c is type(None) else _name(c) for c in choices)
    raise ValueError(f"`{key}` must be {expected}, got {text!r}.")


def _name(kind: Any) -> str:
    if kind is Flow:
        return "a flow such as Translation(radius=1)"
    return str(kind) if get_origin(kind) else str(kind.__name__)


def _parse(text: str) -> Any:
    """A literal, a word, or a flow as its repr writes it; anything else is text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError) as error:
        if text.partition("(")[0] in _VALUES:
            raise ValueError(f"`--set` cannot make {text!r}: {error}") from None
        return text


def _value(node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise ValueError(f"{ast.unparse(node)} is no number, text in quotes or list.") from None
    if not isinstance(node.func, ast.Name) or node.func.id not in _VALUES:
        raise ValueError(f"expected one of {', '.join(_VALUES)}.")
    named = {word.arg: _value(word.value) for word in node.keywords if word.arg is not None}
    return _VALUES[node.func.id](*(_value(argument) for argument in node.args), **named)


def _encode(value: object) -> object:
    if isinstance(value, Flow):
        return {type(value).__name__: _encode(value.config())}
    if isinstance(value, SE2):
        return {"SE2": {"orientations": value.orientations}}
    if dataclasses.is_dataclass(value):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _encode(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value


def _decode(value: object) -> Any:
    if not isinstance(value, dict):
        return value
    decoded = {name: _decode(item) for name, item in value.items()}
    if len(decoded) == 1 and (made := next(iter(decoded))) in _VALUES:
        return _VALUES[made](**decoded[made])
    return decoded
