"""Numbers as tables write them."""

from fernn.experiments import paper


def duration(seconds: float) -> str:
    """A time that a person can read.

    >>> duration(5400), duration(90)
    ('1.5 h', '1.5 min')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def number_text(mean: float, spread: float | None, unit: str, *, digits: int = 1) -> str:
    """A mean with its spread, as the paper writes them.

    >>> number_text(1.5e-4, 2e-5, "mse"), number_text(0.716, 0.04, "accuracy")
    ('1.5e-4 ± 2e-5', '0.716 ± 0.040')
    """
    if unit == paper.ACCURACY:
        return f"{mean:.3f}" + ("" if spread is None else f" ± {spread:.3f}")
    text = _scientific(mean, digits)
    return text if spread is None else f"{text} ± {_scientific(spread, digits - 1)}"


def _scientific(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
