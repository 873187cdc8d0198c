"""What `swamp analyse` found."""

from __future__ import annotations

import shlex

from swamp.drawing.markup import Html, element
from swamp.drawing.numbers import examples_of, percent
from swamp.drawing.sections import Section, chart, command_line, section
from swamp.report.page.annexes import Analyses, HessianRow


def connectivity(found: Analyses) -> Section | None:
    if not found.connectivity:
        return None
    return section(
        "Connectivity",
        "Are solutions connected?",
        "Loss and error on straight lines between solutions of successive cycles, between particles of a cycle, and between two trainings "
        "of one start; BatchNorm statistics are recomputed at every point.",
        chart("connectivity"),
    )


def surfaces(found: Analyses) -> Section | None:
    if not found.surfaces:
        return None
    return section(
        "Surface",
        "The plane through three particles",
        "Dots are the particles, the cross is their mean, the ring is where the cycle’s average falls on the plane. Lengths are those in "
        "weight space.",
        chart("surface"),
    )


def overlap(found: Analyses) -> Section | None:
    if not found.masks and not found.pairs:
        return None
    return section(
        "Masks",
        "How alike the masks are",
        "Intersection over union of the weights alive in each; beyond chance: 0 for masks that agree as much as independent ones of the "
        "same densities would, 1 for equal masks.",
        chart("masks") if found.masks else None,
        chart("pairs") if found.pairs else None,
        *(element("pre", command_line(f"swamp analyse {shlex.join(runs)} --masks")) for runs in found.compared),
    )


def curvature(found: Analyses) -> Section | None:
    if not found.hessians:
        return None
    columns = sorted({round(row.sparsity, 4) for _, _, hessian in found.hessians for row in hessian.rows})
    body = []
    for series, seed, hessian in found.hessians:
        rows = {round(row.sparsity, 4): row for row in hessian.rows}
        body.append(
            element(
                "tr",
                element("th", f"{series.label}, seed {seed}", scope="row"),
                element("td", examples_of({"examples": hessian.examples, "split": hessian.split}) if hessian.examples else "–"),
                *(curvature_cell(rows.get(column)) for column in columns),
            )
        )
    head = [element("th", text, scope="col") for text in ("run", "on", *map(percent, columns))]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="results")
    return section(
        "Curvature",
        "Curvature of the loss",
        "Trace of the Hessian over the surviving weights ± standard error of the estimate, and below it the largest eigenvalue, at each "
        "sparsity (%).",
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Trace of the Hessian at each sparsity"),
    )


def curvature_cell(row: HessianRow | None) -> Html:
    if row is None:
        return element("td", "–")
    top = element("small", f"λ₁ {row.top_eigenvalues[0]:.4g}") if row.top_eigenvalues else None
    return element("td", f"{row.trace.mean:.4g} ± {row.trace.standard_error:.2g}", top)
