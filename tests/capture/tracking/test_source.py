# SPDX-License-Identifier: Apache-2.0
"""Sources of tracks: `data.tracks.source`, and a scene that has them already."""

from dataclasses import replace

import pytest

import nurec_lite.capture.tracking.found as search
from nurec_lite.capture.tracking.source import with_tracks
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import read_capture


@pytest.fixture
def labelled(monkeypatch: pytest.MonkeyPatch) -> Capture:
    """The sweeps would show its first two tracks, under other ids."""
    capture = read_capture(DataConfig())
    found = replace(capture.tracks.select([0, 1]), ids=("found-1", "found-2"))
    monkeypatch.setattr(search, "find_tracks", lambda _: found)
    return replace(capture, tracks=capture.tracks.select([0, 5]))


@pytest.mark.parametrize(
    ("name", "part", "ids"),
    [
        ("auto", False, ("000", "005")),
        ("auto", True, ("000", "005", "found-2")),
        ("capture", True, ("000", "005")),
        ("lidar", True, ("found-1", "found-2")),
        ("none", True, ()),
    ],
)
def test_labels_and_sweeps_give_tracks(labelled: Capture, name: str, part: bool, ids: tuple[str, ...]) -> None:
    assert with_tracks(replace(labelled, part_labelled=part), name).tracks.ids == ids


def test_a_drive_without_sweeps_has_none_to_find_tracks_in(labelled: Capture) -> None:
    cameras = replace(labelled, lidars=(), sweeps=())
    with pytest.raises(
        CaptureError, match=r"has no sweeps of a lidar to find tracks in; give data\.tracks=auto or none"
    ):
        with_tracks(cameras, "lidar")
    assert with_tracks(cameras, "auto").tracks.ids == ("000", "005")


def test_without_labels_the_sweeps_give_all_tracks(labelled: Capture) -> None:
    assert with_tracks(replace(labelled, tracks=Tracks.empty()), "auto").tracks.ids == ("found-1", "found-2")


def test_a_search_that_found_nothing_is_not_made_again(labelled: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "find_tracks", lambda _: Tracks.empty())
    found = with_tracks(replace(labelled, tracks=Tracks.empty()), "auto")
    assert found.searched and len(found.tracks) == 0
    monkeypatch.delattr(search, "find_tracks")
    assert with_tracks(found, "auto") is found
    assert not with_tracks(found, "none").searched, "a pack of it is searched"


def test_tracks_of_a_scene_are_not_searched_again(labelled: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    part = replace(labelled, part_labelled=True)
    known = with_tracks(part, "auto").tracks
    monkeypatch.delattr(search, "find_tracks")
    assert with_tracks(part, "auto", known).tracks.ids == known.ids
    other = replace(known, ids=("7", *known.ids[1:]))  # of another drive: the checkpoint's own check says so
    assert with_tracks(part, "auto", other).tracks.ids == labelled.tracks.ids


def test_a_part_of_a_drive_has_what_was_found_in_the_whole(labelled: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    known = with_tracks(replace(labelled, part_labelled=True), "auto").tracks
    monkeypatch.delattr(search, "find_tracks")
    few = replace(labelled, part_labelled=True, tracks=labelled.tracks.select([1]))
    assert with_tracks(few, "auto", known).tracks.ids == ("005", "found-2")
