# SPDX-License-Identifier: Apache-2.0
"""Draws requests: renders along the rays of a lens, and colours the renders."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.evaluation.metrics import as_unit, psnr
from nurec_lite.evaluation.pictures import COLOUR_ERROR, ERROR_MAP, RANGE_MAP, Bar, enlarged, joined, panel, to_picture
from nurec_lite.geometry.camera import Camera, pixel_directions
from nurec_lite.geometry.se3 import invert
from nurec_lite.output.camera_path import Pinhole
from nurec_lite.output.map_files import class_colours
from nurec_lite.output.maps import CameraMaps, maps_of
from nurec_lite.output.path_plan import free_name
from nurec_lite.output.sensors import NovelSensor, with_sensor
from nurec_lite.scene.edit import Edits, edited
from nurec_lite.scene.scene import Scene
from nurec_lite.viewer.request import BESIDE, FrameView, Request

FAR_M = 80.0  # metres: end of the colour scale of ranges
READABLE = 400  # columns of a picture with a title, at least
DEPTH_ROWS = 270  # of the depth that a browser gets, at most
SKY_M = 160.0  # metres to the sky in the browser, so that points stand before it
K = TypeVar("K")
V = TypeVar("V")
_KEPT_LENSES, _KEPT_SCENES = 16, 4
_DARK = 24  # of 255, around a picture that has another shape than the window
RANGES, ERRORS = Bar(RANGE_MAP, 0, FAR_M, "m"), Bar(ERROR_MAP, 0, COLOUR_ERROR)


@dataclass(frozen=True)
class Painted:
    image: np.ndarray  # [H, W, 3] uint8
    depth: np.ndarray | None = None  # [h, w] metres along the view, of every n-th pixel; None: points would not fit
    text: str = ""
    fits: bool = False  # whether the browser's own points and boxes lie over their objects


class Painter:
    """Draws for all browsers, in one thread. Lenses and edited scenes are kept, since their cached results are found by the object."""

    def __init__(self, run: Reconstruction) -> None:
        self.run = run
        self._lenses: OrderedDict[tuple[object, ...], tuple[Camera, Capture]] = OrderedDict()
        self._scenes: OrderedDict[tuple[int, Edits], tuple[Scene, Scene]] = OrderedDict()

    def renew(self, run: Reconstruction) -> None:
        """Draws another scene of the same drive from now on."""
        self.run = run
        self._scenes.clear()

    @torch.no_grad()
    def paint(
        self,
        request: Request,
        height: int,  # rows of the picture
    ) -> Painted:
        """Paints a request; UserError where an image that it asks for is missing."""
        if request.frame is not None:
            return self._frame(request, request.frame, height)
        if request.lens is not None:
            camera, capture = self._lens(request.lens, height)
            image, _ = self._view(request, camera, capture)
            return Painted(fitted(image, request.aspect))
        camera, capture = self._pinhole(request, height)
        image, maps = self._view(request, camera, capture)
        return Painted(image, _thinned(maps.depth) if request.covered else None, fits=True)

    def scene(self, edits: Edits) -> Scene:
        """The scene as it is edited."""
        base = self.run.scene
        if edits == Edits():
            return base
        key = id(base), edits
        if key not in self._scenes:
            self._scenes[key] = base, edited(base, edits)  # the base is kept, so that no other has its id
        return _recent(self._scenes, key, _KEPT_SCENES)[1]

    # ---- views

    def _view(self, request: Request, camera: Camera, capture: Capture) -> tuple[np.ndarray, CameraMaps]:
        """View of a camera that stands still at the request's place and time."""
        T_world_rig = request.T_world_cam @ invert(camera.T_rig_cam.double())
        frame = NovelSensor(camera, 0.0).frame(request.time, T_world_rig, T_world_rig)
        assert isinstance(frame, ImageFrame)
        maps = self._maps(request, capture, frame)
        return coloured(request.shown, maps, camera), maps

    def _maps(self, request: Request, capture: Capture, frame: ImageFrame) -> CameraMaps:
        outputs = [request.shown] if request.shown in ("normals", "classes") else ["colour"]
        return next(maps_of(self.run.stages, self.scene(request.edits), capture, [frame], outputs))

    def _frame(self, request: Request, wish: FrameView, height: int) -> Painted:
        """The frame's own view, with the photo and the error if they are asked for and there."""
        frame, own = captured(self.run.capture, wish), self.run.capture.camera(wish.camera)
        photo, count, text = None, BESIDE.index(wish.beside) + 1, f"{wish.camera} {wish.index}"
        if count > 1:
            try:
                photo = to_picture(frame.load())
            except UserError as error:
                count, text = 1, f"The photo is left out: {error}"
        axis, rows = arranged(count, own.width / own.height, request.aspect, height)
        camera, capture = self._lens(wish.camera, min(rows, own.height))
        maps = self._maps(request, capture, frame)
        panels = [coloured(request.shown, maps, camera)]
        if photo is not None:
            photo = resized(photo, camera.width, camera.height)
            panels, text = beside(panels[0], maps.colour, photo, request, wish)
        return Painted(fitted(joined(panels[:count], axis), request.aspect), text=text)

    # ---- lenses

    def _pinhole(self, request: Request, height: int) -> tuple[Camera, Capture]:
        width = max(1, round(height * request.aspect))
        key = width, height, round(request.fov, 6)
        if key not in self._lenses:
            camera = Pinhole(width, height, request.fov).camera(free_name(self.run.capture))
            self._lenses[key] = camera, with_sensor(self.run.capture, camera)
        return _recent(self._lenses, key, _KEPT_LENSES)

    def _lens(self, name: str, height: int) -> tuple[Camera, Capture]:
        """A camera of the capture, with its lens, in pictures of another size."""
        if (name, height) not in self._lenses:
            camera = scaled(self.run.capture.camera(name), height)
            self._lenses[name, height] = camera, with_sensor(self.run.capture, camera)
        return _recent(self._lenses, (name, height), _KEPT_LENSES)


