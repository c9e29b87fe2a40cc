# SPDX-License-Identifier: Apache-2.0
"""Measures a scene on frames of its capture, and keeps the pictures and rows for a report."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.meter import Meter
from nurec_lite.base.ranges import span
from nurec_lite.base.transfer import upload
from nurec_lite.capture.types import Capture, Frame, ImageFrame
from nurec_lite.evaluation.ahead import IMAGE, SWEEP, DecodedAhead
from nurec_lite.evaluation.beside_path import AsSeen, DrawnBeside, measure_beside
from nurec_lite.evaluation.drawing import Drawing, DrawnImage, DrawnSweep, FrameFigures
from nurec_lite.evaluation.each_frame import EachFrame, measuring
from nurec_lite.evaluation.metrics import ImageMetrics, LidarMetrics, as_unit, decibel
from nurec_lite.evaluation.perceptual import Perceptual
from nurec_lite.evaluation.pictures import hatched, to_picture
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.peer.depth import DepthMetrics
from nurec_lite.scene.scene import Scene, exposed, exposure
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import Stages

SECONDS = {"cpu": 20.0, "cuda": 3.0}  # so that on a GPU a report stands a few seconds after the checkpoint
FLIPS = 60  # images that FLIP and LPIPS are measured of at most, unless seconds are given
PICTURES = 6  # images, and half as many sweeps, that are drawn; one of each sensor at least


@dataclass(frozen=True)
class Frames:
    """Indices into a capture's images and sweeps."""

    images: tuple[int, ...]
    sweeps: tuple[int, ...]


@dataclass(frozen=True)
class Evaluation:
    metrics: dict[str, object]  # by the names of `nurec_lite.evaluation.metrics`
    frames: tuple[FrameFigures, ...]  # images, then sweeps
    images: tuple[DrawnImage, ...]  # those that are drawn
    sweeps: tuple[DrawnSweep, ...]
    beside: DrawnBeside | None = None  # views off the path


def held_out(capture: Capture) -> Frames:
    return frames_of(capture, "test")


def frames_of(
    capture: Capture,
    subset: str,  # of `config.SUBSETS`
) -> Frames:
    """The frames that the capture's split holds out or trains on, or all of them."""
    split = capture.split
    assert split is not None
    if subset == "all":
        return Frames(tuple(range(len(capture.images))), tuple(range(len(capture.sweeps))))
    images, sweeps = {
        "test": (split.test_images, split.test_sweeps),
        "train": (split.train_images, split.train_sweeps),
    }[subset]
    return Frames(images, sweeps)


@torch.no_grad()
def evaluate(
    stages: Stages,
    scene: Scene,
    capture: Capture,
    frames: Frames,
    drawing: Drawing | None = None,  # begins pictures; None: none
    progress: bool = False,  # shows a bar
    left_out: LeftOut | None = None,  # collects the parts that fail
    seconds: float
    | None = 0.0,  # that FLIP, LPIPS and figures off the path may take; 0: they are left out; None: SECONDS
    ahead: DecodedAhead | None = None,  # the frames, which are being decoded; None: that begins here
) -> Evaluation:
    """All metrics of the frames, figures of each, and some of them to look at. Frames that cannot be measured are left out; if none can,
    the first one's error is raised."""
    left_out = left_out or LeftOut()
    seconds, flips = (SECONDS[scene.sky.device.type], FLIPS) if seconds is None else (seconds, None)
    learned, scene = scene, completed(scene, capture)
    rendered, compared = (frames.sweeps, ()) if stages.renders_lidar else ((), frames.sweeps)
    image_metrics = ImageMetrics(left_out, [capture.images[i] for i in frames.images])
    lidar_metrics = LidarMetrics(left_out)
    depth_metrics = DepthMetrics(capture, compared)
    perceptual = Perceptual(seconds / 2, len(frames.images), scene.sky.device, left_out, flips)
    by_camera = seen_by(scene, capture)
    ahead = ahead or DecodedAhead(capture, frames.images, rendered, scene.sky.device)
    with Meter(len(frames.images) + len(rendered), "frames", "measuring", shown=progress) as meter, ahead as decoded:
        look = EachFrame(stages, scene, capture, left_out, meter.advance, decoded)
        with span("images"):
            figures, images = _measured_images(look, frames.images, by_camera, image_metrics, depth_metrics, perceptual)
            if drawing is not None:
                drawing.begin(images=images)
        with span("sweeps"):
            of_sweeps, sweeps = _measured_sweeps(look, rendered, lidar_metrics)
            if drawing is not None:
                drawing.begin(sweeps=sweeps)
    chosen = [*(capture.images[i] for i in frames.images), *(capture.sweeps[i] for i in rendered)]
    if chosen and not (figures or of_sweeps):
        raise left_out.errors[measuring(chosen[0])]
    metrics: dict[str, object] = {}
    summaries = (image_metrics.summary, lidar_metrics.summary, depth_metrics.summary, perceptual.summary)
    for summary in (*summaries, partial(corrections, learned)):
        metrics |= left_out.tried("A summary of the figures", summary) or {}
    work = partial(measure_beside, stages, scene, capture, frames.images, seconds / 2, by_camera)
    with span("beside"):
        beside, drawn = left_out.tried("Measuring off the path", work) or ({}, None)
    metrics |= beside | ({"notes": perceptual.notes} if perceptual.notes else {})
    return Evaluation(metrics, (*figures, *of_sweeps), tuple(images), tuple(sweeps), drawn)


