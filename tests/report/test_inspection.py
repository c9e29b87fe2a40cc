# SPDX-License-Identifier: Apache-2.0
"""The page about a capture: valid, whole, escaped, fit for incomplete captures, and never lost for one picture."""

import base64
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from hand_made import HandMade, one_track
from html_page import Page, assert_whole
from odd_captures import with_one_camera, without_lidar, without_tracks
from PIL import Image
from tiny_capture import tiny_capture

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.report.inspection import page as pages
from nurec_lite.report.inspection import views
from nurec_lite.report.inspection.content import Inspection
from nurec_lite.report.inspection.page import page

MISSING = {"class": "missing"}
NASTY = "<b>&\"'"
VERDICTS = [
    Verdict("poses and sweeps", "lidar", Level.RIGHT, "Neighbouring sweeps lie 0.02 m apart.", figures={"gap_m": 0.02}),
    Verdict("boxes and sweeps", "7", Level.UNKNOWN, "The box holds 3 returns."),
    Verdict("lidar and images", "camera_0", Level.LIKELY, "The camera is turned by 1°.", "correct its mounting"),
    Verdict("poses and motion", "tiny", Level.CERTAIN, "The rig drives sideways.", "give data.poses.convention=camera"),
    Verdict("edges", "camera_1", Level.FAILED, "The check of edges failed: ValueError: x."),
]


def inspection(capture: Capture, verdicts: Sequence[Verdict] = VERDICTS) -> Inspection:
    return Inspection(capture, verdicts, Sample(capture, None, None), "python -m nurec_lite.inspect data=pack")


@lru_cache(maxsize=1)
def plain_page() -> str:
    return page(inspection(tiny_capture()))


def one_frame(capture: Capture) -> Capture:
    return replace(capture, images=capture.images[:1], sweeps=capture.sweeps[:1], split=None)


def no_images_of_one(capture: Capture) -> Capture:
    last = capture.cameras[-1].name
    return replace(capture, images=tuple(f for f in capture.images if f.sensor != last), split=None)


def no_images(capture: Capture) -> Capture:
    return replace(capture, images=(), split=None)


def no_cameras(capture: Capture) -> Capture:
    return replace(capture, cameras=(), images=(), split=None)


def no_frames(capture: Capture) -> Capture:
    return replace(capture, images=(), sweeps=(), split=None)


def no_returns(capture: Capture) -> Capture:
    made = HandMade([(1.0, 0.0, 0.0)], tracks=one_track((1.0, 1.0, 1.0), [0.0, 1.0], [(9.0, 0.0, 0.0)] * 2)).capture()
    empty = made.sweeps[0].load().select(torch.zeros(0, dtype=torch.long))
    return replace(made, sweeps=tuple(replace(f, load=lambda: empty) for f in made.sweeps))


def as_it_is(capture: Capture) -> Capture:
    return capture


ODD = [as_it_is, without_lidar, without_tracks, with_one_camera, one_frame, no_images_of_one, 
       no_images, no_cameras, no_frames, no_returns]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_the_page_is_whole_for_any_capture(odd: Callable[[Capture], Capture]) -> None:
    text = page(inspection(odd(tiny_capture())))
    parsed = assert_whole(text)
    assert not parsed.all("p", **MISSING), parsed.text
    assert {a["href"] for a in parsed.all("a")} == {f"#{a['id']}" for a in parsed.all("section")}
    assert len(parsed.all("h1")) == 1 and "Content-Security-Policy" in text


def test_sections_stand_in_their_order() -> None:
    parsed = Page(plain_page())
    assert [a["id"] for a in parsed.all("section")] == [
        "verdicts", "cameras", "lidars", "map", "boxes", "speeds", "sensors", "command",
    ]  # fmt: skip


def test_every_camera_has_pictures_that_say_what_they_show() -> None:
    capture = tiny_capture()
    alts = [a["alt"] or "" for a in Page(plain_page()).all("img")]
    for camera in capture.cameras:
        assert (
            sum(bool(re.match(rf"{camera.name}, frame \d+: \d+ lidar points and \d+ boxes", alt)) for alt in alts) == 4
        )


def test_verdicts_are_rows_the_worst_first_with_their_remedies() -> None:
    text = plain_page()
    rows = re.findall(r'<span class="level (\w+)">.*?</tr>', text.split("<tbody>")[1].split("</tbody>")[0])
    assert rows == ["wrong", "likely", "failed", "unknown", "right"]
    parsed = Page(text)
    for verdict in VERDICTS:
        assert verdict.sentence in parsed.texts and (verdict.remedy is None or verdict.remedy in parsed.texts)
    assert "gap_m 0.02" in parsed.texts and "1 wrong, 1 likely wrong, 1 failed, 1 unknown, 1 right" in parsed.texts


