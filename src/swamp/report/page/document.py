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

from swamp.drawing.markup import Html, Section, command_line, element, join, json_text
from swamp.drawing.numbers import count
from swamp.report.page.charts import series_data
from swamp.report.page.content import PageContent
from swamp.report.page.headline import headline
from swamp.report.page.sections import make_sections
from swamp.results.series import Series, by_recipe, make_series
from swamp.results.stored_run import LeftOut, StoredRun, read_runs
from swamp.store.files import write_output
from swamp.version import __version__

# Each uses those before it.
SCRIPTS = ("elements", "scales", "series", "chart", "heatmap", "results", "training_sections", "landscape", "page")


MOST_OPEN = 8  # items of a notice


def write_report(directories: Sequence[Path], out: Path) -> tuple[list[StoredRun], list[LeftOut]]:
    """Write the page, and say what was read and what could not be."""
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"a report's name ends in .html, not {out.name!r}")
    if out.is_dir():
        raise ValueError(f"{out} is a directory; a report is a file")
    runs, left_out = read_runs(directories)
    text = page(runs, left_out, directories)
    write_output(out, text.encode(errors="backslashreplace"))  # A name that is not UTF-8 has characters that cannot be encoded.
    return runs, left_out


def page(runs: Sequence[StoredRun], left_out: Sequence[LeftOut], directories: Sequence[Path]) -> str:
    """Return the HTML of the page. `directories` are those that the user named. They may hold analyses of several runs."""
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
    """Return all scripts as one, because a page that is a single file cannot load modules."""
    return '"use strict";\n' + "\n".join(page_file(f"{name}.js") for name in SCRIPTS)


def digest(text: str) -> str:
    """Return the hash by which a content security policy allows a script or a style sheet."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def navigation(parts: Sequence[Section]) -> Html:
    links = [element("li", element("a", part.name, href=f"#{part.id}")) for part in parts]
    return element("nav", element("ul", *links, class_="wrap"), aria_label="Sections")


def header(all_series: Sequence[Series], made: str) -> Html:
    """Return the top of the page: its title, facts about the runs, and a headline for each recipe."""
    runs = [run for series in all_series for run in series.runs]
    recipes = sorted({series.recipe for series in all_series})
    finished = sum(run.finished for run in runs)
    state = f"{finished} finished" if finished < len(runs) else "all finished" if len(runs) > 1 else "finished"
    configurations = f" of {count(len(all_series), 'configuration')}" if len(runs) > 1 else ""
    facts = f"{count(len(runs), 'run')}{configurations}, {state}. Made {made}."
    title = f"Results on {', '.join(recipes)}" if recipes else "No run could be read"
    groups = by_recipe(all_series)
    return element(
        "header",
        element("div", element("p", "swamp report", class_="eyebrow"), element("h1", title)),
        element("div", data_chart="theme"),
        element("p", facts, class_="facts"),
        *(
            element("p", element("span", recipe, class_="recipe") if len(groups) > 1 else None, line, class_="headline")
            for recipe, group in groups
            if (line := headline(group))
        ),
        class_="wrap",
    )


def notices(runs: Sequence[StoredRun], left_out: Sequence[LeftOut], warnings: Sequence[str]) -> Html:
    """Name the runs that are unfinished, damaged or changed, or that used only some examples."""
    bad, twice = (
        [element("li", element("code", one.directory), f": {one.why}") for one in left_out if one.damaged == damaged]
        for damaged in (True, False)
    )
    missing = [element("li", element("code", run.directory), ": ", lack(run)) for run in runs if not run.finished]
    changed = [element("li", element("code", run.directory), f": {what}") for run in runs for what in run.warnings]
    changed += [element("li", warning) for warning in warnings]
    limited = [element("li", element("code", run.directory), f": {run.limit_note}") for run in runs if run.limit_note]
    return join(
        notice(f"Damaged, and not shown: {count(len(bad), 'run')}", bad, "notice bad"),
        notice(f"There already, and not shown again: {count(len(twice), 'run')}", twice, "notice"),
        notice(f"Not finished: {count(len(missing), 'run')}", missing, "notice"),
        notice("Not as they were", changed, "notice"),
        notice(f"Not trained on all examples: {count(len(limited), 'run')}", limited, "notice"),
    )


def notice(title: str, items: Sequence[Html], kind: str) -> Html | None:
    """Return a notice of its items, of which only some are open at first where they are many; None where there are none."""
    if not items:
        return None
    more = items[MOST_OPEN:]
    folded = element("details", element("summary", f"{len(more)} more"), element("ul", *more)) if more else None
    return element("div", element("h2", title), element("ul", *items[:MOST_OPEN]), folded, class_=kind, role="note")


def lack(run: StoredRun) -> Html:
    """Say what an unfinished run still lacks, and how to go on with it."""
    missing = run.missing_cycles()
    rows = f"{count(len(run.rows), 'row')} so far" if run.rows else "no row yet"
    what = f"; missing: {'cycles' if len(missing) > 1 else 'cycle'} {', '.join(map(str, missing))}" if missing else ""
    failed = f". It failed: {run.failure}" if run.failure else ""
    return join(f"{rows}{what}{failed}. Go on with: ", element("code", command_line(run.resume_command)))
