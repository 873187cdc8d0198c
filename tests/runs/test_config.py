from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from swamp.methods import find_method, methods, presets
from swamp.methods.method import at_cycle
from swamp.runs.config import build_config, complete, config_hash, deciding_settings, resolve, with_settings
from swamp.runs.other_names import OTHER_NAMES
from swamp.runs.recipes import merge, merge_all, nested, read_chain, recipe_texts
from swamp.runs.setting_list import all_settings, parse_setting, to_toml


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cycle.epochs": 3.7}, "cycle.epochs = 3.7: expected an integer, got float"),
        ({"cycle.epochs": True}, "cycle.epochs = True: expected an integer, got bool"),
        ({"cycle.epochs": "3"}, "cycle.epochs = '3': expected an integer$"),
        ({"cycle.epochs": 0}, "cycle.epochs = 0: a cycle trains for at least 1 epoch"),
        ({"cycle.epochs": -1}, "cycle.epochs = -1: expected an integer >= 0"),
        ({"cycle.epoch": 3}, "unknown setting 'cycle.epoch'; did you mean 'epochs'?"),
        ({"cylce.epochs": 3}, "unknown setting 'cylce'; did you mean 'cycle'?"),
        ({"cycle": 3}, "cycle = 3: expected a table, got int"),
        ({"notes": 3}, "notes = 3: expected a text, got int"),
        ({"pruning.prune_fraction": 1.0}, "pruning.prune_fraction = 1.0: expected a number < 1.0"),
        ({"pruning.prune_fraction": float("nan")}, "pruning.prune_fraction = nan is not a finite number"),
        ({"optimizer.weight_decay": float("inf")}, "optimizer.weight_decay = inf is not a finite number"),
        ({"cycle.shape": "cosin"}, "cycle.shape = 'cosin' is not allowed; did you mean 'cosine'?"),
        ({"pruning.rewind": "weight"}, "pruning.rewind = 'weight' is not allowed; did you mean 'weights'?"),
        ({"swa.entry": "anneal:0"}, "swa.entry = 'anneal:0': How the rate reaches that constant"),
        ({"cycle.warmup": 30.0}, "cycle.warmup = 30.0 is longer than cycle.epochs = 20"),
        ({"method": "swmap"}, "unknown method 'swmap'; did you mean 'swamp'?"),
        ({"engine": "sequental"}, "unknown engine 'sequental'; did you mean 'sequential'?"),
        ({"task": "images"}, "unknown task 'images'; did you mean 'image'?"),
        ({"task": "mine"}, "a task of your own is named as module:function"),
        ({"methods.swmap.particles": 3}, r"unknown table \[methods.swmap\]; did you mean 'swamp'?"),
        ({"methods.swamp.particle": 3}, "unknown setting 'methods.swamp.particle'; did you mean 'particles'?"),
        ({"methods.swamp.particles": 0}, "methods.swamp.particles = 0: expected an integer >= 1"),
        ({"methods.swamp.particles": 2.5}, "methods.swamp.particles = 2.5: expected an integer"),
        ({"methods.swamp.particles": {"3": 2}}, 'must begin with cycle "0"'),
        ({"methods.swamp.particles": {"0": 2, "x": 2}}, "methods.swamp.particles"),
        ({"tasks.image.prunable": []}, "tasks.image.prunable"),
        ({"seed": -1}, "seed = -1: expected an integer >= 0"),
    ],
)
def test_mistakes_get_one_clear_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        build_config("digits", settings)
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)


