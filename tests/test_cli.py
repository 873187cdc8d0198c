"""The real command line, as its user would use it."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

import swamp
from swamp import commands
from swamp.cli import GROUPS, main, make_app
from swamp.commands.run import asked_runs, without_effect
from swamp.runs import opening
from swamp.runs.config import task_modules
from tests.support.cli import FLAGS, call, run
from tests.support.processes import children
from tests.support.runs import contents


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of SWAMP and one of IMP, made by the command line."""
    directory = tmp_path_factory.mktemp("runs")
    main(["run", *FLAGS, "--seeds", "0,1", "--out", str(directory / "swamp"), "--cache", str(directory / "cache")])
    main(["run", *FLAGS, "--method", "imp", "--out", str(directory / "imp"), "--cache", str(directory / "cache")])
    return directory


def test_the_help_lists_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--help")
    assert status == 0
    places = [out.index(f"─ {name} ─") for name in (*GROUPS, "Other")]
    assert places == sorted(places)
    assert places[0] < out.index("│ run ") < places[1] < out.index("│ show ") < places[2] < out.index("│ export ") < places[3]


def test_version_and_help_without_torch() -> None:
    code = "import sys; from swamp.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert run("--version").stdout.strip() == swamp.__version__


app = make_app()
COMMANDS = [name for name in app if not name.startswith("-")]


