# SPDX-License-Identifier: Apache-2.0
"""Pictures of the viewer are those of the renderer: along a pinhole, a camera's own lens, and a frame's own view with photo and error."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import assert_pictures_alike
from tiny_capture import tiny_capture

from nurec_lite.api.scene import TrainedScene
from nurec_lite.capture.types import CaptureError
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.pictures import enlarged, to_picture
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.output.camera_path import Pinhole
from nurec_lite.scene.edit import Edits, Move, without_actors
from nurec_lite.viewer.painter import RANGES, SKY_M, Painter, arranged, fitted, scaled
from nurec_lite.viewer.request import SHOWN, FrameView, Request


def place() -> torch.Tensor:
    capture = tiny_capture()
    return capture.images[8].T_world_rig_start.double() @ capture.cameras[0].T_rig_cam.double()


def request(**changes: object) -> Request:
    return replace(Request(place(), 0.8, 1.5, 0.4), **changes)  # type: ignore[arg-type]


def interface(run: Reconstruction) -> TrainedScene:
    return TrainedScene(run, Path("none"))


def test_a_pinhole_is_rendered_as_the_python_interface_does(run: Reconstruction) -> None:
    found = Painter(run).paint(request(covered=True), 20)
    camera = Pinhole(30, 20, 0.8).camera("own")
    expected = interface(run).render(camera, place(), 0.4)
    assert expected.colour is not None and expected.depth is not None and found.depth is not None
    assert_pictures_alike(found.image, to_picture(expected.colour))
    depth = expected.depth.numpy()
    np.testing.assert_allclose(found.depth, np.where(depth > 0, depth, SKY_M), rtol=1e-5)


@pytest.mark.parametrize("shown", SHOWN)
def test_each_map_has_its_colours(run: Reconstruction, shown: str) -> None:
    image = Painter(run).paint(request(shown=shown), 20).image
    assert image.shape == (20, 30, 3) and image.dtype == np.uint8 and len(np.unique(image.reshape(-1, 3), axis=0)) > 1


def test_ranges_are_along_the_ray(run: Reconstruction) -> None:
    """Depth over the cosine of the ray's angle to the axis, in the colours of the scale."""
    camera = Pinhole(30, 20, 0.8).camera("own")
    depth = interface(run).render(camera, place(), 0.4).depth
    assert depth is not None
    ranges = torch.where(depth > 0, depth / pixel_directions(camera)[..., 2], torch.nan).numpy()
    found = Painter(run).paint(request(shown="range"), 20).image
    assert np.abs(found.astype(int) - RANGES.paint(ranges).astype(int)).max() <= 4


def test_the_lens_of_a_camera_fills_the_window_in_its_own_shape(run: Reconstruction) -> None:
    found = Painter(run).paint(request(lens="camera_0", aspect=3.0), 24)
    own = tiny_capture().camera("camera_0")
    expected = interface(run).render(own, place(), 0.4, seconds=0)
    assert expected.colour is not None and found.depth is None
    assert found.image.shape == (24, 72, 3)
    assert_pictures_alike(found.image[:, 16:56], to_picture(expected.colour))


@pytest.mark.parametrize("shown", ["colour", "range"])
def test_a_fisheye_sees_behind_itself(run: Reconstruction, shown: str) -> None:
    """A lens of 260 degrees: ranges are along the rays, also of rays that point backwards."""
    own = tiny_capture().camera("camera_0")
    wide = replace(own, name="wide", lens="fisheye", distortion=(0.0,) * 4, fx=17.6, fy=17.6)
    there = replace(run, capture=replace(tiny_capture(), cameras=(*tiny_capture().cameras, wide)))
    found = Painter(there).paint(request(lens="wide", aspect=40 / 24, shown=shown), 24).image
    expected = interface(there).render(wide, place(), 0.4, seconds=0)
    assert expected.colour is not None and expected.depth is not None
    if shown == "colour":
        assert_pictures_alike(found, to_picture(expected.colour))
    else:
        ranges = torch.where(expected.depth > 0, expected.depth, torch.nan).numpy()
        assert np.abs(found.astype(int) - RANGES.paint(ranges).astype(int)).max() <= 4


