"""How the numbers were made: configurations, environments, commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.drawing.markup import Html, element
from swamp.drawing.numbers import duration
from swamp.drawing.sections import Section, command_line, count, section
from swamp.report.page.analyses import StoredAnalyses
from swamp.report.page.repeat import command
from swamp.results.series import Series
from swamp.results.stored_run import StoredRun
from swamp.runs.settings import toml_text


def configuration(all_series: Sequence[Series]) -> Section | None:
    """The settings in which series differ, then those that they share."""
    if not all_series:
        return None
    names = sorted({name for series in all_series for name in series.settings} - {"method"})
    found = {name: [series.settings[name] for series in all_series if name in series.settings] for name in names}
    shared = [name for name in names if len(found[name]) == len(all_series) and len(set(map(str, found[name]))) == 1]
    # what belongs to one method is no difference between settings
    own = [name for name in names if name not in shared and name.startswith("methods.") and len(set(map(str, found[name]))) == 1]
    differing = [name for name in names if name not in shared and name not in own]
    parts = []
    if len(all_series) > 1 and (differing or own):
        head = ["configuration", *differing, *(["of the method alone"] if own else [])]
        body = [
            element(
                "tr",
                element("th", series.label, scope="row"),
                *(element("td", setting_text(series, name), class_="words") for name in differing),
                element("td", ", ".join(own_text(series, name) for name in own if name in series.settings), class_="words")
                if own
                else None,
            )
            for series in all_series
        ]
        headings = (element("th", *breakable(name), scope="col", class_="words") for name in head)
        parts.append(
            element(
                "div",
                element("table", element("thead", element("tr", *headings)), element("tbody", *body), class_="settings"),
                class_="scroll",
                tabindex="0",
                role="region",
                aria_label="Settings that differ",
            )
        )
    lines = [f"{name} = {toml_text(all_series[0].settings[name])}" for name in shared]
    title = f"{count(len(shared), 'setting')} that all share" if len(all_series) > 1 else count(len(shared), "setting")
    parts.append(element("details", element("summary", title), element("pre", "\n".join(lines))))
    intro = "What decides the numbers of a run, the seed aside: where configurations differ, and what they share."
    return section("Configuration", "Configuration", intro, *parts)


def setting_text(series: Series, name: str) -> str:
    return toml_text(series.settings[name]) if name in series.settings else ""


def own_text(series: Series, name: str) -> str:
    return f"{name.split('.', 2)[-1]} = {setting_text(series, name)}"


def breakable(name: str) -> list[Any]:
    """A dotted name that may be broken after its dots."""
    *before, last = name.split(".")
    return [part for piece in before for part in (f"{piece}.", element("wbr"))] + [last]


def runs(all_series: Sequence[Series], analyses: StoredAnalyses) -> Section | None:
    if not all_series:
        return None
    return section(
        "Runs",
        "Runs, and how to make them again",
        "Every number above is in these directories; times leave out what a cache had. The same command on the same kind of machine with "
        "the same torch gives the same bits.",
        element("ul", *(run_item(series, analyses) for series in all_series), class_="runs"),
    )


def run_item(series: Series, analyses: StoredAnalyses) -> Html:
    """List the runs of a configuration."""
    runs = series.runs
    finished = sum(run.finished for run in runs)
    done = finished == len(runs)
    state = "finished" if done else ("not finished" if not finished else f"{finished} of {len(runs)} finished")
    return element(
        "li",
        element("div", element("b", series.label), element("span", state, class_="state" if done else "state open"), class_="title"),
        *(element("p", text) for text in dict.fromkeys(environment(run) for run in runs)),
        element("ul", *(element("li", *place(run)) for run in runs), class_="places"),
        element("pre", *(command_line(text) for run in runs for text in [command(run.config, run.directory), *analyses.commands(run)])),
    )


def place(run: StoredRun) -> list[Any]:
    seconds = run.seconds()
    rows = f"seed {run.config.seed}: {count(len(run.rows), 'row')}{f' in {duration(seconds)}' if seconds else ''}, "
    notes = element("span", f" {run.config.notes}", class_="text") if run.config.notes else None
    return [rows, element("code", run.directory), notes]


def environment(run: StoredRun) -> str:
    config, versions = run.config, run.header.get("versions")
    known = versions if isinstance(versions, dict) else {}  # a bad one is no reason to show nothing
    texts = [f"{name} {version}" for name, version in sorted(known.items(), key=lambda pair: pair[0] != "swamp")]
    made_with = ", ".join(texts) or "unknown versions"
    return f"{made_with}; {config.precision} on {config.device} by engine {config.engine}, {count(config.threads, 'thread')} a training."
