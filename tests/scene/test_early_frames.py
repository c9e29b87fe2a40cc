# SPDX-License-Identifier: Apache-2.0
"""Frames that a fork server decodes before the first scene asks for them: the same, and none where others are asked for."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.base import fork_server
from nurec_lite.base.fork_server import ForkServer, begin_forks, end_forks
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene import looked_at, moments
from nurec_lite.scene.looked_at import moments_looked_at
from nurec_lite.scene.moments import begin_decoding, end_decoding

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    monkeypatch.setattr(fork_server, "cores", lambda: 8)
    monkeypatch.setattr(moments, "decode_apart", lambda device, sizes: sum(sizes) > 0)
    monkeypatch.setattr(moments, "decoders", lambda: 2)
    begin_forks()
    yield fork_server._waiting[-1]
    end_decoding()
    end_forks()


def assert_decoded(capture: Capture) -> None:
    frames = moments_looked_at(capture)
    for (images, sweeps), decoded in zip(frames, moments._decoded_apart(capture, frames, CPU), strict=True):
        assert [frame for frame, _ in decoded[0]] == images and [frame for frame, _ in decoded[1]] == sweeps
        assert all(torch.equal(image, frame.load()) for frame, image in decoded[0])
        assert all(torch.equal(sweep.ranges, frame.load().ranges) for frame, sweep in decoded[1])


def test_frames_that_were_begun_early_are_the_same(server: ForkServer) -> None:
    capture = tiny_capture()
    begin_decoding(capture, CPU)
    assert moments._early and not fork_server._waiting
    assert_decoded(replace(capture, name="with other tracks"))
    assert not moments._early and fork_server._waiting == [server]
    assert_decoded(capture)


def test_frames_for_tracks_that_are_found_later_follow_the_early_ones(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looked_at, "LEAST", 2)
    monkeypatch.setattr(looked_at, "MOST", 2)
    capture = tiny_capture()
    begin_decoding(replace(capture, tracks=Tracks.empty()), CPU)
    early = len(moments._early[-1].jobs)
    tracks = capture.tracks.select([0])
    rows = {f: getattr(tracks, f)[:2] for f in ("translations", "quaternions")}
    times = torch.tensor([0.4, 0.6], dtype=torch.float64)
    found = replace(capture, tracks=replace(tracks, offsets=(0, 2), times=times, **rows))
    assert len(moments._all_of(moments_looked_at(found))) > early
    assert_decoded(found)
    assert not moments._early and fork_server._waiting == [server]


def test_other_frames_end_the_early_work() -> None:
    capture = tiny_capture()
    begin_decoding(capture, CPU)
    others = replace(capture, images=tuple(replace(frame, load=lambda f=frame: f.load()) for frame in capture.images))
    assert_decoded(others)
    assert not moments._early and not fork_server._waiting


def test_an_early_work_that_nobody_asks_for_ends(server: ForkServer) -> None:
    begin_decoding(tiny_capture(), CPU)
    end_decoding()
    assert not moments._early and not server.process.members
    begin_decoding(tiny_capture(), CPU)
    assert not moments._early, "no server is left"


def test_a_capture_without_frames_begins_nothing(server: ForkServer) -> None:
    capture = tiny_capture()
    assert capture.split is not None
    nothing = replace(capture, split=replace(capture.split, train_images=(), train_sweeps=()))
    begin_decoding(nothing, CPU)
    assert not moments._early and fork_server._waiting == [server]
