# SPDX-License-Identifier: Apache-2.0
"""Hydra composes every file under conf/ over the dataclasses, which check names, types and ranges and alone hold the defaults."""

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.paths import resource
from nurec_lite.bounds import KINDS
from nurec_lite.capture.types import CaptureError
from nurec_lite.cli.command import configuration
from nurec_lite.config import Config, DataConfig, check_budget, to_config, to_dict
from nurec_lite.readers import open_capture

CONF = resource("conf")
DATA = sorted(p.stem for p in (CONF / "data").glob("*.yaml"))
OPTIONS = sorted(p.stem for p in (CONF / "opt").glob("*.yaml"))
FILES = sorted(str(p.relative_to(CONF)) for p in CONF.rglob("*.yaml"))


def composed(*overrides: str) -> Config:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return to_config(compose("train", overrides=list(overrides)))


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by their dotted keys."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {key: leaf for name, sub in tree.items() for key, leaf in flat(sub, f"{prefix}.{name}".strip(".")).items()}


def test_there_are_files() -> None:
    assert {"bundled", "pack", "kitti_raw", "rosbag"} <= set(DATA) and {"workers", "all"} <= set(OPTIONS)


def test_a_run_needs_a_budget() -> None:
    with pytest.raises(ConfigError, match=r"give a budget: train\.steps=N or train\.seconds=S"):
        check_budget(composed("train.seconds=null"))


@pytest.mark.parametrize("data", DATA)
def test_a_size_goes_over_what_a_capture_chooses(data: str) -> None:
    config = composed(f"data={data}", "data.root=somewhere", "+size=large", "model.points=7")
    assert (config.density.cap, config.model.raised_points, config.model.sh_degree) == ("auto", "auto", 3)
    assert config.model.points == 7 and config.data.root == "somewhere"


@pytest.mark.parametrize("name", DATA)
def test_every_data_file_composes(name: str) -> None:
    config = composed(f"data={name}", *([] if name == "bundled" else ["data.root=somewhere"]))
    assert isinstance(config, Config) and isinstance(config.data, DataConfig)
    assert config.data.kind in KINDS and config.data.name
    assert config.data.root == (None if name == "bundled" else "somewhere")
    assert config.train.steps is not None or config.train.seconds is not None


@pytest.mark.parametrize("name", sorted(set(DATA) - {"bundled"}))
def test_a_root_that_must_be_given_is_asked_for(name: str) -> None:
    with pytest.raises(CaptureError, match=r"data\.root is missing: name the .* as in data\.root="):
        open_capture(composed(f"data={name}").data)


def test_a_root_is_not_ignored() -> None:
    with pytest.raises(
        CaptureError,
        match=r"data\.root=mine\.pack is for captures of your own; name its kind, too: data=pack, argoverse2, .* or waymo",
    ):
        open_capture(composed("data.root=mine.pack").data)


def test_a_capture_of_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(CaptureError, match=r"data\.kind is 'film', but must be bundled, pack, .* or waymo"):
        open_capture(DataConfig(kind="film"))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_file_composes_and_holds_its_own_name(name: str) -> None:
    own = OmegaConf.to_container(OmegaConf.load(CONF / "opt" / f"{name}.yaml"))
    assert isinstance(own, dict) and list(own) == [name]
    config = composed(f"+opt={name}")
    assert config.opt == own


def test_one_command_leaves_the_defaults_of_the_next() -> None:
    """Hydra shares one table of configurations between all that it composes."""
    before = composed("out=x")  # else it holds the time of day
    assert composed("out=x", "train.steps=7", "+opt=workers", "data.cameras=[left]") != before
    assert composed("out=x") == before


def test_without_options_there_are_none() -> None:
    assert composed().opt == {}


def test_the_default_is_the_bundled_capture_with_a_budget() -> None:
    config = composed()
    assert config.data.root is None and config.data.kind == "bundled"
    assert config.train.seconds and config.out.startswith(f"runs/{config.data.name}-")


def test_every_part_is_a_dataclass() -> None:
    config = composed()
    parts = [getattr(config, f.name) for f in fields(Config)]
    assert sum(is_dataclass(part) for part in parts) == 7
    assert to_dict(config) == asdict(config)


@pytest.mark.parametrize(
    "key", ["sede=1", "train.step=1", "model.pionts=1", "lr.meens=1", "data.rooot=x", "density.x=1"]
)
def test_a_misspelt_key_is_an_error(key: str) -> None:
    with pytest.raises(HydraException, match=key.split("=")[0]):
        composed(key)


