# SPDX-License-Identifier: Apache-2.0
"""A first scene looks at a bounded number of moments, and at every track."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.capture.types import Capture
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene import looked_at
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.looked_at import LEAST, MOST, count, moments_looked_at


def driven(metres: float, seconds: float) -> Capture:
    capture = tiny_capture()
    last = len(capture.sweeps) - 1
    sweeps = tuple(
        replace(s, T_world_rig_start=_at(metres * i / last), time_start=seconds * i / last, time_end=seconds * i / last)
        for i, s in enumerate(capture.sweeps)
    )
    return replace(capture, images=(), sweeps=sweeps)


def _at(x: float) -> torch.Tensor:
    pose = torch.eye(4, dtype=torch.float64)
    pose[0, 3] = x
    return pose


@pytest.mark.parametrize(
    ("metres", "seconds", "moments"),
    [
        (0, 5, LEAST),
        (47, 5, LEAST),
        (60, 5, 15),
        (120, 5, MOST),
        (900, 5, MOST),
        (0, 40, 20),
        (60, 40, 20),
        (0, 600, MOST),
    ],
)
def test_moments_follow_the_way_and_the_time_within_bounds(metres: float, seconds: float, moments: int) -> None:
    assert count(driven(metres, seconds)) == moments


def times_of(capture: Capture) -> list[float]:
    return [sweeps[0].time_mid for _, sweeps in moments_looked_at(capture)]


def tracks_within(*spans: tuple[float, float]) -> Tracks:
    n = len(spans)
    rows = torch.zeros(2 * n, 3, dtype=torch.float64)
    return Tracks(
        tuple(f"t{k}" for k in range(n)), ("Car",) * n, torch.ones(n, 3, dtype=torch.float64), tuple(range(0, 2 * n + 1, 2)),
        torch.tensor([t for span in spans for t in span], dtype=torch.float64), rows,
        torch.tensor([1.0, 0, 0, 0], dtype=torch.float64).expand(2 * n, 4),
    )  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last moment alone spread over the drive."""
    monkeypatch.setattr(looked_at, "LEAST", 2)
    monkeypatch.setattr(looked_at, "MOST", 2)


@pytest.mark.usefixtures("few")
def test_an_actor_between_the_moments_has_points_too() -> None:
    capture, tracks = tiny_capture(), tiny_capture().tracks
    rows = slice(tracks.offsets[0], tracks.offsets[1])
    inner = tracks.times[rows]
    kept = (inner > inner[0] + 0.3 * (inner[-1] - inner[0])) & (inner < inner[0] + 0.7 * (inner[-1] - inner[0]))
    only = replace(tracks.select([0]), offsets=(0, int(kept.sum())))
    only = replace(only, **{f: getattr(only, f)[kept] for f in ("times", "translations", "quaternions")})
    ends = times_of(replace(capture, tracks=Tracks.empty()))
    assert len(ends) == 2 and ends[0] < only.times[0] and only.times[-1] < ends[1]
    scene = make_scene(replace(capture, tracks=only), tiny_config().model, 0, "cpu")
    assert int((scene.gaussians.node == 1).sum()) > 0


@pytest.mark.usefixtures("few")
def test_a_moment_serves_several_tracks_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = tiny_capture()
    every = sorted({s.time_mid for s in capture.sweeps[1:-1]})
    first, last = times_of(replace(capture, tracks=Tracks.empty()))
    middle = [t for t in times_of_all(capture) if first < t < last]
    wide = (middle[0] - 0.01, middle[-1] + 0.01)
    found = times_of(replace(capture, tracks=tracks_within(wide, wide, (middle[0] - 0.01, middle[1] + 0.01))))
    assert found[:2] == [first, last] and 3 <= len(found) <= 4 and set(found[2:]) <= set(every)
    each = tracks_within(*((t - 0.01, t + 0.01) for t in middle))
    assert sorted(times_of(replace(capture, tracks=each))) == sorted([first, last, *middle])
    monkeypatch.setattr(looked_at, "MORE", 3)
    assert len(times_of(replace(capture, tracks=each))) == min(5, 2 + len(middle))


def times_of_all(capture: Capture) -> list[float]:
    assert capture.split is not None
    return [capture.sweeps[i].time_mid for i in capture.split.train_sweeps]


@pytest.mark.usefixtures("few")
def test_tracks_between_frames_and_captures_without_frames_ask_for_nothing_more() -> None:
    capture = tiny_capture()
    between = 0.5 * (times_of_all(capture)[1] + times_of_all(capture)[2])
    tracks = tracks_within((between, between + 1e-6))
    assert len(times_of(replace(capture, tracks=tracks))) == 2
    assert capture.split is not None
    nothing = replace(capture.split, train_images=(), train_sweeps=())
    assert moments_looked_at(replace(capture, tracks=tracks, split=nothing)) == []