def _measured_images(
    look: EachFrame,
    chosen: tuple[int, ...],
    as_seen: AsSeen,
    metrics: ImageMetrics,
    depths: DepthMetrics,
    perceptual: Perceptual,
) -> tuple[list[FrameFigures], list[DrawnImage]]:
    capture, seen_images = look.capture, list[_SeenImage]()
    choice = partial(_drawn, capture.images, capture.moments.images, chosen, PICTURES)
    drawn = look.left_out.tried("The choice of images that are drawn", choice) or set()
    for i, truth, view, image in look.at(IMAGE, chosen, partial(_exposure, look.scene, capture)):
        work = partial(_measure_image, look, i, truth, view, image, as_seen, metrics, depths)
        found = look.left_out.tried(measuring(capture.images[i]), work)
        if found is not None:
            perceptual.add(as_unit(found.rendered), as_unit(found.truth), view.camera.mask)
            seen_images.append(found if i in drawn else found.without_pictures())
        look.advance()
    figures = _figures_of_images(capture, seen_images)
    pairs = [(f, s) for f, s in zip(figures, seen_images, strict=True) if s.index in drawn]
    images = [look.left_out.tried("A picture of an image", partial(_drawn_image, capture, *p)) for p in pairs]
    return figures, [image for image in images if image is not None]


@dataclass(frozen=True)
class _SeenImage:
    """Figures of an image, on the device, so that the next one need not wait for them."""

    index: int  # into the capture's images
    values: Tensor  # [2] mean squared error and SSIM
    depth: float | None  # metres, median error
    truth: Tensor  # [H, W, 3] uint8 or 0 to 1
    rendered: Tensor  # [H, W, 3] 0 to 1

    def without_pictures(self) -> "_SeenImage":
        return replace(self, truth=self.values, rendered=self.values)


def _figures_of_images(capture: Capture, images: Sequence[_SeenImage]) -> list[FrameFigures]:
    """Figures of all images, which come from the device in one copy."""
    values = torch.stack([image.values for image in images]).tolist() if images else []
    return [
        FrameFigures(capture.images[s.index].sensor, capture.images[s.index].index, decibel(mse), structure, s.depth)
        for s, (mse, structure) in zip(images, values, strict=True)
    ]


