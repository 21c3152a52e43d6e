"""V^T_2 with its indices where they belong, in pictures and in HTML."""

import html
import re

_VELOCITY_SET = re.compile(r"V\^([TR])_(\w+)")


def as_mathtext(text: str) -> str:
    """For matplotlib.

    >>> as_mathtext("FERNN-V^T_2")
    'FERNN-$V^T_2$'
    """
    return _VELOCITY_SET.sub(r"$V^\1_\2$", text)


def as_html(text: str) -> str:
    """For a page, everything else escaped.

    >>> as_html("V^T_2 < 3")
    '<i>V</i><sup>T</sup><sub>2</sub> &lt; 3'
    """
    return _VELOCITY_SET.sub(r"<i>V</i><sup>\1</sup><sub>\2</sub>", html.escape(text))
