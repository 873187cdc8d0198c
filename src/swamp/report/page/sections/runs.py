"""Section: the runs, their environments, and the commands that make them again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from swamp.drawing.markup import Html, Section, command_line, element, section
from swamp.drawing.numbers import count, duration
from swamp.report.page.content import PageContent
from swamp.results.series import Series
from swamp.results.stored_run import StoredRun
from swamp.runs.config import Config, build_config, deciding_settings
from swamp.runs.recipes import recipe_texts
from swamp.runs.setting_list import parse_setting
from swamp.runs.settings import text_of
from swamp.runs.stored import task_maker

order = 90


def show(content: PageContent) -> Section | None:
    if not content.series:
        return None
    return section(
        "Runs",
        "Runs, and how to make them again",
        "Every number above is in these directories; times leave out what was read from a cache. The same command on the same kind of "
        "machine with the same torch gives the same bits.",
        element("ul", *(run_item(series, content) for series in content.series), class_="runs"),
    )


def run_item(series: Series, content: PageContent) -> Html:
    """List the runs of a configuration."""
    runs = series.runs
    finished = sum(run.finished for run in runs)
    done = finished == len(runs)
    commands = [text for run in runs for text in [run_command(run.config, run.directory), *content.analysis_commands(run)]]
    state = "finished" if done else ("not finished" if not finished else f"{finished} of {len(runs)} finished")
    return element(
        "li",
        element("div", element("b", series.label), element("span", state, class_="state" if done else "state open"), class_="title"),
        *(element("p", text) for text in dict.fromkeys(environment(run) for run in runs)),
        element("ul", *(element("li", *run_line(run)) for run in runs), class_="places"),
        element(
            "pre",
            *map(command_line, commands),
        ),
    )


def run_line(run: StoredRun) -> list[Any]:
    """Return what a run has, how long it took, and where it is."""
    seconds = run.seconds()
    rows = f"seed {run.config.seed}: {count(len(run.rows), 'row')}{f' in {duration(seconds)}' if seconds else ''}, "
    notes = element("span", f" {run.config.notes}", class_="text") if run.config.notes else None
    return [rows, element("code", run.directory), notes]


def environment(run: StoredRun) -> str:
    config, versions = run.config, run.header["versions"]
    made_with = ", ".join(f"{name} {version}" for name, version in sorted(versions.items(), key=lambda pair: pair[0] != "swamp"))
    return f"{made_with}; {config.precision} on {config.device} by engine {config.engine}, {count(config.threads, 'thread')} a training."


def run_command(config: Config, directory: Path) -> str:
    """Return the command that makes a run again: from its recipe and what differs from it or, where these would give another configuration,
    from its config.toml."""
    task = ["--task", maker] if (maker := task_maker(config)) else []
    settings = ["--seed", str(config.seed), "--precision", config.precision, *task, "--out", shlex.quote(f"{directory}-again")]
    changes = changes_from_recipe(config)
    if changes is None:
        return " ".join(["swamp run", shlex.quote(str(directory / "config.toml")), *task, *settings[-2:]])
    given = [part for name, text in changes.items() for part in (f"--{name}", shlex.quote(text))]
    return " ".join(["swamp run", config.recipe, "--method", config.method, *given, *settings])


def changes_from_recipe(config: Config) -> dict[str, str] | None:
    """Return the settings, as texts of a command line, that make the built-in recipe with this method give the same numbers; None if a
    command line cannot say it."""
    if config.recipe not in recipe_texts():
        return None
    chosen = {"method": config.method, "seed": config.seed, "precision": config.precision}
    try:
        plain, mine = deciding_settings(build_config(config.recipe, chosen)), deciding_settings(config)
        changes = {name: text_of(value) for name, value in mine.items() if plain.get(name) != value}
        parsed = dict(parse_setting(name, text) for name, text in changes.items())
        again = deciding_settings(build_config(config.recipe, {**chosen, **parsed}))
    except ValueError:
        return None
    return changes if again == mine else None