@pytest.mark.parametrize("name", ["data=nowhere", "+opt=nothing"])
def test_a_misspelt_name_is_an_error(name: str) -> None:
    with pytest.raises(HydraException, match=name.split("=")[1]):
        composed(name)


@pytest.mark.parametrize(
    "value",
    ["seed=one", "seed=1.5", "train.steps=many", "lr.means=fast", "train.evaluate=perhaps", "data.frames=[a,b]",
     "density=3", "data.poses=file.txt", "seed=null", "lr.means=null", "data.cameras=left"],
)  # fmt: skip
def test_types_are_checked(value: str) -> None:
    with pytest.raises((HydraException, ConfigError)):
        composed(value)


def test_values_are_converted() -> None:
    config = composed("lr.means=1", "train.steps=7", "train.evaluate=false", "data.frames=[3,9]", "data.cameras=[a,b]")
    assert config.lr.means == 1.0 and isinstance(config.lr.means, float)
    assert config.train.steps == 7 and config.train.evaluate is False
    assert config.data.frames == [3, 9] and config.data.cameras == ["a", "b"] and isinstance(config.data.frames, list)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.steps=-1"], r"train\.steps is -1, but must lie between 0 and 1000000000; correct this key"),
        (["train.seconds=-0.5"], r"train\.seconds is -0\.5, but must lie between 0 and 1e\+09"),
        (["data.downscale=0"], r"data\.downscale is 0, but must lie between 1 and 1024"),
        (["model.sh_degree=4"], r"model\.sh_degree is 4, but must lie between 0 and 3"),
        (
            ["data.frames=[1,2,3,4]"],
            r"data\.frames takes the first frame and the one after the last, as in \[0,20\], and",
        ),
        (["data.frames=[1]"], r"data\.frames takes the first frame and the one after the last"),
        (["data.frames=[0,9,0]"], r"the step between frames must be at least 1, as in \[0,20,2\]"),
        (["model.calibrate=true", "model.bilateral_grid=[8,8]"], r"model\.bilateral_grid takes three numbers"),
        (
            ["model.calibrate=true", "model.bilateral_grid=[8,8,0]"],
            r"bilateral_grid holds 0, but must lie between 1 and 64",
        ),
        (["model.bilateral_grid=[8,8,4]"], r"bilateral_grid .*; give model\.calibrate=true and render=own with it"),
        (
            ["model.calibrate=true", "render=gsplat", "model.bilateral_grid=[8,8,4]"],
            r"give model\.calibrate=true and render=own",
        ),
    ],
)
def test_values_out_of_range_are_errors_that_name_the_key(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(*overrides)


def test_what_a_run_stores_is_the_configuration_again(tmp_path: Path) -> None:
    config = composed("+opt=workers", "data=pack", "data.root=x", "train.steps=3")
    OmegaConf.save(OmegaConf.create(to_dict(config)), tmp_path / "config.yaml")
    again = to_config(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(tmp_path / "config.yaml")))
    assert again == config


# Defaults


@pytest.mark.parametrize("file", [f for f in FILES if not f.startswith("opt/")])
def test_files_repeat_no_default_of_the_dataclasses(file: str) -> None:
    content = OmegaConf.to_container(OmegaConf.load(CONF / file), resolve=False)
    assert isinstance(content, dict)
    whole = "@package _global_" in (CONF / file).read_text() or "/" not in file
    defaults = flat(asdict(Config()))
    given = flat(content if whole else {Path(file).parts[0]: content})
    own = {key: value for key, value in given.items() if not key.startswith(("defaults", "hydra."))}
    assert set(own) <= set(defaults), "a key that no dataclass has"
    verb = flat(OmegaConf.to_container(OmegaConf.load(CONF / "train.yaml"), resolve=False)) if "recipe" in file else {}
    repeated = {key: value for key, value in own.items() if value == verb.get(key, defaults[key])}
    assert not repeated, f"conf/{file} repeats defaults of nurec_lite/config.py"


def test_every_default_is_within_its_own_range() -> None:
    config = Config()
    assert to_config(OmegaConf.structured(config)) == config


@pytest.mark.parametrize(
    ("verb", "argument"),
    [
        ("render", "train.steps=5"),
        ("export", "density.cap=9"),
        ("evaluate", "+lr.means=1"),
        ("view", "measure.seconds=1"),
    ],
)
def test_keys_that_steer_training_alone_are_refused_where_nothing_trains(verb: str, argument: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"changes nothing in {verb}, as the scene of a checkpoint is trained already"
    ):
        configuration(verb, [argument], {"config": {}})
