"""What several figures have in common (extra `plots`): colours, files, axes, bars."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# Okabe and Ito's colours and two of Tol's, which colour-blind readers can tell apart, with a marker each for print: as many as the paper's
# main table has methods.
STYLES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
    ("#882255", "*"),
    ("#999933", "<"),
]
LINES = ["-", "--", ":", "-."]  # for the second, third, … round of the colours
BLUE, ORANGE, GREEN = (colour for colour, _ in STYLES[:3])
GREY = "#666666"
LEGEND_WIDTH = 44  # characters
FEW_NAMES = 40  # layers that an axis can name
PARTICLE, AVERAGE = "#9CC4E4", ORANGE  # light and dark, so that print without colours tells them apart too
FORMATS = (".png", ".svg", ".pdf")


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up to write files."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("pictures need matplotlib: pip install 'swamp[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def check_picture(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise ValueError(f"a picture's name ends in {', '.join(FORMATS)}, not {out.name!r}")


def finished(figure: Any, out: Path) -> bytes:
    """Close a figure, and return it as the bytes of the file `out`."""
    try:
        return encoded(figure, out.suffix, 160)
    finally:
        pyplot().close(figure)


def encoded(figure: Any, suffix: str, dpi: int) -> bytes:
    """Return a finished figure as the bytes of a file: equal results give equal files, and text in them stays text."""
    plt, image = pyplot(), io.BytesIO()
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
    with plt.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "swamp"}):
        figure.savefig(image, format=suffix[1:], dpi=dpi, metadata=dates[suffix])
    return image.getvalue()


def style(index: int) -> dict[str, Any]:
    """Return the colour, marker and line of the series of this number."""
    colour, marker = STYLES[index % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": LINES[index // len(STYLES) % len(LINES)]}


def shades(plt: Any, count: int) -> list[Any]:
    """Return colours from dark to light along a colour map that stays ordered in grey and for colour-blind readers."""
    return [plt.get_cmap("viridis")(0.85 * index / max(count - 1, 1)) for index in range(count)]


def text(label: str) -> str:
    """Escape a text for a picture: a dollar sign in it begins no formula."""
    return label.replace("$", r"\$")


def few(names: Sequence[str], most: int) -> list[str]:
    """Return the names for the ticks of an axis or the lines of a legend, which has room for `most` of them. If there are more, only some
    stay, the first and the last among them, and the others become empty.

    >>> few(["0", "1", "2", "3", "4"], 3), few(["0", "1", "2", "3", "4", "5"], 3)
    (['0', '', '2', '', '4'], ['0', '', '', '3', '', '5'])
    """
    kept = spread_out(len(names), most)
    return [name if index in kept else "" for index, name in enumerate(names)]


def spread_out(count: int, most: int) -> list[int]:
    """Return at most so many of the first numbers, evenly spread backwards from the last, and 0.

    >>> spread_out(4, 4), spread_out(14, 7)
    ([0, 1, 2, 3], [0, 3, 5, 7, 9, 11, 13])
    """
    kept = sorted(range(count - 1, -1, -(-(-count // most) or 1)))
    return [0, *kept[1:]] if len(kept) > 1 else kept


def axis_label(label: str) -> str:
    """Return what is measured with its unit as axes of papers have it.

    >>> axis_label("test error %"), axis_label("test loss")
    ('test error (%)', 'test loss')
    """
    return label.replace(" %", " (%)")


def legend_label(label: str) -> str:
    """Return a label for a legend, in several lines where it names many settings: a wide legend would leave no room for the axes."""
    return textwrap.fill(text(label), LEGEND_WIDTH, break_on_hyphens=False)


def legend_width(labels: Iterable[str]) -> float:
    """Return how many inches a legend beside the axes takes."""
    return 0.55 + 0.075 * max(map(len, _legend_lines(labels)), default=0)


def legend_height(labels: Iterable[str]) -> float:
    """Return how many inches a legend takes from top to bottom."""
    return 0.3 + 0.205 * len(_legend_lines(labels))


def _legend_lines(labels: Iterable[str]) -> list[str]:
    return [line for label in labels for line in legend_label(label).splitlines()]


def tidy(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def density_axes(axes: Any, names: Sequence[str]) -> None:
    """Label axes that show the layers from left to right and, upwards, the share of its weights that remains of each, in %. The scale is
    logarithmic. It has a zero where a layer has less than 1 % left; elsewhere it begins a little below the least share."""
    least = min((value for line in axes.lines for value in line.get_ydata()), default=0)
    if least < 1:
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 130)
    else:
        axes.set_yscale("log")
        axes.set_ylim(min(0.8 * least, 50), 130)
    ticks = [tick for tick in (0, 1, 3, 10, 30, 100) if tick >= axes.get_ylim()[0]]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    every = -(-len(names) // FEW_NAMES)
    axes.set_xticks(range(0, len(names), every), [text(name.removesuffix(".weight")) for name in names[::every]], rotation=90, fontsize=8)
    axes.set_ylabel("weights that remain (%)")
    tidy(axes)


def bars(axes: Any, place: int, particles: Sequence[float], average: float, spread: float | None = None) -> None:
    """Draw a group of bars around a place on the axis: the particles, then their average. The first group has the labels."""
    width = 0.84 / (len(particles) + 1)
    for index, value in enumerate([*particles, average]):
        last, x = index == len(particles), place + (index - len(particles) / 2) * width
        label = None if place or (index and not last) else "their average" if last else "particles"
        axes.bar(x, value, 0.92 * width, color=AVERAGE if last else PARTICLE, label=label, yerr=spread if last else None, capsize=2)
