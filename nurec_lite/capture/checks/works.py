# SPDX-License-Identifier: Apache-2.0
"""Work that checks need, in parts that can be done at the same time. `Sample.kept` keeps each result, so that a check finds it."""

from collections.abc import Callable, Iterator
from functools import partial

from nurec_lite.capture.checks.alignment import VIEWS, view_of
from nurec_lite.capture.checks.box_rays import box_sweeps, rays_of
from nurec_lite.capture.checks.boxes import labelled
from nurec_lite.capture.checks.cameras import found_of
from nurec_lite.capture.checks.images import thumbnail
from nurec_lite.capture.checks.motions import motion_from
from nurec_lite.capture.checks.sample import Sample, spread
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Camera

Work = Callable[[], object]


def no_works(sample: Sample) -> Iterator[Work]:
    return iter(())


def first_works(sample: Sample) -> Iterator[Work]:
    """Work that needs no verdict: decoded frames, the motions of lidars, the edges of images. The longest come first."""
    capture = sample.capture
    for lidar in capture.lidars:
        yield from (partial(motion_from, sample, lidar, k) for k in sample.motion_starts(lidar.name))
    for camera in capture.cameras:
        for frame in spread(sample.images_of(camera.name), VIEWS):
            yield partial(_looked_at, sample, camera, frame)
    if len(labelled(capture).tracks):
        yield from (partial(rays_of, sample, frame) for frame in box_sweeps(sample))


def _looked_at(sample: Sample, camera: Camera, frame: ImageFrame) -> None:
    thumbnail(sample, frame)
    view_of(sample, camera, frame)


def camera_works(sample: Sample) -> Iterator[Work]:
    if sample.capture.sweeps and sample.capture.images:
        yield from (partial(found_of, sample, camera) for camera in sample.capture.cameras)
