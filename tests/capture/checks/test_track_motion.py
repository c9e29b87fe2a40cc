# SPDX-License-Identifier: Apache-2.0
"""Tracks that jump to another object, and boxes that look backwards."""

from dataclasses import replace

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks.track_motion import odd_motions
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.geometry.se3 import quat_multiply
from nurec_lite.geometry.tracks import Tracks


def street() -> Tracks:
    return read_pack(ROOT / "data/street.pack").tracks


def doubts(tracks: Tracks) -> list[Verdict]:
    return list(odd_motions(tracks, "drive"))


def rows_after(tracks: Tracks, k: int) -> Tensor:  # of track k, its second half
    a, b = tracks.offsets[k : k + 2]
    return torch.arange((a + b) // 2, b)


def test_a_track_that_jumps_is_named_with_size_and_time() -> None:
    tracks, places = street(), street().translations.clone()
    places[rows_after(tracks, 0), 0] += 3.0
    (found,) = doubts(replace(tracks, translations=places))
    assert (
        found.level is Level.LIKELY and found.subject == "000" and found.figures["jump_m"] == pytest.approx(3, abs=0.2)
    )
    assert "Tracks jump, or change to another object: 000 by 3." in found.sentence


def test_two_tracks_that_change_objects_are_named() -> None:
    tracks, places = street(), street().translations.clone()
    one, other = rows_after(tracks, 0), rows_after(tracks, 1)
    places[one], places[other] = tracks.translations[other], tracks.translations[one]
    (found,) = doubts(replace(tracks, translations=places))
    assert "000 by" in found.sentence and "001 by" in found.sentence


def test_parked_cars_that_change_places_do_not_look_backwards() -> None:
    tracks, places = street().select([5, 9]), street().select([5, 9]).translations.clone()
    one, other = rows_after(tracks, 0), rows_after(tracks, 1)
    places[one], places[other] = tracks.translations[other], tracks.translations[one]
    (found,) = doubts(replace(tracks, translations=places))
    assert "Tracks jump" in found.sentence


def test_boxes_that_look_backwards_are_named() -> None:
    turned = street().quaternions[:, [3, 1, 2, 0]] * torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    (found,) = doubts(replace(street(), quaternions=turned.to(street().quaternions.dtype)))
    assert found.level is Level.LIKELY and "look backwards" in found.sentence and "turn them by 180°" in found.text


def test_one_track_that_looks_backwards_is_named() -> None:
    tracks, turned = street(), street().quaternions.clone()
    rows = slice(*tracks.offsets[:2])
    turned[rows] = quat_multiply(turned[rows], torch.tensor([0.0, 0.0, 0.0, 1.0]).to(turned).expand_as(turned[rows]))
    (found,) = doubts(replace(tracks, quaternions=turned))
    assert found.subject == "000" and "The boxes of track 000 look backwards along 39 m" in found.sentence


def test_right_tracks_move_as_they_look() -> None:
    assert doubts(street()) == [] and doubts(Tracks.empty()) == []
    assert doubts(street().select([0])) == []


@needs_pandaset
def test_tracks_of_pandaset_move_as_they_look() -> None:
    assert doubts(read_pandaset().tracks) == []
