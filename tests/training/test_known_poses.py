# SPDX-License-Identifier: Apache-2.0
"""Estimated poses belong to a scene: its checkpoint keeps them, and a later reader of the scene estimates nothing."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hidden_poses import altered, hidden, street
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.capture.digest import KnownPath, digest_of
from nurec_lite.capture.odometry import choose, drive
from nurec_lite.capture.odometry.choose import posed
from nurec_lite.capture.odometry.known import joined
from nurec_lite.capture.odometry.reckoning import exp
from nurec_lite.capture.odometry.replace import with_poses
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import CHOSEN, ESTIMATED, GIVEN, POSITIONED, UNKNOWN, Capture
from nurec_lite.cli.reconstruction import open_reconstruction
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.geometry.se3 import invert
from nurec_lite.train import run
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.known_capture import fresh_digest, known_of
from nurec_lite.training.saving import write_checkpoint

TWIST = torch.tensor([0.01, -0.02, 0.3, 5.0, 0.2, -0.1], dtype=torch.float64)


@pytest.fixture
def nothing_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("nothing should be estimated")

    monkeypatch.setattr(drive, "estimated", never)
    monkeypatch.setattr(drive, "seem_sharp", never)


def part(capture: Capture, first: int, last: int) -> Capture:
    """Some sweeps, and the images between them."""
    sweeps = capture.sweeps[first:last]
    inside = [f for f in capture.images if sweeps[0].time_start <= f.time_start and f.time_end <= sweeps[-1].time_end]
    return replace(capture, sweeps=sweeps, images=tuple(inside))


def known(capture: Capture, poses_from: str) -> KnownPath:
    path = digest_of(replace(capture, poses_from=poses_from), {}).path
    assert path is not None
    return path


def assert_same_poses(a: Capture, b: Capture) -> None:
    for one, other in zip((*a.images, *a.sweeps), (*b.images, *b.sweeps), strict=True):
        torch.testing.assert_close(one.T_world_rig_start, other.T_world_rig_start, atol=1e-9, rtol=0)
        torch.testing.assert_close(one.T_world_rig_end, other.T_world_rig_end, atol=1e-9, rtol=0)


# ---- which poses


@pytest.mark.parametrize("frames", [(0, 16), (4, 9), (5, 6)])
@pytest.mark.parametrize("source", ["auto", "lidar"])
def test_a_part_of_a_drive_has_the_poses_of_the_whole(
    nothing_estimated: None, source: str, frames: tuple[int, int]
) -> None:
    few = hidden(part(street(), *frames))
    found = posed(few, source, known(street(), ESTIMATED))
    assert_same_poses(found, part(street(), *frames))
    assert found.poses_from == ESTIMATED


def test_an_origin_of_the_capture_counts(nothing_estimated: None) -> None:
    far = replace(street(), origin=(1000.0, -300.0, 20.0))
    assert_same_poses(posed(replace(hidden(street()), origin=far.origin), "auto", known(far, ESTIMATED)), street())


@pytest.mark.parametrize(
    ("trained", "now", "kept"),
    [
        (CHOSEN, GIVEN, True),
        (CHOSEN, CHOSEN, True),  # the pack that training had
        (CHOSEN, POSITIONED, False),  # the drive that such a pack was made from
        (CHOSEN, UNKNOWN, False),
        (GIVEN, GIVEN, True),
        (POSITIONED, POSITIONED, True),
        (ESTIMATED, GIVEN, False),
    ],
)
def test_own_poses_that_training_took_stay(nothing_estimated: None, trained: str, now: str, kept: bool) -> None:
    """The comparison with the checkpoint then sees other poses."""
    other = replace(altered(street(), lambda _, poses: poses @ exp(0.1 * TWIST)), poses_from=now)
    assert_same_poses(posed(other, "auto", known(street(), trained)), other if kept else street())


def test_own_poses_are_used_when_asked_for(nothing_estimated: None) -> None:
    assert posed(street(), "capture", known(hidden(street()), ESTIMATED)) is street()


def test_frames_beyond_those_of_training_go_on_from_its_poses(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are poses of the sweeps 4 to 11; the estimate of all lies elsewhere and is right from one sweep to the next."""
    truth, moved = street(), exp(TWIST)
    estimate = with_poses(truth, lambda times: moved @ trajectory_of(truth).at(times))
    whole = posed(hidden(truth), "capture")
    monkeypatch.setattr(choose, "_chosen", lambda *_: estimate)
    assert_same_poses(posed(whole, "auto", known(part(truth, 4, 12), ESTIMATED)), truth)


