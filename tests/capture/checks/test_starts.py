# SPDX-License-Identifier: Apache-2.0
"""A camera's corrections begin with the values that edges show, and correct it."""

import math
from dataclasses import replace

import pytest
import torch

from nurec_lite.base.paths import resource
from nurec_lite.capture.checks.agreed import Agreement
from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.starts import Start, starts_of
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.scene.calibration import add_starts, none_known

STREET = read_pack(resource("data/street.pack"))


def found(capture: Capture) -> dict[str, Start]:
    sample = Sample(capture)
    check_cameras(sample)
    assert set(sample.agreements) == {camera.name for camera in capture.cameras}
    return starts_of(sample)


def test_a_right_capture_begins_as_it_is() -> None:
    assert found(STREET) == {}


def test_a_camera_that_is_turned_and_late() -> None:
    """Its stamps are 40 ms too early: it saw later than it says. It looks half a degree farther left than it says."""
    truth = STREET
    turn = torch.tensor([0, math.radians(0.5), 0], dtype=torch.float64)
    said = replace(
        truth.camera("camera_1"),
        T_rig_cam=truth.camera("camera_1").T_rig_cam @ pose_matrix(rotvec_to_quat(turn), torch.zeros(3).double()),
    )
    moved = {"time_start": -0.04, "time_end": -0.04}
    frames = [f for f in truth.images if f.sensor == "camera_1"]
    speed = (frames[-1].T_world_rig_start - frames[0].T_world_rig_start) / (
        frames[-1].time_start - frames[0].time_start
    )

    def early(frame):  # type: ignore[no-untyped-def]
        if frame.sensor != "camera_1":
            return frame
        poses = {f"T_world_rig_{end}": getattr(frame, f"T_world_rig_{end}") - 0.04 * speed for end in ("start", "end")}
        return replace(frame, **poses, **{key: getattr(frame, key) + by for key, by in moved.items()})

    lying = replace(truth, cameras=(truth.cameras[0], said), images=tuple(map(early, truth.images)))
    starts = found(lying)
    assert set(starts) == {"camera_1"}
    assert starts["camera_1"].seconds == pytest.approx(0.04, abs=0.008)
    assert starts["camera_1"].degrees == pytest.approx(0.5, abs=0.1)
    known = none_known(lying, 0.5, "cpu")
    add_starts(known, starts)
    assert known.camera_offsets.tolist() == pytest.approx([0, starts["camera_1"].seconds])
    corrected = said.T_rig_cam @ pose_matrix(
        rotvec_to_quat(known.camera_rotations[1].double()), torch.zeros(3).double()
    )
    ahead = (corrected[:3, 2] * truth.cameras[1].T_rig_cam[:3, 2]).sum()
    assert math.degrees(math.acos(min(1.0, float(ahead)))) < 0.1


def test_what_edges_hardly_tell_is_left_to_training() -> None:
    sample = Sample(STREET)
    sample.agreements = {
        "a": Agreement(0.5, 0.2, 0.03, 0.01),
        "b": Agreement(-0.3, 0.01, 0.002, 0.0001),
        "c": Agreement(0.0, 0.01, -0.02, math.inf),
    }
    assert starts_of(sample) == {"b": Start(-0.3, 0.0)}
