# SPDX-License-Identifier: Apache-2.0
"""Tracks with empty boxes among right ones, and boxes whose places or mountings were taken for others."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import pytest
import torch
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks.box_guesses import _moved, _on_the_rig, turned
from nurec_lite.capture.checks.box_rays import _crossed
from nurec_lite.capture.checks.boxes import check_boxes
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import world_rays
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, poses_of

Change = Callable[[Tracks], Tracks]


@lru_cache(maxsize=1)
def street() -> Capture:
    capture = read_pack(ROOT / "data/street.pack")
    return replace(capture, sweeps=tuple(replace(f, load=lru_cache(f.load)) for f in capture.sweeps))


def doubts(tracks: Tracks) -> list[Verdict]:
    return [v for v in check_boxes(Sample(replace(street(), tracks=tracks))) if v.level is not Level.RIGHT]


def only(k: int, change: Change) -> Tracks:
    """The tracks of the street, track k changed."""
    tracks, odd = street().tracks, change(street().tracks)
    rows = slice(*tracks.offsets[k : k + 2])

    def mixed(name: str) -> Tensor:
        values = getattr(tracks, name).clone()
        values[rows] = getattr(odd, name)[rows].to(values)
        return values

    return replace(tracks, **{name: mixed(name) for name in ("times", "translations", "quaternions")})


def late(tracks: Tracks) -> Tracks:
    return replace(tracks, times=tracks.times + 0.5)


def aside(tracks: Tracks) -> Tracks:
    return replace(tracks, translations=tracks.translations + torch.tensor([0.0, 2.0, 0.0]))


@pytest.mark.parametrize(
    ("k", "change", "said"),
    [
        (0, lambda tracks: turned(tracks, torch.pi / 2), "and 71 % if they are turned by 90 degrees."),
        (1, late, "and 76 % if their times are 0.5 s late."),
        (0, aside, "while those of others hold theirs."),
    ],
)
def test_a_single_track_that_is_wrong_is_named(k: int, change: Change, said: str) -> None:
    (found,) = doubts(only(k, change))
    assert found.level is Level.LIKELY and found.subject == f"00{k}" and found.sentence.endswith(said)
    assert found.sentence.startswith(f"Boxes of track 00{k} hold") and found.remedy is not None


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.5, "the sizes are 2 times too small"), (2.0, "the sizes are 2 times too large")],
)
def test_sizes_of_some_tracks_that_are_off_are_named(factor: float, words: str) -> None:
    """Boxes of all held little then, and a halved car was taken for a person."""
    tracks = street().tracks
    odd = torch.where(torch.arange(len(tracks))[:, None] % 2 == 1, factor, 1.0)
    (found,) = doubts(replace(tracks, sizes=tracks.sizes * odd))
    assert found.level is Level.LIKELY and found.sentence.startswith("Boxes of tracks 001, 005, 007 and 1 more hold")
    assert found.sentence.endswith(f"and 77 % if {words}.")


@pytest.mark.parametrize(("seconds", "words"), [(0.1, "0.10 s late"), (-0.1, "0.1 s early")])
def test_boxes_of_another_frame_are_named(seconds: float, words: str) -> None:
    """They still hold most of their returns."""
    (found,) = doubts(replace(street().tracks, times=street().tracks.times + seconds))
    assert found.level is Level.LIKELY and found.sentence.startswith("Boxes of objects that move hold")
    assert found.sentence.endswith(f"if their times are {words}.")


@pytest.mark.parametrize(
    ("axis", "parts", "name"),
    [(0, 0.5, "front"), (0, -0.5, "rear"), (1, 0.5, "left side"), (1, -0.5, "right side")],
)
def test_places_at_an_edge_of_the_box_are_named(axis: int, parts: float, name: str) -> None:
    """Boxes of twice the size hold as many returns; they were named."""
    (found,) = doubts(_moved(street().tracks, axis, parts))
    assert f"their places are the middle of the {name}" in found.sentence and "move them by half" in found.text


def test_a_mounting_that_was_left_out_is_named() -> None:
    path, T = trajectory_of(street()), street().lidars[0].T_rig_lidar.double()
    (found,) = doubts(_on_the_rig(street().tracks, path, torch.linalg.inv(T)))
    assert found.level is Level.CERTAIN and "the boxes are on lidar, not on the rig" in found.sentence
    (found,) = doubts(_on_the_rig(street().tracks, path, T))
    assert "T_rig_lidar of lidar was applied twice" in found.sentence


def test_larger_boxes_that_hold_little_are_no_explanation() -> None:
    """Boxes that lie 1 m ahead at random hold more if they are larger."""
    ahead = street().tracks.translations + torch.tensor([1.4, 0.6, 0.3])
    for found in doubts(replace(street().tracks, translations=ahead)):
        assert "sizes are 2 times too small" not in found.sentence


def seen_through(frame: SweepFrame, k: int) -> Sweep:
    """The sweep, where most rays to track k pass through it and end at a hedge behind."""
    sweep, tracks = frame.load(), street().tracks
    origins, ways = world_rays(frame, sweep, street().lidars[0])
    q, places = poses_of(tracks, torch.full((len(sweep),), k), sweep.times)
    origins, ways = quat_rotate(quat_conjugate(q), origins - places), quat_rotate(quat_conjugate(q), ways)
    inside = ((origins + sweep.ranges[:, None].double() * ways).abs() <= tracks.sizes[k] / 2 + 0.15).all(1)
    enter, leave = _crossed(origins, ways, -0.95 * tracks.sizes[k].double(), 0.95 * tracks.sizes[k].double())
    most = torch.rand(len(sweep), generator=torch.Generator().manual_seed(0)) < 0.7
    behind = sweep.returned & (leave > enter) & (enter > 0) & ((inside & most) | (sweep.ranges > leave))
    return replace(sweep, ranges=torch.where(behind, leave.float(), sweep.ranges))


def test_a_car_that_rays_pass_through_is_not_too_small() -> None:
    """A box of twice the size holds the returns behind it, too; it was named."""
    sweeps = tuple(replace(f, load=lru_cache(partial(seen_through, f, 6))) for f in street().sweeps)
    assert [v for v in check_boxes(Sample(replace(street(), sweeps=sweeps))) if v.level is not Level.RIGHT] == []


def test_no_tracks_are_no_odd_ones() -> None:
    assert doubts(Tracks.empty()) == [] and doubts(street().tracks.select([])) == []
    assert all(v.level is Level.UNKNOWN for v in doubts(street().tracks.select([0])))


def test_boxes_that_agree_in_a_part_of_the_drive_are_not_blamed_for_poses() -> None:
    """Poses of a drive that climb leave its boxes below: they agree where the drive begins."""
    tracks = street().tracks
    below = tracks.translations - 0.6 * tracks.times[:, None] * torch.tensor([0.0, 0.0, 1.0])
    wrong = replace(street(), tracks=replace(tracks, translations=below.to(tracks.translations)))
    doubt = Verdict("poses and sweeps", "lidar", Level.LIKELY, "The poses climb.", "correct them")
    (blamed,) = (v for v in check_boxes(Sample(wrong)) if v.check == "boxes and sweeps")
    (left,) = check_boxes(Sample(wrong, found=[doubt]))
    assert blamed.level in (Level.LIKELY, Level.CERTAIN) and left.level is Level.UNKNOWN
    assert left.sentence == "While the poses or the rays seem wrong, sweeps do not say where the boxes lie."
    elsewhere = replace(street(), tracks=aside(tracks))
    assert all(v.level is not Level.UNKNOWN for v in check_boxes(Sample(elsewhere, found=[doubt])))
