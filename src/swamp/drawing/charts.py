"""Parts of figures that several of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import ORANGE, text, tidy

FEW_NAMES = 40  # layers that an axis can name
PARTICLE, AVERAGE = "#9CC4E4", ORANGE  # light and dark, so that print without colours tells them apart too


def density_axes(axes: Any, names: Sequence[str]) -> None:
    """Label axes that show the layers from left to right, and upwards what remains of each in %, even nothing at all."""
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, 130)
    axes.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
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
