"""Figures: what is drawn are the numbers of the runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swamp.analyses import analyses, connectivity
from swamp.drawing.canvas import pyplot, style
from swamp.report.figures.common_sparsity import cost_against_accuracy, layer_densities
from swamp.report.figures.curves import error_and_size, error_curves, nll_curves, particle_bars
from swamp.report.figures.gallery import FIGURES, analysis, draw
from swamp.results.ensemble import EnsembleRow, read_ensembles, write_ensemble
from swamp.results.stored_run import read_run
from swamp.store.analysis_store import AnalysisStore
from tests.support.analyses import made_up_results
from tests.support.made_up_runs import made_up, read_series


@pytest.fixture
def plt() -> Iterator[Any]:
    plt = pyplot()
    yield plt
    plt.close("all")


def particles(*accuracies: float) -> list[dict[str, float]]:
    return [{"accuracy": value, "nll": 1 - value} for value in accuracies]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of SWAMP, one of DST, which misses its second sparsity."""
    found = [
        made_up(
            tmp_path / f"swamp-{seed}",
            [
                {"metrics": {"accuracy": 0.9 + seed / 50, "nll": 0.3}, "members": particles(0.7, 0.8)},
                {"metrics": {"accuracy": 0.8, "nll": 0.2 + seed / 5}, "members": particles(0.5, 0.6)},
            ],
            seed=seed,
        )
        for seed in (0, 1)
    ]
    missed = {"metrics": {"accuracy": 0.6, "nll": 0.9}, "num_survivors": 400}
    return [*found, made_up(tmp_path / "dst", [{"metrics": {"accuracy": 0.95, "nll": 0.1}}, missed], method="dst")]