def test_a_path_with_gaps_bends_what_fills_them() -> None:
    """Known every second; the others drift by a centimetre a second and are exact in between."""
    times = torch.arange(0, 5.01, 0.05, dtype=torch.float64)
    true = exp(times[:, None] * TWIST)
    drift = exp(times[:, None] * torch.tensor([0, 0, 0.002, 0, 0.01, 0], dtype=torch.float64))
    others = Trajectory(times, exp(-TWIST) @ true @ drift)
    path = Trajectory(times[20:81:20].clone(), true[20:81:20])
    found = joined(path, others_at := lambda t: others.poses[(t / 0.05).round().long()])(times)
    torch.testing.assert_close(found[20:81:20], path.poses, atol=1e-9, rtol=0)
    assert float((found - true)[20:81, :3, 3].norm(dim=1).max()) < 2e-3
    after = invert(found[80:-1]) @ found[81:]
    torch.testing.assert_close(after, invert(others_at(times[80:-1])) @ others_at(times[81:]), atol=1e-9, rtol=0)


# ---- checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a pack whose poses were estimated: elsewhere than the pack says."""
    folder = tmp_path_factory.mktemp("estimated")
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    data = DataConfig(kind="pack", root=str(folder / "tiny.pack"), poses=PosesChoice(source="lidar"))
    state = tiny_state(tiny_config(data=data))
    path = trajectory_of(tiny_capture())
    found = with_poses(tiny_capture(), Trajectory(path.times, path.poses @ exp(0.01 * TWIST)).at)
    state.scene = replace(state.scene, tracks=found.tracks.to("cpu"))
    state.digest = fresh_digest(replace(found, poses_from=ESTIMATED))
    write_checkpoint(state, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def test_a_checkpoint_keeps_the_poses_of_its_capture(trained: Path) -> None:
    content = load_checkpoint(trained, "cpu")
    path = known_of(content).path
    assert path is not None and path.poses_from == ESTIMATED
    want = trajectory_of(tiny_capture()).poses @ exp(0.01 * TWIST)
    torch.testing.assert_close(path.trajectory.poses, want, atol=1e-9, rtol=0)
    older = content | {"capture": {k: v for k, v in content["capture"].items() if k != "path"}}
    assert known_of(older).path is None and known_of({k: v for k, v in content.items() if k != "capture"}).path is None


@pytest.mark.parametrize("verb", ["evaluate", "render"])
def test_verbs_after_training_take_them(
    trained: Path, verb: str, nothing_estimated: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nurec_lite"):
        opened = open_reconstruction(verb, [f"checkpoint={trained}", "data.frames=[2,7]", "device=cpu"])
    assert "poses are" not in caplog.text and "boxes of tracks" not in caplog.text
    want = known_of(load_checkpoint(trained, "cpu")).path
    assert want is not None
    here = trajectory_of(opened.capture)
    torch.testing.assert_close(here.poses, want.trajectory.at(here.times), atol=1e-9, rtol=0)


def test_a_run_that_goes_on_takes_them(trained: Path, tmp_path: Path, nothing_estimated: None) -> None:
    config = tiny_config(
        steps=1,
        data=DataConfig(kind="pack", root=str(trained.with_name("tiny.pack")), poses=PosesChoice(source="lidar")),
    )
    run(replace(config, out=str(tmp_path / "on"), train=replace(config.train, resume=str(trained), evaluate=False)))
    again, before = (known_of(load_checkpoint(p, "cpu")).path for p in (tmp_path / "on/checkpoint.pt", trained))
    assert again is not None and before is not None and again.poses_from == ESTIMATED
    torch.testing.assert_close(again.trajectory.poses, before.trajectory.poses, atol=1e-9, rtol=0)
