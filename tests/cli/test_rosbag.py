# SPDX-License-Identifier: Apache-2.0
"""A recording of ROS, as a user meets it: inspect proposes the mapping, and train takes it."""

from pathlib import Path

import pytest
from shell import Shell, assert_mendable
from tiny_arguments import TINY
from tiny_bag import street
from tiny_capture import tiny_capture

from nurec_lite.capture.checks import run


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of poses: the recording leaves a choice."""
    return street(tiny_capture()).odometry("/odom2").write(tmp_path_factory.mktemp("bag") / "bag", "mcap")


def test_inspect_proposes_a_mapping_that_train_takes(
    bag: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKS", {})
    given = ["data=rosbag", f"data.root={bag}"]
    ended = shell("inspect", *given, f"out={tmp_path / 'look'}")
    mapping = tmp_path / "look/mapping.yaml"
    assert_mendable(ended, rf"choose one by poses\.topic; complete {mapping}, and give data\.mapping={mapping}$")
    assert mapping.read_text() in ended.out

    tiny = [argument for argument in TINY if "downscale" not in argument]
    arguments = [*given, *tiny, "density.cap=400", "train.steps=3", "train.evaluate=false", "data.poses.source=capture"]
    assert_mendable(
        shell("train", *arguments, f"out={tmp_path / 'run'}"), r"holds several topics of poses, /odom, /odom2"
    )
    ended = shell("train", *arguments, f"data.mapping={mapping}", f"out={tmp_path / 'run'}")
    assert ended.code == 0 and (tmp_path / "run/checkpoint.pt").exists(), ended.error


def test_mistakes_of_the_command_line(bag: Path, shell: Shell, tmp_path: Path) -> None:
    for arguments, sentence in (
        (["data=rosbag"], r"data\.root is missing: name the bag"),
        (["data=rosbag", f"data.root={tmp_path / 'no'}"], r"does not exist; data\.root must be a bag"),
        (
            ["data=rosbag", f"data.root={bag}", f"data.mapping={tmp_path / 'no'}"],
            r"cannot be read .*writes one that fits$",
        ),
    ):
        assert_mendable(shell("inspect", *arguments, f"out={tmp_path / 'look'}"), sentence)
