# SPDX-License-Identifier: Apache-2.0
"""Keys that the kind of a capture does not read are named: their value would have no effect."""

import pytest

from nurec_lite.config import DataConfig, PosesChoice, TracksChoice
from nurec_lite.readers import read_capture

BY_DRIVE = "kitti_raw, argoverse2, kitti360, ncore, nuscenes, pandaset or waymo"


@pytest.mark.parametrize(
    ("keys", "argument", "kinds"),
    [
        ({"poses": PosesChoice(file="poses.txt")}, "data.poses.file=poses.txt", "kitti_raw"),
        ({"poses": PosesChoice(convention="camera")}, "data.poses.convention=camera", "kitti_raw"),
        ({"tracks": TracksChoice(sizes="lwh")}, "data.tracks.sizes=lwh", "kitti_raw"),
        ({"tracks": TracksChoice(first_frame=1)}, "data.tracks.first_frame=1", "kitti_raw"),
        ({"image_delay": 0.01}, "data.image_delay=0.01", "kitti_raw"),
        ({"unit_metres": 2.0}, "data.unit_metres=2", "colmap"),
        ({"mapping": "topics.yaml"}, "data.mapping=topics.yaml", "rosbag"),
        ({"drive": "scene"}, "data.drive=scene", BY_DRIVE),
    ],
)
def test_a_key_for_other_captures_is_named(
    caplog: pytest.LogCaptureFixture, keys: dict[str, object], argument: str, kinds: str
) -> None:
    read_capture(DataConfig(**{"tracks": TracksChoice(source="none"), **keys}))  # type: ignore[arg-type]
    assert caplog.messages == [f"{argument} is not read: it is for data={kinds}, and this is data=bundled"]


def test_without_such_keys_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    read_capture(DataConfig(tracks=TracksChoice(source="none"), frames=[0, 5], cameras=["camera_0"]))
    assert not caplog.messages