def _recent(kept: OrderedDict[K, V], key: K, most: int) -> V:
    """The value of a key, which becomes the most recent; the oldest others go."""
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


def captured(capture: Capture, wish: FrameView) -> ImageFrame:
    return next(f for f in capture.images if f.sensor == wish.camera and f.index == wish.index)


# ---- pictures


def coloured(shown: str, maps: CameraMaps, camera: Camera) -> np.ndarray:  # [H, W, 3] uint8
    if shown == "range":
        return _scaled(_ranges(maps.depth, camera))
    if shown == "normals":
        assert maps.normals is not None
        return _bytes(0.5 + 0.5 * maps.normals)
    if shown == "opacity":
        return _bytes(maps.opacity[..., None].expand(-1, -1, 3))
    if shown == "classes":
        assert maps.classes is not None
        return _chosen(class_colours(), maps.classes)
    return _bytes(maps.colour)


def _bytes(values: Tensor) -> np.ndarray:
    """Values from 0 to 1 as bytes, made on the device: a quarter of the numbers then goes to the host."""
    found: np.ndarray = (values.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return found


def _ranges(depth: Tensor, camera: Camera) -> Tensor:  # [H, W] metres along the rays; NaN where there is no depth
    forward = pixel_directions(camera, depth.dtype, depth.device)[..., 2].clamp(min=1e-3)
    return torch.where(depth > 0, depth if camera.is_angular else depth / forward, torch.nan)


def _scaled(ranges: Tensor) -> np.ndarray:  # [H, W, 3] uint8
    """Ranges in 255 colours of their scale; NaN is black."""
    colours = np.append(RANGES.paint(np.linspace(0, FAR_M, 255)), np.zeros((1, 3), np.uint8), axis=0)
    number = torch.where(ranges.isnan(), 255, (ranges / FAR_M * 254).round().clamp(0, 254)).to(torch.uint8)
    return _chosen(colours, number)


def _chosen(
    colours: np.ndarray,  # [256, 3] uint8
    number: Tensor,  # [H, W] of a colour
) -> np.ndarray:  # [H, W, 3]
    """Each pixel's colour, chosen on the device."""
    found: np.ndarray = torch.from_numpy(colours).to(number.device)[number.long()].cpu().numpy()
    return found


def _thinned(depth: Tensor) -> np.ndarray:
    """Every n-th row and column, enough for a browser to put points before or behind surfaces; the sky is far away."""
    step = max(1, -(-len(depth) // DEPTH_ROWS))
    some = depth[::step, ::step]
    found: np.ndarray = torch.where(some > 0, some, SKY_M).contiguous().cpu().numpy()
    return found


def beside(
    image: np.ndarray, colour: Tensor, photo: np.ndarray, request: Request, wish: FrameView
) -> tuple[list[np.ndarray], str]:
    """Panels [h, w, 3] of render, photo and error, and a line about them; `colour` and `photo` are [H, W, 3]."""
    rendered, truth = as_unit(colour.cpu()), as_unit(torch.from_numpy(photo))
    error = ERRORS.paint((rendered - truth).abs().mean(-1).numpy())
    decibel = psnr(rendered, truth)
    title = f"rendered, {decibel:.1f} dB" if request.shown == "colour" else f"rendered {request.shown}"
    factor = -(-READABLE // photo.shape[1])
    image, photo, error = (enlarged(picture, factor, factor) for picture in (image, photo, error))
    panels = [panel(image, title), panel(photo, "captured"), panel(error, "absolute error", ERRORS)]
    height, width = truth.shape[:2]
    return panels, f"{wish.camera} {wish.index}: PSNR {decibel:.2f} dB at {width} x {height} pixels"


def arranged(
    count: int,  # of pictures
    own: float,  # width over height of each
    window: float,  # width over height
    height: int,  # rows of the window
) -> tuple[int, int]:  # axis of their row, and the rows of each
    """The arrangement with the largest pictures."""
    aside, above = min(height, height * window / (count * own)), min(height / count, height * window / own)
    return (1, max(1, int(aside))) if aside >= above else (0, max(1, int(above)))


def scaled(camera: Camera, height: int) -> Camera:
    """The same lens on a picture of so many rows."""
    return camera.resized(max(1, round(camera.width * height / camera.height)), height)


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """Returns [height, width, 3]: the mean colour of each new pixel's area."""
    if picture.shape[:2] == (height, width):
        return picture
    return np.array(Image.fromarray(picture).resize((width, height), Image.Resampling.BOX))


def fitted(
    picture: np.ndarray,  # [H, W, 3]
    aspect: float,  # width over height
) -> np.ndarray:  # [h, w, 3] of that shape, the picture in its middle
    height, width = picture.shape[:2]
    w, h = max(width, math.ceil(height * aspect)), max(height, math.ceil(width / aspect))
    framed = np.full((h, w, 3), _DARK, np.uint8)
    y, x = (h - height) // 2, (w - width) // 2
    framed[y : y + height, x : x + width] = picture
    return framed
