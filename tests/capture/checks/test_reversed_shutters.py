# SPDX-License-Identifier: Apache-2.0
"""Cameras that read their rows the other way, and frames with exchanged poses."""

from dataclasses import replace

import torch
from tiny_capture import ROOT
from wrong_poses import street

from nurec_lite.capture.checks.cameras import CHECK, check_cameras
from nurec_lite.capture.checks.driving import check_driving
from nurec_lite.capture.checks.ends import exchanged_ends
from nurec_lite.capture.checks.found import verdicts_of
from nurec_lite.capture.checks.paths import paths_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.shutters import reversed_shutters
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


def with_shutter(shutter: str) -> Capture:
    capture = read_pack(ROOT / "data/street.pack")
    return replace(capture, cameras=tuple(replace(camera, shutter=shutter) for camera in capture.cameras))


def doubts(capture: Capture) -> list[Verdict]:
    return verdicts_of(CHECK, reversed_shutters(Sample(capture), []))


def test_shutters_that_read_the_other_way_are_named() -> None:
    (found,) = doubts(with_shutter("bottom_to_top"))
    assert found.level is Level.LIKELY and found.subject == "camera_0, camera_1"
    assert "if the shutter reads from top to bottom" in found.sentence
    assert found.remedy == "set the shutter to top_to_bottom where the capture was made"
    assert found.corrected is not None and doubts(found.corrected(with_shutter("bottom_to_top"))) == []


def test_right_and_global_shutters_are_no_finding() -> None:
    capture = with_shutter("top_to_bottom")
    assert doubts(capture) == [] and doubts(with_shutter("global")) == []
    standing = tuple(replace(f, T_world_rig_end=f.T_world_rig_start) for f in capture.images)
    assert doubts(replace(with_shutter("bottom_to_top"), images=standing)) == []
    assert doubts(replace(capture, images=())) == [] and doubts(replace(capture, sweeps=())) == []


def test_frames_with_exchanged_poses_are_named_once() -> None:
    images = tuple(
        replace(f, T_world_rig_start=f.T_world_rig_end, T_world_rig_end=f.T_world_rig_start) for f in street().images
    )
    sample = Sample(replace(street(), images=images), sweeps=6)
    (found,) = check_driving(sample)
    words = "Within frames of camera_0 and camera_1 the poses go back by 0.16 m, but ahead from frame to frame."
    assert found.level is Level.LIKELY and found.sentence == words
    sample.found.append(found)
    assert {verdict.level for verdict in check_cameras(sample)} == {Level.UNKNOWN}


def test_right_frames_and_a_rig_at_rest_do_not_go_back() -> None:
    assert list(exchanged_ends(paths_of(street()))) == [] and list(exchanged_ends([])) == []
    (path, *_) = paths_of(street())
    one = replace(path, frames=path.frames[:1], times=path.times[:1], poses=path.poses[:1])
    still = replace(path, poses=torch.eye(4, dtype=torch.float64).expand(len(path.frames), 4, 4))
    assert list(exchanged_ends([one, still])) == []