def test_every_module_with_a_function_of_its_name_is_a_command() -> None:
    modules = {path.stem for path in Path(commands.__path__[0]).glob("*.py") if f"\ndef {path.stem}(" in path.read_text()}
    assert {name.replace("-", "_") for name in COMMANDS} == modules


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The help shows the usage, what the command does, and every argument and option with a text of its own."""
    monkeypatch.setenv("COLUMNS", "400")  # so that no text is broken
    status, out, _ = call(capsys, command, "--help")
    assert status == 0
    assert out.startswith(f"Usage: swamp {command} ")
    assert "ARGS" not in out.splitlines()[0]
    assert "[default: False]" not in out
    assert str(inspect.getdoc(app[command].default_command)).splitlines()[0] in out
    shown = [argument for argument in app[command].assemble_argument_collection() if argument.show]
    assert shown
    boxed = [line.strip("│* ").replace(",", " ").split() for line in out.splitlines() if line.startswith("│ ")]
    for argument in shown:
        (words,) = [words for words in boxed if words[0] in argument.names]
        text = re.sub(r"\[(default|required|choices).*\]", "", " ".join(words))
        assert [word for word in text.split() if word not in argument.names and not word.isupper()], f"{argument.names} has no help text"


def test_the_main_job_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run("run", *FLAGS, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "cycle 2: 75.00 % sparse, accuracy " in done.stderr
    assert re.search(r"^ +2 +75\.00 ", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout + done.stderr
    status, _, errors = call(capsys, "run", *FLAGS, "--out", tmp_path / "run")
    assert status == 0
    assert "is finished; nothing to do" in errors
    status, _, errors = call(capsys, "run", *FLAGS, "--cycle.epochs=3", "--out", tmp_path / "run")
    assert status == 2
    assert "cycle.epochs (2 there, 3 here)" in errors


def test_groups_resume_show_and_compare(finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert sorted(path.name for path in (finished / "swamp").iterdir()) == ["seed-0", "seed-1"]
    status, out, err = call(capsys, "resume", finished / "swamp", "--data", finished)
    assert status == 0
    assert err.count("is finished") == 2
    *tables, last = out.splitlines()
    assert last == f"2 runs; this again: swamp compare {finished / 'swamp'}; each of them: swamp show {finished / 'swamp'}"
    assert tables == call(capsys, "compare", finished / "swamp")[1].splitlines()
    assert "swamp accuracy % (n=2)" in out
    assert ", seed 0" not in out  # no table of each run
    status, out, _ = call(capsys, "show", finished / "swamp")
    assert out.count(": finished") == 2
    status, out, _ = call(capsys, "compare", finished / "imp", finished / "swamp", "--plot", tmp_path / "plots" / "error.svg")
    assert status == 0
    assert "imp accuracy %" in out
    assert "swamp accuracy % (n=2)" in out
    assert "±" in out
    assert "swamp particles' accuracy %" in out
    row = json.loads((finished / "imp" / "results.json").read_text())[2]
    (line,) = [line for line in out.splitlines() if line.strip().startswith("75.00")]
    assert f"{100 * row['metrics']['accuracy']:.2f}" in line
    assert f"{row['metrics']['nll']:.4f}" in line
    picture = (tmp_path / "plots" / "error.svg").read_text()
    assert "<svg" in picture


def test_python_finds_the_same(finished: Path) -> None:
    loaded = swamp.load(finished / "imp", cycle=2)
    assert loaded.mask.density == pytest.approx(0.25)
    assert loaded.row.cycle == 2
    weights = dict(loaded.model.named_parameters())
    assert sum(int((weights[name] != 0).sum()) for name in loaded.mask.layers) == loaded.mask.num_survivors == loaded.row.num_survivors
    assert swamp.load(finished / "imp").row.cycle == 2
    particle = swamp.load(finished / "swamp" / "seed-0", cycle=1, particle=1)
    assert particle.row.members
    arguments: dict[str, Any]
    for arguments, message in [({"cycle": 9}, "has no cycle 9; it has 0, 1, 2"), ({"cycle": 0, "particle": 5}, "has 0 particles")]:
        with pytest.raises(ValueError, match=message):
            swamp.load(finished / "imp", **arguments)  # type: ignore[arg-type]
    assert [row.cycle for row in swamp.Run(finished / "imp")] == [0, 1, 2]


@pytest.mark.parametrize(
    "command", ["show imp", "compare imp swamp", "report imp swamp --out page.html", "figure error imp swamp --out e.svg", "watch imp"]
)
def test_what_only_shows_opens_no_task(
    command: str, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a task was opened")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "open_task", refuse)
    for module in task_modules().values():
        monkeypatch.setattr(module, "build", refuse)
    status, _, err = call(capsys, *(str(finished / word) if word in ("imp", "swamp") else word for word in command.split()))
    assert status == 0, err


def test_lists_are_plain_and_whole_where_nobody_watches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = call(capsys, "methods")
    assert status == 0
    assert {"imp", "imp-lr", "imp-original", "swamp", "swamp-plus"} <= {line.split()[0] for line in out.splitlines()[2:]}
    assert "IMP whose every cycle averages the weights of N particles, each trained from one ticket with SWA." in out
    status, out, _ = call(capsys, "recipes")
    assert "digits" in out
    status, out, _ = call(capsys, "recipes", "digits")
    assert out.startswith("# scikit-learn's")
    (tmp_path / "copy.toml").write_text(out)
    status, again, _ = call(capsys, "recipes", tmp_path / "copy.toml")
    assert again.replace('"copy"', '"digits"') == out


def test_a_dry_run_shows_everything_and_does_nothing(finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = call(capsys, "run", *FLAGS, "--dry-run", "--out", tmp_path / "run")
    assert status == 0
    for text in ("stem.weight", "8×1×3×3", "4,808 of 5,090", "75.00", "trainings", "MB", "time"):
        assert text in out
    assert "not begun" in out
    assert not (tmp_path / "run").exists()
    assert "still to train" not in out
    _, out, _ = call(capsys, "run", *FLAGS, "--dry-run", "--out", finished / "swamp" / "seed-0")
    assert "finished already" in out
    assert re.search("still to train +0, together 0 epochs", out)
    _, out, _ = call(capsys, "run", *FLAGS, "--pruning.cycles=3", "--dry-run", "--out", tmp_path / "run", "--cache", finished / "cache")
    (whole, left) = (int(re.findall(f"{name} +(\\d+), together", out)[0]) for name in ("trainings", "still to train"))
    assert (whole, left) == (1 + 4 * 2, 2)  # The last cycle is new.
    status, _, said = call(capsys, "run", *FLAGS, "--cycle.epochs=7", "--dry-run", "--out", finished / "swamp" / "seed-0")
    assert (status, "holds a run with another configuration" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digit"], "did you mean 'digits'"),
        (["run", "missing.toml"], "no such file"),
        (["run", "--cycle.epoch", "3"], "did you mean --cycle.epochs?"),
        (["run", "--cycle.epochs", "3.7"], "cycle.epochs = 3.7: expected an integer"),
        (["run", "--cycle.epochs"], "--cycle.epochs needs a value"),
        (["run", "--nonsense"], "unknown setting --nonsense; did you mean --notes?"),
        (["run", "--xyzzy", "3"], "unknown setting --xyzzy (all of them: swamp recipes digits)"),
        (["run", "--dryrun"], "unknown setting --dryrun; did you mean --dry-run?"),
        (["run", "--trackers", "jsonl"], "did you mean --tracker?"),
        (["run", "--lr", "0.1"], "unknown setting --lr; did you mean --cycle.learning_rate?"),
        (["run", "--epochs", "3"], "unknown setting --epochs; did you mean --cycle.epochs?"),
        (["run", "--sparsity", "90"], "such as 0.9 for 90 %"),
        (["resume", "nowhere", "--cash", "c"], "did you mean --cache?"),
        (["run", "--cycle.epochs", "many"], "cycle.epochs = 'many': expected an integer\n"),
        (["run", "--pruning.prune_fraction", "1.5"], "expected a number < 1.0"),
        (["run", "--method", "swmap"], "did you mean 'swamp'"),
        (["run", "--method", "imp,swmap"], "did you mean 'swamp'"),
        (["run", "--method", "imp,imp"], "--method imp,imp: expected different methods"),
        (["run", "--seeds", "0,x"], "--seeds 0,x: expected different whole numbers"),
        (["run", "--seeds", "1,1"], "expected different whole numbers"),
        (["run", "--seeds", "0,00"], "expected different whole numbers"),
        (["run", "--seeds", ""], "expected different whole numbers"),
        (["run", "--recipe", "mine.toml"], "a recipe is named without --recipe: swamp run mine.toml"),
        (["run", "--device", "meta"], "swamp trains on cpu, cuda"),
        (["run", "--tasks.image.pad", "200000"], "tasks.image.pad = 200000"),
        (["run", "--pruning.prune_fraction", "0.9999999"], "weights would survive at cycle 1"),
        (["run", "--seeds", "0,1", "--seed", "3"], "give either --seed or --seeds"),
        (["run", "digits", "digits"], "one recipe at a time"),
        (["run", "--device", "cuda:9"], "device = 'cuda:9' is not available"),
        (["run", "--tasks.image.model", "resnet"], "unknown model 'resnet'"),
        (["resume", "nowhere"], "nowhere does not exist"),
        (["show", "nowhere"], "nowhere does not exist"),
        (["watch", "nowhere"], "nowhere does not exist"),
        (["run", "--tracker", "wanbd"], "unknown tracker 'wanbd'; did you mean 'wandb'"),
        (["run", "--tracker", ""], "unknown tracker ''"),
        (["run", "--plain", "--quiet"], "give either --plain or --quiet"),
        (["compare"], "at least one run directory"),
        (["ensemble"], "at least two runs"),
        (["figure", "eror"], "unknown figure 'eror'; did you mean 'error'? Known: calibration, "),
        (["reproduce", "x"], "unknown target 'x'; known: connectivity, "),
        (["run", "--engine", "x"], "unknown engine 'x'; known: distributed, "),
        (["recipes", "digit"], "did you mean 'digits'"),
        (["rnu"], 'Did you mean "run"'),
        (["run", "--out"], "requires an argument"),
    ],
)
def test_mistakes_get_one_sentence_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *arguments)
    assert status == 2
    assert message in err
    assert err.startswith("swamp: ")
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("defect", ["max(())", "int('x')", "a, b = ()", "list(zip((), (1,), strict=True))", "raise_elsewhere()"])
def test_a_defect_of_swamp_keeps_its_traceback(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_elsewhere() -> None:
        raise ValueError("of another package")

    monkeypatch.setattr("swamp.methods.find_method", function_of_swamp(defect, raise_elsewhere=raise_elsewhere))
    with pytest.raises(ValueError):
        main(["methods", "imp"])


@pytest.mark.parametrize(
    "mistake",
    [
        "raise ValueError('no such thing')",
        "try: {}[0]\n except KeyError: raise ValueError('no such thing') from None",
        "try: int('x')\n except ValueError as error: raise ValueError('no such thing') from error",
        "with nullcontext():\n  try: raise ValueError('no such thing')\n  finally: pass",
    ],
)
def test_what_swamp_raises_is_a_mistake_of_the_user(
    mistake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("swamp.methods.find_method", function_of_swamp(mistake, nullcontext=nullcontext))
    assert call(capsys, "methods", "imp") == (2, "", "swamp: no such thing\n")


def function_of_swamp(body: str, **names: object) -> Callable[..., Any]:
    """Return a function that does what `body` says as if it were in a module of swamp."""
    scope: dict[str, Any] = {"__name__": "swamp.made_up", **names}
    exec(f"def made_up(*arguments):\n {body}", scope)
    return cast(Callable[..., Any], scope["made_up"])


def test_a_setting_of_a_method_that_no_run_has_is_named() -> None:
    settings = {"method": "imp,swamp-plus", "methods.swamp.particles": 3, "methods.rigl.interval": 5, "cycle.epochs": 2}
    requests, _ = asked_runs("digits", settings, [], None)
    assert without_effect(settings, requests) == ["--methods.rigl.interval has no effect on the method imp, swamp"]


def test_quiet_and_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    short = [*FLAGS, "--pruning.cycles=0", "--cycle.epochs=1", "--cache", str(tmp_path / "cache")]
    status, out, remarks = call(capsys, "run", *short, "--quiet", "--out", tmp_path / "quiet")
    assert (status, out) == (0, "")
    assert [line[:19] for line in remarks.splitlines()] == ["the dense network's", "the calibrated NLL "]  # One epoch is little.
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, err = call(capsys, "run", *short, "--plain", "--out", tmp_path / "plain")
    assert status == 0
    assert "\x1b" not in out + err
    assert err.startswith("cycle 0: 0.00 % sparse, accuracy ")
    assert len(err.splitlines()) == 1
    assert out.startswith("swamp on digits, seed 0\ncycle  sparsity %")
    assert contents(tmp_path / "quiet") == contents(tmp_path / "plain")


def test_bad_pictures(finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, _, err = call(capsys, "compare", finished / "imp", "--plot", tmp_path / "error.gif")
    assert status == 2
    assert "ends in .png, .svg, .pdf, not 'error.gif'" in err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = call(capsys, "compare", finished / "imp", "--plot", tmp_path / "error.png")
    assert status == 2
    assert "pip install 'swamp[plots]'" in err


def test_a_diverging_run_stops_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = [*FLAGS, "--ticket.learning_rate=0.1", "--cycle.learning_rate=1e30", "--out", str(tmp_path / "run")]
    for engine in (["--engine=sequential"], ["--engine=processes", "--engines.processes.workers=1"]):
        status, _, err = call(capsys, "run", *flags, *engine)
        assert status == 1
        assert re.search(r"the loss became (nan|inf) at cycle 0, particle ([01]), epoch \d, step \d+ \(noise 0/cycle/0/particle/\2\)", err)
        assert "Traceback" not in err


def test_a_stopped_group_resumes_the_seeds_it_never_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swamp.runs import runner

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_rows", interrupted)
        status, _, err = call(capsys, "run", *FLAGS, "--seeds", "0,1", "--out", tmp_path / "g", "--cache", tmp_path / "c")
    assert status == 130
    assert f"swamp resume {tmp_path / 'g'} --cache {tmp_path / 'c'}" in err
    status, out, _ = call(capsys, "resume", tmp_path / "g", "--cache", tmp_path / "c", "--notes", "later", "--keep", "last")
    assert status == 0
    assert "swamp accuracy % (n=2)" in out
    status, _, err = call(capsys, "resume", tmp_path / "g", "--cycle.epochs", "9")
    assert status == 2
    assert "another configuration: cycle.epochs (2 there, 9 here)" in err


def test_several_methods_and_seeds_have_a_directory_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [*FLAGS, "--pruning.cycles=0", "--cycle.epochs=1", "--method", "imp,swamp"]
    status, _, _ = call(capsys, "run", *both, "--out", tmp_path / "methods", "--cache", tmp_path / "cache")
    assert status == 0
    assert sorted(path.name for path in (tmp_path / "methods").iterdir()) == ["imp", "swamp"]
    status, _, _ = call(capsys, "run", *both, "--seeds=0,1", "--out", tmp_path / "all", "--cache", tmp_path / "cache")
    assert status == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["imp-seed-0", "imp-seed-1", "swamp-seed-0", "swamp-seed-1"]
    assert call(capsys, "compare", tmp_path / "all")[0] == 0


def test_comparisons_do_not_mix_what_differs(finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["run", *FLAGS, "--method", "imp", "--cycle.epochs=1", "--out", str(tmp_path / "short"), "--cache", str(finished / "cache")])
    capsys.readouterr()
    _, out, _ = call(capsys, "compare", finished / "imp", tmp_path / "short")
    assert "imp cycle.epochs=1 accuracy" in out
    assert "imp cycle.epochs=2 accuracy" in out
    once, twice = (call(capsys, "compare", *[finished / "imp"] * times) for times in (1, 2))
    assert twice == once  # a run given twice is no second seed


def test_two_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from swamp.store.directory import Store

    with Store(tmp_path / "run").locked():
        status, _, err = call(capsys, "run", *FLAGS, "--out", tmp_path / "run")
    assert status == 2
    assert "in use by another process" in err


def test_unwritable_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    status, _, err = call(capsys, "run", *FLAGS, "--out", tmp_path / "file" / "run")
    assert status == 1
    assert "cannot use" in err
    assert "Traceback" not in err


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk that is full: the weights do not fit, what is smaller does."""
    command = [sys.executable, "-m", "swamp", "run", *FLAGS, "--out", str(tmp_path / "run")]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))

    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode == 1
    assert "no space left to write" in full.stderr
    assert "Traceback" not in full.stderr
    main(command[3:])
    main(["run", *FLAGS, "--out", str(tmp_path / "other")])
    assert contents(tmp_path / "run") == contents(tmp_path / "other")


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "swamp", "run", *FLAGS, "--engine=processes", "--engines.processes.workers=1"]
    command += ["--cycle.epochs=50", "--out", str(tmp_path / "run")]

    def heed_interrupts() -> None:
        """Under nohup, or in the background of a shell, SIGINT is ignored, and children inherit that."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    )
    deadline = time.monotonic() + 60
    timing = tmp_path / "run" / "timing.jsonl"
    while not (workers := children(process.pid)) or not timing.exists() or '"key"' not in timing.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"Go on with: swamp resume {tmp_path / 'run'}" in err
    assert "Traceback" not in err
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def test_untrusted_text_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "[red]odd[.toml").write_text('notes = "[bold]"\n')
    status, out, _ = call(capsys, "run", tmp_path / "[red]odd[.toml", *FLAGS, "--pruning.cycles=0", "--out", tmp_path / "run")
    assert status == 0
    assert "[red]odd[" in out


@pytest.mark.parametrize("arguments", [("recipes", "digits"), ("methods", "imp"), ("--help",)])  # more than a buffer, less, and by rich
def test_a_reader_that_leaves_is_no_failure(arguments: tuple[str, ...]) -> None:
    """As in `swamp recipes digits | head -1`."""
    process = subprocess.Popen([sys.executable, "-m", "swamp", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate()[1] == b""
    assert process.returncode == 141


def test_a_pipe_that_broke_elsewhere_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("swamp.runs.recipes.recipe_texts", breaks)
    status, _, said = call(capsys, "recipes")
    assert (status, said) == (1, "swamp: cannot use a file: Broken pipe\n")


def test_who_closed_the_output_is_no_error(tmp_path: Path) -> None:
    script = f"exec {sys.executable} -m swamp run --quiet {' '.join(FLAGS)} --pruning.cycles=0 --out {tmp_path / 'run'} >&-"
    process = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.returncode == 0
    assert [line[:19] for line in process.stderr.splitlines()] == ["the dense network's", "the calibrated NLL "]  # remarks alone
