"""Every number of the paper's tables, as data: the tables of this project stand beside them.

Source: T. A. Keller, Flow Equivariant Recurrent Neural Networks, NeurIPS 2025. A row is named as
its recipe is, so that `find` finds it for a recipe and for that recipe's variants.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MSE, ACCURACY = "mse", "accuracy"


@dataclass(frozen=True)
class Value:
    """One reported number: mean ± spread over `seeds`, None where the paper does not say."""

    table: str
    recipe: str
    section: str
    row: str
    mean: float
    spread: float | None
    unit: str
    seeds: int | None = None


_CLASSIFIERS = (
    ("cnn3d", "3D-CNN"),
    ("grnn-plus", "G-RNN+"),
    ("grnn", "G-RNN"),
    ("fernn-v1", "FERNN-V^T_1"),
    ("fernn-v2", "FERNN-V^T_2"),
)


def _kth(table: str, section: str, *numbers: tuple[float, float]) -> tuple[Value, ...]:
    """A table on KTH: five classifiers, in the paper's order."""
    return tuple(
        Value(table, f"table{table}/kth/{slug}", section, row, mean, spread, ACCURACY, 3)
        for (slug, row), (mean, spread) in zip(_CLASSIFIERS, numbers, strict=True)
    )


def _mse(
    table: str, part: str, section: str, seeds: int, *rows: tuple[str, str, float, float]
) -> tuple[Value, ...]:
    return tuple(
        Value(table, f"table{table}/{part}{slug}", section, row, mean, spread, MSE, seeds)
        for slug, row, mean, spread in rows
    )


VALUES: tuple[Value, ...] = (
    *_mse(
        "1",
        "translation/",
        "Translating MNIST, V^T_2",
        5,
        ("grnn", "G-RNN", 8.1e-3, 6e-4),
        ("fernn-v1", "FERNN-V^T_1", 5.3e-4, 8e-5),
        ("fernn-v2", "FERNN-V^T_2", 1.5e-4, 2e-5),
    ),
    *_mse(
        "1",
        "rotation/",
        "Rotating MNIST, V^R_4",
        5,
        ("grnn", "G-RNN", 4.0e-3, 5e-4),
        ("fernn-v2", "FERNN-V^R_2", 1.3e-3, 5e-5),
        ("fernn-v4", "FERNN-V^R_4", 6.1e-4, 3e-5),
    ),
    *_kth(
        "2",
        "Moving KTH, V^T_2",
        (0.626, 0.02),
        (0.639, 0.02),
        (0.665, 0.03),
        (0.698, 0.03),
        (0.716, 0.04),
    ),
    *_kth(
        "3",
        "Moving KTH, V^T_2, velocity switches half way",
        (0.59, 0.02),
        (0.62, 0.04),
        (0.65, 0.03),
        (0.69, 0.04),
        (0.69, 0.02),
    ),
    *_mse(
        "4",
        "",
        "Bouncing MNIST, V^T_2",
        3,
        ("grnn", "G-RNN", 2.5e-2, 3e-4),
        ("fernn-v2", "FERNN-V^T_2", 1.8e-2, 3e-4),
        ("fernn-v2-mixing", "FERNN-V^T_2 + V-mixing", 8.9e-3, 9e-4),
    ),
    *_kth(
        "5",
        "Moving KTH, V^T_2, velocities re-drawn every epoch",
        (0.742, 0.01),
        (0.662, 0.04),
        (0.684, 0.04),
        (0.694, 0.05),
        (0.751, 0.01),
    ),
    Value(
        "larger", "larger/kth", "Moving KTH, V^T_2", "G-RNN, 25× channels", 0.546, 0.01, ACCURACY
    ),
    Value(
        "larger",
        "larger/mnist",
        "Translating MNIST, V^T_2",
        "G-RNN, 8× channels",
        2.0e-3,
        None,
        MSE,
    ),
)


def rows(table: str) -> tuple[Value, ...]:
    """The rows of a table, in the paper's order.

    >>> [value.mean for value in rows("4")]
    [0.025, 0.018, 0.0089]
    """
    return tuple(value for value in VALUES if value.table == table)


def base(recipe: str, bases: Iterable[str] | None = None) -> str | None:
    """The row that a recipe is, or is a variant of: the longest one that its name begins with.

    >>> base("table1/translation/fernn-v2-published")
    'table1/translation/fernn-v2'
    >>> base("table4/fernn-v2-mixing"), base("table1/other/grnn")
    ('table4/fernn-v2-mixing', None)
    """
    known = [value.recipe for value in VALUES] if bases is None else bases
    found = [b for b in known if recipe == b or recipe.startswith((f"{b}-", f"{b}/"))]
    return max(found, key=len, default=None)