def test_a_frame_is_rendered_as_it_is_measured(run: Reconstruction) -> None:
    """With its own lens and both of its poses, of the size of the camera."""
    capture = tiny_capture()
    frame = next(f for f in capture.images if f.sensor == "camera_1" and f.index == 3)
    wish = FrameView("camera_1", 3, "nothing")
    found = Painter(run).paint(request(frame=wish, aspect=40 / 24), 24)
    assert_pictures_alike(found.image, to_picture(image_of(run.stages, run.scene, capture, frame)))


def test_the_photo_and_the_error_stand_next_to_the_render(run: Reconstruction) -> None:
    photo = tiny_capture().images[0].load().numpy()
    for beside, count in (("photo", 2), ("photo and error", 3)):
        wish = FrameView("camera_0", 0, beside)
        found = Painter(run).paint(request(frame=wish, aspect=1.0), 200)
        assert "PSNR" in found.text and "40 x 24 pixels" in found.text
        large = enlarged(photo, 10, 10)
        h, w = large.shape[:2]
        rows, columns = found.image.shape[0] - h + 1, found.image.shape[1] - w + 1
        places = np.argwhere((found.image[:rows, :columns] == large[0, 0]).all(-1))
        assert sum(np.array_equal(found.image[y : y + h, x : x + w], large) for y, x in places) == 1, count
        assert not found.fits


def test_a_missing_photo_is_left_out_with_its_reason(run: Reconstruction) -> None:
    def gone() -> None:
        raise CaptureError("drive/0.png does not exist; name it")

    capture = tiny_capture()
    images = tuple(replace(frame, load=gone) for frame in capture.images)
    painter = Painter(replace(run, capture=replace(capture, images=images)))
    found = painter.paint(request(frame=FrameView("camera_0", 0, "photo")), 24)
    assert "drive/0.png does not exist" in found.text and len(np.unique(found.image)) > 10


def test_edits_change_the_picture_and_are_kept(run: Reconstruction) -> None:
    painter, name = Painter(run), run.scene.tracks.ids[0]
    edits = Edits((name,), ((run.scene.tracks.ids[1], Move(2.0, 0.0, 0.0, 0.3)),))
    scene = painter.scene(edits)
    assert painter.scene(edits) is scene and len(scene.gaussians) == len(without_actors(run.scene, [name]).gaussians)
    painter.renew(run)
    assert painter.scene(edits) is not scene


def test_the_same_view_twice_keeps_its_lens(run: Reconstruction) -> None:
    painter = Painter(run)
    assert painter._pinhole(request(), 20)[0] is painter._pinhole(request(), 20)[0]
    for height in range(20, 60):
        painter._pinhole(request(), height)
    assert len(painter._lenses) <= 16


@pytest.mark.parametrize(
    ("count", "own", "window", "axis"), [(2, 3.0, 1.0, 0), (2, 1.0, 2.0, 1), (3, 3.3, 1.6, 0), (1, 1.0, 1.0, 1)]
)
def test_pictures_are_arranged_as_large_as_they_fit(count: int, own: float, window: float, axis: int) -> None:
    found, rows = arranged(count, own, window, 300)
    width, height = (count * rows * own, rows) if found == 1 else (rows * own, count * rows)
    assert found == axis and width <= 300 * window + 1 and height <= 300


def test_a_fitted_picture_has_the_shape_of_the_window() -> None:
    for shape, aspect in (((10, 30, 3), 1.0), ((30, 10, 3), 2.0), ((7, 7, 3), 1.0)):
        found = fitted(np.full(shape, 255, np.uint8), aspect)
        assert (
            found.shape[1] / found.shape[0] == pytest.approx(aspect, abs=0.1)
            and (found == 255).all(-1).sum() == shape[0] * shape[1]
        )


def test_a_scaled_lens_sees_the_same(run: Reconstruction) -> None:
    own = tiny_capture().camera("camera_0")
    small = scaled(own, 12)
    assert (small.width, small.height) == (20, 12)
    assert own.width / own.fx == pytest.approx(small.width / small.fx) and own.cy / own.fy == pytest.approx(
        small.cy / small.fy
    )
