"""Learning rates that nobody names follow from the optimizer and from the cycle's rate, and rates that do not fit are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swamp.runs.recipes import TomlTable, merge, merge_all

if TYPE_CHECKING:
    from swamp.runs.config import Config

# The cycle's rate where no recipe, file or command names one. An optimizer that is not listed has no such rate.
CYCLE_RATES = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}
SWA_SHARE = 0.5  # of the cycle's rate: the paper averages at 0.05 of 0.1
RATES = ("cycle", "ticket", "swa")  # the tables with a learning rate
FOLLOW = "rates_follow"  # A recipe that says so gives its rates only for its own optimizer.
# A rate outside of these shares of the cycle's is remarked on. (ImageNet's averaging phase has 1/200.)
LEAST_SHARE, LARGEST_SHARE = 1 / 1000, 5
LARGEST_ADAM_RATE = 0.02


def without_outdated_rates(layers: Sequence[TomlTable]) -> list[TomlTable]:
    """Return the layers without the rates of those that say `rates_follow`, where a layer above names another optimizer or cycle rate."""
    kept = []
    for index, layer in enumerate(layers):
        layer = dict(layer)
        if layer.pop(FOLLOW, False) is True:
            above, asked = merge_all(layers[index + 1 :]), (("optimizer", "name"), ("cycle", "learning_rate"))
            if any(_get(above, *path) not in (None, _get(layer, *path)) for path in asked):
                layer |= {name: {key: value for key, value in layer[name].items() if key != "learning_rate"} for name in RATES}
        kept.append(layer)
    return kept


def with_rates(settings: TomlTable) -> TomlTable:
    """Return the settings with all learning rates: those that are missing follow from the optimizer's name and the cycle's rate.

    >>> with_rates({"optimizer": {"name": "adamw"}, "cycle": {"learning_rate": 2e-4}})["swa"]
    {'learning_rate': 0.0001}
    """
    name = _get(settings, "optimizer", "name") or "sgd"
    cycle = _get(settings, "cycle", "learning_rate")
    cycle = CYCLE_RATES.get(name) if cycle is None and isinstance(name, str) else cycle
    if isinstance(cycle, bool) or not isinstance(cycle, int | float):
        return settings  # The check of all settings says what is wrong.
    rates = {"cycle": cycle, "ticket": cycle, "swa": SWA_SHARE * cycle}
    tables = [table for table in RATES if isinstance(settings.get(table, {}), dict)]
    missing: TomlTable = {table: {"learning_rate": rates[table]} for table in tables}
    return merge(missing, settings)


def _get(settings: TomlTable, table: str, name: str) -> Any:
    found = settings.get(table)
    return found.get(name) if isinstance(found, dict) else None


def rate_remarks(config: Config, averages: bool, has_ticket: bool) -> list[str]:
    """Name the learning rates that are far from the cycle's, or too large for the optimizer. `averages`: some training has an SWA phase."""
    peak, optimizer = config.cycle.learning_rate, config.optimizer.name
    used = {"cycle.learning_rate": peak}
    if has_ticket:
        used["ticket.learning_rate"] = config.ticket.learning_rate
    if averages and config.swa.entry != "continue":
        used["swa.learning_rate"] = config.swa.learning_rate
    remarks = []
    for name, rate in used.items():
        if optimizer in ("adam", "adamw") and rate > LARGEST_ADAM_RATE:
            remarks.append(f"{name} = {rate:g} is large for {optimizer}, whose usual rate is {CYCLE_RATES[optimizer]:g}")
        elif not LEAST_SHARE * peak <= rate <= LARGEST_SHARE * peak * (1 + 1e-9):
            share = f"{rate / peak:.3g} times" if rate > peak else f"1/{peak / rate:.6g} of"
            remarks.append(
                f"{name} = {rate:g} is {share} cycle.learning_rate = {peak:g}; whoever changes one of them should name the other"
            )
    return remarks
