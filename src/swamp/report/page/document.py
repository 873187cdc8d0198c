"""A report: one page that needs nothing but itself.

Charts are drawn by static/*.js from data that stand in the page as JSON. A content security policy allows that one script and that one
style sheet, by their hashes, and forbids everything else; so nothing that a run directory holds can run or load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from string import Template

from swamp.drawing.markup import Html, Section, element, join, json_text
from swamp.report.page.charts import series_data
from swamp.report.page.content import PageContent
from swamp.report.page.sections import make_sections
from swamp.report.page.top import header, notices
from swamp.results.series import make_series
from swamp.results.stored_run import LeftOut, StoredRun, read_runs
from swamp.store.files import make_directory
from swamp.version import __version__

# Each uses those before it.
SCRIPTS = ("elements", "scales", "series", "chart", "heatmap", "results", "training_sections", "landscape", "page")


def write_report(directories: Sequence[Path], out: Path) -> tuple[list[StoredRun], list[LeftOut]]:
    """Write the page, and say what was read and what could not be."""
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"a report's name ends in .html, not {out.name!r}")
    if out.is_dir():
        raise ValueError(f"--out {out} is a directory; a report is a file")
    runs, left_out = read_runs(directories)
    text = page(runs, left_out, directories)
    make_directory(out.resolve().parent)
    out.write_text(text, encoding="utf-8")
    return runs, left_out


def page(runs: Sequence[StoredRun], left_out: Sequence[LeftOut], directories: Sequence[Path]) -> str:
    """`directories`: what was asked for, which may hold analyses that are of several runs."""
    all_series = make_series(runs)
    content = PageContent(all_series, directories)
    parts = make_sections(content)
    data = {**series_data(all_series), **{key: value for part in parts for key, value in part.data.items()}}
    style, script = page_file("page.css"), script_text()
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    recipes = ", ".join(sorted({series.recipe for series in all_series}))
    return Template(page_file("page.html")).substitute(
        policy=f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; base-uri 'none'; form-action 'none'",
        version=__version__,
        title=join(f"swamp report: {recipes}" if recipes else "swamp report"),
        style=style,
        header=header(all_series, now),
        nav=navigation(parts),
        sections=join(notices(runs, left_out, content.warnings), *(part.html for part in parts)),
        footer=join(f"Made by swamp {__version__} from the run directories named above, and from nothing else."),
        data=json_text(data),
        script=script,
    )


def page_file(name: str) -> str:
    return (resources.files("swamp.report.page") / "static" / name).read_text(encoding="utf-8")


def script_text() -> str:
    """One script: a page that is a single file has no modules to load."""
    return '"use strict";\n' + "\n".join(page_file(f"{name}.js") for name in SCRIPTS)


def digest(text: str) -> str:
    """As a content security policy names a script or a style sheet."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def navigation(parts: Sequence[Section]) -> Html:
    links = [element("li", element("a", part.name, href=f"#{part.id}")) for part in parts]
    return element("nav", element("ul", *links, class_="wrap"), aria_label="Sections")