def line(axes: Any, label: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in axes.get_lines() if line.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def test_curves_have_the_means_at_the_sparsities_that_were_reached(plt: Any, runs: list[Path]) -> None:
    (axes,) = error_curves(plt, read_series(runs)).axes
    x, y = line(axes, "swamp")
    assert x == pytest.approx([100, 50])
    assert y == pytest.approx([9, 20])  # the mean of 10 and 8
    x, y = line(axes, "dst")
    assert x == pytest.approx([100, 40])
    assert y == pytest.approx([5, 40])
    (scattered,) = [s for s in axes.collections if s.get_label() == "swamp: particles"]
    assert len(scattered.get_offsets()) == 8
    (axes,) = nll_curves(plt, read_series(runs)).axes
    assert line(axes, "swamp")[1] == pytest.approx([0.3, 0.3])
    assert axes.get_ylabel() == "test NLL"


def test_an_ensemble_stands_at_the_weights_of_all_its_networks(plt: Any, runs: list[Path], tmp_path: Path) -> None:
    rows = [EnsembleRow(cycle=c, sparsity=1 - 0.5**c, metrics={"accuracy": 0.97, "nll": 0.2}, members=[], macs=1) for c in (0, 1)]
    write_ensemble(tmp_path, [*map(read_run, runs[:2])], rows)
    left, right = error_and_size(plt, read_series(runs), read_ensembles([tmp_path])).axes
    for axes, expected in ((left, [100, 50]), (right, [200, 100])):
        x, y = line(axes, "swamp-2, an ensemble")
        assert x == pytest.approx(expected)
        assert y == pytest.approx([3, 3])
        assert line(axes, "swamp")[0] == pytest.approx([100, 50])
    (tmp_path / "analysis" / "ensemble-9.json").write_text("[]")
    problems: list[str] = []
    assert len(read_ensembles([tmp_path], problems.append)) == 1
    assert len(problems) == 1
    assert "ensemble-9.json is damaged" in problems[0]


def test_an_ensemble_stays_beside_its_runs_where_recipes_are_shown_by_other_names(plt: Any, runs: list[Path], tmp_path: Path) -> None:
    """As tasks of one's own are, of which there are several in a figure."""
    solutions = [read_run(run).rows[0].solution for run in runs[:2]]
    row = EnsembleRow(cycle=0, sparsity=0, metrics={"accuracy": 0.97}, members=[], macs=1, solutions=solutions)
    write_ensemble(tmp_path, [*map(read_run, runs[:2])], [row])
    all_series = read_series(runs)
    for series in all_series:
        series.recipe = "digits of mine"
    (axes,) = error_curves(plt, all_series, read_ensembles([tmp_path])).axes
    assert line(axes, "swamp-2, an ensemble")[1] == pytest.approx([3])


def test_each_recipe_has_a_panel_in_which_a_method_looks_alike(plt: Any, tmp_path: Path) -> None:
    measured = {"mrpc": ("f1", 0.9), "rte": ("accuracy", 0.7)}
    paths = [
        made_up(tmp_path / f"{recipe}-{method}", [{"metric": metric, "metrics": {metric: value}}], recipe=recipe, method=method)
        for recipe, (metric, value) in measured.items()
        for method in ("imp", "swamp")
    ]
    first, second = error_curves(plt, read_series(paths)).axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["mrpc", "rte"]
    assert line(first, "swamp")[1] == pytest.approx([10])
    assert line(second, "swamp")[1] == pytest.approx([30])
    colours = [[drawn.get_color() for drawn in axes.get_lines()] for axes in (first, second)]
    assert colours[0] == colours[1]


def test_bars_are_particles_from_best_to_worst_and_their_average(plt: Any, runs: list[Path]) -> None:
    (axes,) = particle_bars(plt, read_series(runs)).axes  # DST has none
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([20, 30, 9, 40, 50, 20])
    assert axes.get_ylim()[0] == 0
    with pytest.raises(ValueError, match="none of these runs has particles"):
        particle_bars(plt, read_series(runs[2:]))


def test_densities_of_one_method_by_sparsity_of_several_at_a_common_one(plt: Any, tmp_path: Path) -> None:
    def run(name: str, *densities: dict[str, float]) -> Path:
        return made_up(tmp_path / name, [{"metrics": {"accuracy": 0.9}, "densities": given} for given in densities], method=name)

    dense, sparse = {"a": 1.0, "b": 1.0}, {"a": 0.75, "b": 0.25}
    one = run("imp", dense, sparse)
    (axes,) = layer_densities(plt, read_series([one])).axes
    assert line(axes, "0.00")[1] == pytest.approx([100, 100])
    assert line(axes, "50.00")[1] == pytest.approx([75, 25])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b"]
    several = [one, run("snip", dense, {"a": 0.5, "b": 0.5}), run("dense", dense)]
    figure = layer_densities(plt, read_series(several))
    (axes,) = figure.axes
    assert line(axes, "snip")[1] == pytest.approx([50, 50])
    assert "50.00 %" in axes.get_title()
    assert "not measured at this sparsity: dense" in [text.get_text() for text in figure.texts]
    other = run("grasp", {"c": 1.0})
    with pytest.raises(ValueError, match="different networks"):
        layer_densities(plt, read_series([one, other]))


def test_layers_stand_in_the_order_of_the_network(plt: Any, tmp_path: Path, quick: Any) -> None:
    from swamp.runs.opening import open_task
    from tests.support.runs import iterate

    config = quick(pruning__cycles=0, method="imp", ticket__epochs=0, cycle__epochs=1)
    list(iterate(config, tmp_path / "run"))
    (axes,) = layer_densities(plt, read_series([tmp_path / "run"])).axes
    names = [f"{tick.get_text()}.weight" for tick in axes.get_xticklabels()]
    assert names == list(open_task(config).prunable)
    assert names != sorted(names)


def test_cost_is_that_of_all_trainings_so_far(plt: Any, runs: list[Path]) -> None:
    (axes,) = cost_against_accuracy(plt, read_series(runs)).axes
    points = {label: bars.lines[0].get_xydata()[0].tolist() for bars, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    assert points == {"swamp": pytest.approx([2e12, 80]), "dst (at 60.00 %)": pytest.approx([2e12, 60])}


def test_long_names_leave_room_for_the_axes(plt: Any, tmp_path: Path) -> None:
    settings: dict[str, list[Any]] = {"cycle.epochs": [3, 4], "ticket.epochs": [1, 2], "tasks.image.batch_size": [16, 64]}
    settings |= {"pruning.prune_fraction": [0.3, 0.4], "cycle.learning_rate": [0.1, 0.2]}
    rows = [{"metrics": {"accuracy": 0.9, "nll": 0.3}, "members": particles(0.7, 0.8)}]
    chosen = [{name: values[index] for name, values in settings.items()} for index in (0, 1)]
    paths = [made_up(tmp_path / str(index), rows, **one) for index, one in enumerate(chosen)]
    figure = error_curves(plt, read_series(paths))
    figure.canvas.draw()
    assert figure.axes[0].get_position().width > 0.3


@pytest.mark.parametrize("picture", [error_curves, error_and_size, cost_against_accuracy, layer_densities])
def test_a_legend_of_many_names_is_shown_whole(plt: Any, tmp_path: Path, picture: Any) -> None:
    rows = [{"metrics": {"accuracy": 0.9}}, {"metrics": {"accuracy": 0.8}}]
    settings: list[dict[str, Any]] = [{"cycle.epochs": epochs} for epochs in range(1, 41)]
    paths = [made_up(tmp_path / str(index), rows, **given) for index, given in enumerate(settings)]
    figure = picture(plt, read_series(paths))
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 40
    assert legend.get_window_extent().y0 >= 0


@pytest.mark.parametrize("shares", [[1000], [1000, 1]])
def test_no_tick_names_a_sparsity_below_zero(plt: Any, tmp_path: Path, shares: list[int]) -> None:
    """Axes of a single point are wide: a dense network stands between 10 and 1000 %."""
    rows = [{"metrics": {"accuracy": 0.9}, "num_survivors": share} for share in shares]
    sparsity, size = error_and_size(plt, read_series([made_up(tmp_path / "run", rows, method="dst")])).axes
    assert next(tick.get_text() for tick in sparsity.get_xticklabels()) == "0.00"
    assert next(tick.get_text() for tick in size.get_xticklabels()) == "100"


def test_imp_and_swamp_look_the_same_whoever_is_beside_them(plt: Any, tmp_path: Path) -> None:
    rows = [{"metrics": {"accuracy": 0.9, "nll": 0.3}, "densities": {"a": 0.5}}]
    paths = [made_up(tmp_path / name, rows, method=name) for name in ("dst", "swamp", "rigl", "imp")]
    for draw_methods in (error_curves, cost_against_accuracy, layer_densities):
        axes = draw_methods(plt, read_series(paths)).axes[0]
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        lines = {label: handle.lines[0] if hasattr(handle, "lines") else handle for label, handle in handles.items()}
        assert [lines[name].get_color() for name in ("imp", "swamp")] == [style(0)["color"], style(1)["color"]]


def test_the_dense_and_the_sparsest_network_are_named_on_the_axis(plt: Any, tmp_path: Path) -> None:
    rows = [{"metrics": {"accuracy": 0.9}} for _ in range(10)]
    axes = error_curves(plt, read_series([made_up(tmp_path / "run", rows, **{"pruning.cycles": 9})])).axes[0]  # type: ignore[arg-type]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.00", "87.50", "96.88", "99.22", "99.80"]


@pytest.mark.parametrize(("least", "bottom"), [(0.04, 3.2), (0.004, 0), (0.0, 0)])
def test_densities_go_down_to_nothing_only_where_a_layer_does(least: float, bottom: float, plt: Any, tmp_path: Path) -> None:
    run = made_up(tmp_path / "run", [{"metrics": {"accuracy": 0.9}, "densities": {"a": 0.5, "b": least}}])
    axes = layer_densities(plt, read_series([run])).axes[0]
    assert axes.get_ylim() == pytest.approx((bottom, 130))


def test_methods_that_are_not_measured_are_named_within_the_picture(plt: Any, tmp_path: Path) -> None:
    both, first = ([{"metrics": {"accuracy": 0.9}} for _ in range(count)] for count in (2, 1))
    paths = [made_up(tmp_path / name, both, method=name) for name in ("imp", "swamp", "rigl", "dst", "snip", "grasp", "synflow")]
    rates = [0.1 + 0.001 * index for index in range(6)]
    paths += [made_up(tmp_path / str(rate), first, method="gradual", **{"cycle.learning_rate": rate}) for rate in rates]  # type: ignore[arg-type]
    figure = cost_against_accuracy(plt, read_series(paths))
    figure.canvas.draw()
    extent = figure._supxlabel.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1


def test_no_two_of_many_look_alike() -> None:
    assert len({tuple(style(index).values()) for index in range(28)}) == 28
    for looks in ("color", "marker"):  # of the nine methods of the paper's main table
        assert len({style(index)[looks] for index in range(9)}) == 9


@pytest.mark.parametrize("name", list(FIGURES))
@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_every_figure_is_written_the_same_again(name: str, suffix: str, runs: list[Path], tmp_path: Path) -> None:
    first, second = tmp_path / "new" / f"1{suffix}", tmp_path / f"2{suffix}"
    draw(name, runs[:2], first)
    draw(name, runs[:2], second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"%PDF" if suffix == ".pdf" else b"<?xml")


def test_names_with_dollars_and_backslashes(tmp_path: Path) -> None:
    rows = [{"metrics": {"accuracy": 0.9, "nll": 0.1}}]
    paths = [made_up(tmp_path / str(i), rows, recipe=name) for i, name in enumerate((r"$\frac{", "<b>&$x$"))]
    for name in ("error", "cost"):
        draw(name, paths, tmp_path / f"{name}.svg")
        assert "<b>" not in (tmp_path / f"{name}.svg").read_text()


def test_what_is_missing_is_said_in_a_sentence(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "x.png"
    for name, directories, message in [
        ("eror", runs, "unknown figure 'eror'; did you mean 'error'"),
        ("error", [made_up(tmp_path / "empty", [], finished=False)], "none of these runs has a finished row yet"),
        ("nll", [made_up(tmp_path / "f1", [{"metric": "f1", "metrics": {"f1": 0.5}}])], "none of these runs measured an NLL"),
        ("surface", runs, "figure 'surface' is of one run, not of 3"),
        *(
            (name, runs[:1], f"needs an analysis that is not there yet: swamp analyse .*swamp-0 --{name}")
            for name in analyses()
            if name not in FIGURES
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            draw(name, directories, out)
    AnalysisStore(runs[0]).write_text("hull.json", '{"rows": [{}]}')
    with pytest.raises(ValueError, match=r"hull.json is damaged .*; swamp analyse .*swamp-0 --hull makes it again"):
        draw("hull", runs[:1], out)
    with pytest.raises(ValueError, match=r"ends in .png, .svg, .pdf, not 'x.gif'"):
        draw("error", runs, tmp_path / "x.gif")
    assert not out.exists()


def test_what_an_analysis_found_is_drawn(runs: list[Path], tmp_path: Path) -> None:
    result = msgspec.convert(made_up_results()["connectivity"], connectivity.Result)
    AnalysisStore(runs[0]).write_result("connectivity", result)
    draw("connectivity", runs[:1], tmp_path / "new" / "connectivity.pdf")
    assert (tmp_path / "new" / "connectivity.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(file.name for file in (runs[0] / "analysis").glob("*.*")) == ["connectivity.json"]  # nothing is left beside it


def test_an_analysis_of_several_methods_shows_imp_first(tmp_path: Path, plt: Any) -> None:
    paths = [made_up(tmp_path / name, [{"metrics": {"accuracy": 0.9}}], method=name) for name in ("swamp", "imp")]
    kind = analyses()["connectivity"]
    for path in paths:
        AnalysisStore(path).write_result("connectivity", msgspec.convert(made_up_results()["connectivity"], connectivity.Result))
    figure = analysis(plt, kind, [read_run(path) for path in paths], print)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [name.split()[0] for name in names] == ["imp", "swamp"]