def test_what_comes_from_outside_is_escaped() -> None:
    plain = tiny_capture()
    names = {c.name: c.name + NASTY for c in plain.cameras}
    capture = replace(
        plain, name=NASTY, cameras=tuple(replace(c, name=names[c.name]) for c in plain.cameras),
        images=tuple(replace(f, sensor=names[f.sensor]) for f in plain.images),
        tracks=replace(plain.tracks, ids=tuple(i + NASTY for i in plain.tracks.ids)),
    )  # fmt: skip
    nasty = Verdict(NASTY, NASTY, Level.CERTAIN, NASTY, NASTY, {NASTY: 1.0}, corrected=lambda capture: capture)
    parsed = assert_whole(page(replace(inspection(capture, [nasty]), command=NASTY)))
    assert not parsed.all("b") and parsed.text.count(NASTY) > 10
    assert not parsed.all("p", **MISSING)


def test_a_remedy_is_drawn_before_and_after() -> None:
    given: list[Capture] = []

    def corrected(capture: Capture) -> Capture:
        given.append(capture)
        return without_tracks(capture)

    capture = tiny_capture()
    fits = Verdict(
        "poses", capture.cameras[1].name, Level.CERTAIN, "Inverse poses.", "invert them", corrected=corrected
    )
    parsed = Page(page(inspection(capture, [*VERDICTS, fits])))
    assert given == [capture] and parsed.all("section", id="corrections")
    alts = [a["alt"] or "" for a in parsed.all("img") if re.search("as the drive says|corrected", a["alt"] or "")]
    assert [re.sub(r"\d+", "N", alt) for alt in alts] == [
        "Map from above, as the drive says: N m in the middle of the drive",
        "camera_N, frame N, as the drive says: N lidar points and N boxes on the image",
        "Map from above, corrected: N m in the middle of the drive",
        "camera_N, frame N, corrected: N lidar points and N boxes on the image",
    ]  # fmt: skip
    assert fits.subject in alts[1] and "and 0 boxes" in alts[3]


# ---- failures


def test_a_picture_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = len(Page(plain_page()).all("img"))
    drawn = views.overlay

    def failing(sample: Sample, capture: Capture, frame: object, width: int) -> object:
        if getattr(frame, "sensor", "") == "camera_1":
            raise ValueError(f"no {NASTY}")
        return drawn(sample, capture, frame, width)  # type: ignore[arg-type]

    monkeypatch.setattr(views, "overlay", failing)
    parsed = assert_whole(page(inspection(tiny_capture())))
    found = [text for text in parsed.texts if "is missing: ValueError: no" in text]
    assert len(parsed.all("p", **MISSING)) == 4 and all(NASTY in text for text in found)
    assert len(parsed.all("img")) == whole - 4


@pytest.mark.parametrize("name", [name for name, _, _ in pages._SECTIONS])
def test_a_section_that_fails_costs_only_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Inspection) -> str:
        raise RuntimeError("a tensor of another shape")

    sections = tuple((n, title, failing if n == name else part) for n, title, part in pages._SECTIONS)
    monkeypatch.setattr(pages, "_SECTIONS", sections)
    parsed = assert_whole(page(inspection(no_cameras(one_frame(tiny_capture())))))
    assert parsed.all("section", id=name) and len(parsed.all("p", **MISSING)) == 1
    assert "RuntimeError: a tensor of another shape" in parsed.text


def test_an_unreadable_frame_is_said_in_its_place() -> None:
    def unreadable() -> torch.Tensor:
        raise CaptureError("x.png is cut short; download it again")

    capture = tiny_capture()
    broken = replace(capture, images=tuple(replace(f, load=unreadable) for f in capture.images))
    parsed = assert_whole(page(inspection(broken)))
    assert "x.png is cut short; download it again" in parsed.text
    assert parsed.all("section", id="map") and parsed.all("section", id="boxes")


# ---- size


def noisy(cameras: int) -> Capture:
    """Images of 1920x1080 that no compression makes small."""
    plain = HandMade([(20.0, 0.0, 0.0)], frames=4).capture()
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), dtype=np.uint8))
    camera = replace(plain.cameras[0], width=1920, height=1080, fx=1000.0, fy=1000.0, cx=960.0, cy=540.0)
    names = [f"camera_{k}" for k in range(cameras)]
    images = tuple(replace(f, sensor=name, load=lambda: noise) for name in names for f in plain.images)
    return replace(
        plain, cameras=tuple(replace(camera, name=name) for name in names), images=images, lidars=(), sweeps=(),
        tracks=Tracks.empty(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "cameras", [3, pytest.param(12, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.slow)]
)
def test_the_page_stays_below_ten_megabytes(cameras: int) -> None:
    text = page(inspection(noisy(cameras), ()))
    assert len(text) < 10e6
    sizes = [Image.open(io.BytesIO(base64.b64decode(data))).width for data in re.findall(r"base64,([\w+/=]+)", text)]
    assert len(sizes) == min(24, {3: 12, 12: 24, 30: 24}[cameras]) and min(sizes) >= 640
    assert ("Not drawn: camera_24" in text) == (cameras == 30)