def _measured_sweeps(
    look: EachFrame, chosen: tuple[int, ...], metrics: LidarMetrics
) -> tuple[list[FrameFigures], list[DrawnSweep]]:
    capture, medians, kept = look.capture, dict[int, Tensor](), dict[int, tuple[Sweep, LidarReturns]]()
    choice = partial(_drawn, capture.sweeps, capture.moments.sweeps, chosen, PICTURES // 2)
    drawn = look.left_out.tried("The choice of sweeps that are drawn", choice) or set()
    for i, sweep, _, returns in look.at(SWEEP, chosen, partial(_revolution, look.scene, capture)):
        median = look.left_out.tried(measuring(capture.sweeps[i]), partial(metrics.add, returns, sweep))
        if median is not None:
            medians[i] = median
            kept |= {i: (sweep, returns)} if i in drawn else {}
        look.advance()
    values = torch.stack(list(medians.values())).tolist() if medians else []
    frames = [capture.sweeps[i] for i in medians]
    figures = [FrameFigures(f.sensor, f.index, lidar_median_abs_m=m) for f, m in zip(frames, values, strict=True)]
    shown = [(f, *kept[i]) for i, f in zip(medians, figures, strict=True) if i in kept]
    return figures, [DrawnSweep(f, s.to("cpu"), _to_cpu(r), capture.lidar(f.sensor)) for f, s, r in shown]


def completed(scene: Scene, capture: Capture) -> Scene:
    """The scene with assumed corrections for cameras without training images."""
    known = scene.calibration
    return scene if known is None else replace(scene, calibration=known.completed(capture.cameras))


def corrections(scene: Scene) -> dict[str, object]:
    """Corrections of the sensors: `corrections`, a sentence, and `calibration`, the numbers. Empty without
    calibration."""
    if scene.calibration is None:
        return {}
    found = scene.calibration.found()
    clocks = {name: f" {by['milliseconds']:.1f} ms" for name, by in found.items() if "milliseconds" in by}
    moved = [
        f"{name} {by['degrees']:.2f}° {1000 * by['metres']:.0f} mm{clocks.get(name, '')}"
        for name, by in found.items()
        if "metres" in by
    ]
    gains = [f"{name} {100 * by['gain']:.0f} %" for name, by in found.items() if "gain" in by]
    return {
        "corrections": ", ".join([*moved, *gains]),
        "calibration": found,
    }


def _drawn(
    frames: Sequence[Frame],
    numbers: Sequence[int],  # of their moments
    chosen: tuple[int, ...],  # of these frames
    wanted: int,
) -> set[int]:  # of the chosen: those of all sensors at moments that spread over the drive
    moments = sorted({numbers[i] for i in chosen})
    sensors = {frames[i].sensor for i in chosen}
    count = min(len(moments), max(1, wanted // max(1, len(sensors))))
    shown = {moments[round(k)] for k in np.linspace(0, len(moments) - 1, count)}
    return {i for i in chosen if numbers[i] in shown}


def _exposure(scene: Scene, capture: Capture, i: int, truth: Tensor) -> tuple[Tensor, CameraView]:
    return truth.to(scene.sky.device), camera_view(capture, capture.images[i], scene.sky.device)


def _revolution(scene: Scene, capture: Capture, i: int, sweep: Sweep) -> tuple[Sweep, LidarView]:
    sweep = sweep.to(scene.sky.device)
    return sweep, lidar_view(capture, capture.sweeps[i], sweep, scene.sky.device)


def _measure_image(
    look: EachFrame,
    index: int,  # into the capture's images
    truth: Tensor,  # [H, W, 3] on the device
    view: CameraView,
    image: CameraImage,
    as_seen: AsSeen,
    metrics: ImageMetrics,
    depths: DepthMetrics,
) -> _SeenImage:
    frame = look.capture.images[index]
    rendered = as_seen(frame, image.colour)
    values = metrics.add(rendered, truth, look.capture, frame)
    error = look.left_out.tried("Lidar returns as depths of images", lambda: depths.add(image, view, index))
    return _SeenImage(index, values, error, truth, rendered)


def _drawn_image(capture: Capture, figures: FrameFigures, seen: _SeenImage) -> DrawnImage:
    mask = capture.camera(figures.sensor).mask
    return DrawnImage(figures, *(hatched(to_picture(image), mask) for image in (seen.truth, seen.rendered)))


@torch.no_grad()
def image_of(stages: Stages, scene: Scene, capture: Capture, frame: ImageFrame) -> Tensor:
    """[H, W, 3] as the frame's camera would see it, 0 to 1, on the host."""
    return next(images_of(stages, scene, capture, (frame,)))


def images_of(stages: Stages, scene: Scene, capture: Capture, frames: Iterable[ImageFrame]) -> Iterator[Tensor]:
    """Images [H, W, 3] of each frame, as its camera shows them, on the host."""
    scene = completed(scene, capture)
    by_camera = seen_by(scene, capture)
    views = ((frame, camera_view(capture, frame, scene.sky.device)) for frame in frames)
    for frame, _, image in render_views_in_batches(stages, scene, views):
        yield by_camera(frame, image.colour).cpu()


def as_seen(
    scene: Scene,
    capture: Capture,
    frame: ImageFrame,
    colour: Tensor,  # [H, W, 3] before the camera's gain and offset
) -> Tensor:  # [H, W, 3] 0 to 1
    """Image through its camera's exposure; through the mean of all others where nothing was learned about that
    camera. Waits for the device; `seen_by` waits once for many images."""
    return _exposed(scene, capture, _eyes(scene, capture, frame.sensor), frame, colour)


def seen_by(scene: Scene, capture: Capture) -> AsSeen:
    """`as_seen` of a scene that is not trained meanwhile."""
    eyes = {camera.name: _eyes(scene, capture, camera.name) for camera in capture.cameras}
    return lambda frame, colour: _exposed(scene, capture, eyes[frame.sensor], frame, colour)


def _eyes(scene: Scene, capture: Capture, camera: str) -> list[int]:
    """Rows of the cameras with exposures that images of this one are seen through."""
    own, known = capture.camera_index(camera), scene.calibration
    rows = range(len(scene.exposure))  # those of the cameras that the scene was learned from
    like = [own] if own in rows else list(rows)
    return like if known is None else sorted({eye for row in like for eye in known.eyes(row)})


@torch.no_grad()
def _exposed(scene: Scene, capture: Capture, eyes: list[int], frame: ImageFrame, colour: Tensor) -> Tensor:
    moment = upload(torch.tensor(frame.time_mid, dtype=torch.float64), colour.device)
    known, seen = scene.calibration, []
    for eye in eyes:
        by = None if known is None else known.of(capture.cameras[eye], moment)
        drift, when = (None, moment) if by is None else (by.drift, by.moment)
        seen.append(exposed(scene, eye, colour, exposure(scene, eye, drift, when)))
    return torch.stack(seen).mean(0).clamp(0, 1)


def _to_cpu(returns: LidarReturns) -> LidarReturns:
    return LidarReturns(*(getattr(returns, f).cpu() for f in LidarReturns.__dataclass_fields__))
