# SPDX-License-Identifier: Apache-2.0
"""Differences of a configuration from the defaults, and command lines that repeat it."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from nurec_lite.base.key_values import hydra_value
from nurec_lite.cli.command import composed
from nurec_lite.config import Config, DataConfig, TracksChoice, TrainConfig, to_dict
from nurec_lite.report.parts import with_code
from nurec_lite.report.settings import changes, commands_after_train, overrides


def given_by(line: str, verb: str = "train") -> list[str]:
    python, flag, module, *arguments = shlex.split(line)
    assert (python, flag, module) == ("python", "-m", f"nurec_lite.{verb}")
    return arguments


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train.seconds=20", "model.points=100", "lr.means=1e-05", "seed=3"],
        ["train.steps=9", "train.seconds=150"],
        ["train.steps=9"],
        ["train.seconds=null", "train.steps=9", "+opt=[workers]", "opt.workers.count=2"],
        ["data=kitti_raw", "data.root='/a b'", "data.date='2011_09_26'", "data.frames=[0,20]", "data.cameras=[image_02]"],
        ["data=pack", "data.root=x.pack", "data.poses.file=poses.txt", "data.split=side", "+opt=all"],
        ["+opt=[all,batch]", "opt.batch.images=3"],
    ],
)  # fmt: skip
def test_the_command_line_gives_the_configuration_again(arguments: list[str]) -> None:
    config = composed("train", [*arguments, "out=some/where"])
    again, longer, measure, render, export = commands_after_train(config)
    assert replace(composed("train", given_by(again.line)), out=config.out) == config, "in a folder of its own"
    on = composed("train", given_by(longer.line))
    assert on.train.resume == "some/where/checkpoint.pt"
    assert (on.data, on.model, on.opt) == (config.data, config.model, config.opt)
    pairs = ((on.train.steps, config.train.steps), (on.train.seconds, config.train.seconds))
    assert all(a == (None if b is None else 2 * b) for a, b in pairs)
    assert given_by(measure.line, "evaluate") == ["checkpoint=some/where/checkpoint.pt", "subset=train"]
    assert given_by(export.line, "export") == ["checkpoint=some/where/checkpoint.pt"]
    assert given_by(render.line, "render")[0] == "checkpoint=some/where/checkpoint.pt"


@pytest.mark.parametrize(
    "name", ["it's", 'a "b"', "a\\", 'a\\"', "~/x y", "2011_09_26", "0009", "NULL", "", "1e5", "ä, [b]", "-"]
)
def test_any_name_survives_the_command_line(name: str) -> None:
    """It survives as a text, and as a part of a path."""
    data = DataConfig(kind="pack", date=name, root=f"x/{name}", tracks=TracksChoice(f"./{name}"), cameras=["a", name])
    config = Config(data=data, train=TrainConfig(steps=1))
    arguments = given_by(commands_after_train(config)[0].line)
    assert to_dict(replace(composed("train", arguments), out=config.out)) == to_dict(config)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False), lambda s: st.lists(s, max_size=3)
    )
)
def test_values_are_written_as_hydra_reads_them(value: Any) -> None:
    assert OverridesParser.create().parse_override(f"a={hydra_value(value)}").value() == value


def test_only_what_differs_is_listed() -> None:
    config = composed("train", ["train.seconds=20", "out=x"])
    (change,) = changes(config)
    assert (change.key, change.value, change.default) == ("train.seconds", 20, 150) and "training" in change.meaning
    assert changes(composed("train", ["out=x"])) == [] and overrides(composed("train", ["out=x"])) == []


def test_words_between_backticks_are_code() -> None:
    assert with_code("the run in `out`, <if> `a`") == "the run in <code>out</code>, &lt;if&gt; <code>a</code>"
    assert with_code("one ` alone") == "one ` alone" and with_code("") == ""
