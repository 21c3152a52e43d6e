"""What a figure shows, for tests: its lines, its words, itself."""

import matplotlib

from fernn.experiments import figures


def lines(figure):
    """Label to data of every labelled line."""
    return {
        line.get_label(): line.get_xydata()
        for axes in figure.get_axes()
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def texts(figure):
    return " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def draw(number, found, **options):
    return figures.compose(figures.panels(number, found, **options))