def test_recipes_are_layered_over_their_base(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[cycle]\nepochs = 7\n[methods.swamp]\nparticles = {"0" = 1, "2" = 3}\n')
    (tmp_path / "yours.toml").write_text('base = "mine.toml"\nmethod = "swamp"\n[methods.swamp]\nparticles = {"0" = 2}\n')
    mine = build_config(str(tmp_path / "mine.toml"))
    assert (mine.recipe, mine.cycle.epochs, mine.cycle.learning_rate) == ("mine", 7, 0.1)
    yours = build_config(tmp_path / "yours.toml")
    assert (yours.recipe, yours.cycle.epochs) == ("yours", 7)
    assert yours.selected("method").particles == {"0": 2}  # values are replaced, never mixed


def test_bad_recipes(tmp_path: Path) -> None:
    loop = tmp_path / "loop.toml"
    loop.write_text('base = "loop.toml"\n')
    with pytest.raises(ValueError, match="in a circle"):
        read_chain(str(loop))
    for folder, other in (("here", "there"), ("there", "here")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "loop.toml").write_text(f'base = "../{other}/loop.toml"')
    with pytest.raises(ValueError, match=r"in a circle: \S+/here/loop.toml -> \S+/there/loop.toml -> \S+/here/loop.toml$"):
        read_chain(str(tmp_path / "here/loop.toml"))
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    with pytest.raises(ValueError, match="not valid TOML"):
        read_chain(str(tmp_path / "bad.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="cannot be read"):
        read_chain(str(tmp_path / "binary.toml"))
    with pytest.raises(ValueError, match="no such file"):
        read_chain("missing.toml")
    (tmp_path / "itself.toml").symlink_to(tmp_path / "itself.toml")
    for name in (str(tmp_path / "itself.toml"), "nul\0.toml"):
        with pytest.raises(ValueError, match=r"^recipe .*: no such file$"):
            read_chain(name)
    with pytest.raises(ValueError, match="did you mean 'digits'"):
        read_chain("digit")
    (tmp_path / "base.toml").write_text("base = 3")
    with pytest.raises(ValueError, match="base = 3"):
        read_chain(str(tmp_path / "base.toml"))


@pytest.mark.parametrize("recipe", sorted(recipe_texts()))
def test_every_recipe_is_complete_documented_and_runnable_as_printed(recipe: str, tmp_path: Path) -> None:
    assert recipe_texts()[recipe].startswith("# ")
    assert f"swamp run {recipe}" in recipe_texts()[recipe]
    config = build_config(recipe)
    path = tmp_path / f"{recipe}.toml"
    path.write_text(to_toml(config, merge_all(read_chain(recipe).values())))
    assert deciding_settings(build_config(str(path))) == deciding_settings(config)
    if recipe == "digits":  # what it says of methods that it does not select is printed too
        assert build_config(str(path), {"method": "rigl"}).selected("method").interval == 10


def test_every_setting_has_a_description() -> None:
    assert [setting.name for setting in all_settings() if not setting.description] == []


def test_settings_as_text() -> None:
    assert parse_setting("cycle.epochs", "3") == ("cycle.epochs", 3)
    assert parse_setting("cycle.learning-rate", "1e-3") == ("cycle.learning_rate", 0.001)
    assert parse_setting("notes", "3") == ("notes", "3")
    assert parse_setting("methods.swamp.swa", "0:false,1:true")[1] == {"0": False, "1": True}
    assert parse_setting("optimizer.no_decay", "*.bias,bn.*")[1] == ["*.bias", "bn.*"]
    assert parse_setting("optimizer.betas", "0.9,0.98")[1] == [0.9, 0.98]
    assert parse_setting("optimizer.betas", "[0.9, 0.98]")[1] == [0.9, 0.98]
    with pytest.raises(ValueError, match=r"unknown setting --cycles; did you mean --pruning.cycles\?"):
        parse_setting("cycles", "3")
    with pytest.raises(ValueError, match=r"unknown setting --cycle.epoch; did you mean --cycle.epochs"):
        parse_setting("cycle.epoch", "3")


def test_strings_survive_toml(tmp_path: Path) -> None:
    notes = 'a "quote", a \\ and\na line\u007f é'
    config = build_config("digits", {"notes": notes})
    path = tmp_path / "r.toml"
    path.write_text(to_toml(config))
    assert build_config(str(path)).notes == notes


def test_the_hash_covers_numbers_and_nothing_else() -> None:
    base = resolve(build_config("digits"))
    for change in (
        {"engine": "sequential"},
        {"keep": "last"},
        {"checkpoint_seconds": 1.0},
        {"notes": "x"},
        {"engines.processes.workers": 1},
    ):
        assert config_hash(resolve(build_config("digits", change))) == config_hash(base), change
    for change in (
        {"seed": 1},
        {"precision": "bf16"},
        {"threads": 2},
        {"cycle.epochs": 3},
        {"tasks.image.pad": 0},
        {"methods.swamp.particles": 3},
    ):
        assert config_hash(resolve(build_config("digits", change))) != config_hash(base), change
    # tables of methods that are not selected do not count
    assert config_hash(resolve(build_config("digits", {"method": "imp"}))) == config_hash(
        resolve(build_config("digits", {"method": "imp", "methods.swamp.particles": 7}))
    )


def test_a_complete_configuration_completes_to_itself() -> None:
    for method in [*methods(), *presets()]:
        config = resolve(build_config("digits", {"method": method}))
        assert complete(msgspec.to_builtins(config)) == config


def test_presets() -> None:
    original, lr = build_config("digits", {"method": "imp-original"}), build_config("digits", {"method": "imp-lr"})
    assert (original.pruning.rewind, lr.pruning.rewind) == ("init", "lr")
    assert find_method("imp-lr")[0].name == "imp"
    paper = build_config("digits", {"method": "swamp-plus", "pruning.prune_fraction": 0.2, "pruning.cycles": 13})
    assert paper.selected("method").particles == {"0": 1, "11": 4}
    assert build_config("digits", {"method": "swamp-plus"}).selected("method").particles == {"0": 1, "4": 4}
    # what is asked for on the command line wins
    assert build_config("digits", {"method": "swamp-plus", "methods.swamp.particles": 2}).selected("method").particles == 2
    equal = build_config("digits", {"pruning.rewind": "init", "method": "imp"})
    assert config_hash(resolve(original)) == config_hash(resolve(equal))


def test_precision_stays_what_it_was_at_the_first_start() -> None:
    assert resolve(build_config("digits"), {"precision": "bf16"}).precision == "bf16"
    assert resolve(build_config("digits", {"precision": "float32"}), {"precision": "bf16"}).precision == "float32"


def test_devices() -> None:
    with pytest.raises(ValueError, match="device = 'cuda:99' is not available"):
        resolve(build_config("digits", {"device": "cuda:99"}))
    with pytest.raises(ValueError, match="device = 'gpu'"):
        resolve(build_config("digits", {"device": "gpu"}))


def test_merging_leaves_its_inputs_alone() -> None:
    below, above = {"methods": {"swamp": {"particles": {"0": 1}}}}, {"methods": {"swamp": {"swa": False}, "imp": {}}}
    assert merge(below, above) == {"methods": {"swamp": {"particles": {"0": 1}, "swa": False}, "imp": {}}}
    assert below == {"methods": {"swamp": {"particles": {"0": 1}}}}


def test_settings_from_given_cycles_on() -> None:
    assert [at_cycle({"0": 1, "10": 4, "2": 3}, cycle) for cycle in (0, 1, 2, 9, 10, 11)] == [1, 1, 3, 3, 4, 4]
    assert at_cycle(5, 3) == 5


def test_a_preset_stands_below_whoever_names_it(tmp_path: Path) -> None:
    path = tmp_path / "plus.toml"
    path.write_text('method = "swamp-plus"\n[methods.swamp]\nparticles = {"0" = 2, "3" = 8}\n')
    assert build_config(str(path)).selected("method").particles == {"0": 2, "3": 8}
    path.write_text('method = "swamp-plus"\n')
    assert build_config(str(path)).selected("method").particles == {"0": 1, "4": 4}
    # what a run writes down gives the same run again
    config = resolve(build_config("digits", {"method": "swamp-plus", "methods.swamp.particles": 2}))
    path.write_text(to_toml(config))
    assert deciding_settings(resolve(build_config(str(path)))) == deciding_settings(config)
    tiny = build_config("digits", {"method": "swamp-plus", "pruning.prune_fraction": 0.0001})
    assert tiny.selected("method").particles == {"0": 1, "6": 4}  # never reached


def test_dotted_names_and_tables_together() -> None:
    given = {"cycle": {"epochs": 3}, "cycle.learning_rate": 0.2}
    assert nested(given) == {"cycle": {"epochs": 3, "learning_rate": 0.2}}
    assert given == {"cycle": {"epochs": 3}, "cycle.learning_rate": 0.2}
    for bad in ({"cycle.epochs": 2, "cycle": {"epochs": 3}}, {"cycle": 3, "cycle.epochs": 2}):
        with pytest.raises(ValueError, match="is set twice"):
            nested(bad)
    with pytest.raises(ValueError, match="unknown setting '3'"):
        build_config("digits", {3: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize(("cuda", "expected"), [(True, ("cuda", "graphed", "bf16")), (False, ("cpu", "processes", "float32"))])
def test_auto_is_the_card_with_its_engine_where_there_is_one(
    cuda: bool, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    config = resolve(build_config("digits"))
    assert (config.device, config.engine, config.precision) == expected


def test_an_engine_names_its_short_settings() -> None:
    assert parse_setting("ray-address", "auto") == ("engines.ray.address", "auto")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lr", "--cycle.learning_rate"),
        ("epochs", "--cycle.epochs"),
        ("target-sparsity", "--sparsity"),
        ("num_particles", "--methods.swamp.particles"),
        ("trackers", "--tracker"),
        ("sparsty", "--sparsity"),
    ],
)
def test_names_of_other_libraries_get_the_right_hint(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match="unknown setting") as caught:
        parse_setting(name, "3", ["sparsity", "tracker", "out"])
    assert str(caught.value).startswith(f"unknown setting --{name}; did you mean {hint}? (all of them")


def test_every_hint_names_a_setting() -> None:
    known = {setting.name for setting in all_settings()}
    assert set(OTHER_NAMES.values()) <= known
    assert not set(OTHER_NAMES) & known
    with pytest.raises(ValueError, match=r"unknown setting 'cycle.lr'; did you mean 'learning_rate'"):
        build_config("digits", {"cycle.lr": 0.1})
    with pytest.raises(ValueError, match=r"unknown setting 'optimizer.lr'; did you mean 'cycle.learning_rate'"):
        build_config("digits", {"optimizer": {"lr": 0.1}})


def test_data_is_short_for_the_setting_of_the_task_when_a_run_is_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = build_config("cifar10-wrn28-2", {"data": "there"})
    assert with_settings(config, {"data": Path("here")}).tasks["image"]["data"] == str(tmp_path / "here")
    assert config_hash(with_settings(config, {"data": "here"})) == config_hash(config)
    with pytest.raises(ValueError, match="data = 'here': task 'custom' has no such setting"):
        with_settings(build_config("custom"), {"data": "here"})
