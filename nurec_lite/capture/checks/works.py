# SPDX-License-Identifier: Apache-2.0
"""Work that checks need, in parts that can be done at the same time. `Sample.kept` keeps each result, so that a check finds it."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from nurec_lite.capture.checks import rolled, shutters
from nurec_lite.capture.checks.alignment import VIEWS, view_of
from nurec_lite.capture.checks.box_rays import box_sweeps, rays_of
from nurec_lite.capture.checks.boxes import labelled, moving_works
from nurec_lite.capture.checks.cameras import findings, parts_of
from nurec_lite.capture.checks.channels import blues_of, moments_of_cameras
from nurec_lite.capture.checks.glimpses import glimpse_works
from nurec_lite.capture.checks.half_turns import glance
from nurec_lite.capture.checks.images import kinds_of, of_camera
from nurec_lite.capture.checks.motions import motion_from
from nurec_lite.capture.checks.ray_times import of_sweeps
from nurec_lite.capture.checks.rays import ray_works
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.thumbnails import thumbnail
from nurec_lite.capture.checks.tones import first_step
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import nearest, trajectory_of
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Camera

Work = Callable[[], object]
TOGETHER = 3  # images of a moment that one work looks at: they share the edges of its sweeps


def no_works(sample: Sample) -> Iterator[Work]:
    return iter(())


def first_works(sample: Sample) -> Iterator[Work]:
    """Work that needs no verdict: decoded frames, the motions of lidars, the edges of images. The longest come first."""
    capture = sample.capture
    if capture.images or capture.sweeps:
        trajectory_of(capture)  # once, for the processes of all waves
    for lidar in capture.lidars:
        yield from (partial(motion_from, sample, lidar, k) for k in sample.motion_starts(lidar.name))
    for looks in _by_moment(sample):
        yield from (partial(_looked_at, sample, looks[k : k + TOGETHER]) for k in range(0, len(looks), TOGETHER))
    yield from glimpse_works(sample)
    yield from ray_works(sample)
    if len(labelled(capture).tracks):
        yield from (partial(rays_of, sample, frame) for frame in box_sweeps(sample))


def _by_moment(sample: Sample) -> list[list[ImageFrame]]:
    """Images that are looked at, those of one sweep together."""
    sweeps, looks = sample.capture.sweeps, defaultdict[int, list[ImageFrame]](list)
    for camera in sample.capture.cameras:
        for frame in spread(sample.images_of(camera.name), VIEWS):
            looks[nearest(sweeps, frame.time_mid).index if sweeps else frame.index].append(frame)
    return list(looks.values())


def _looked_at(sample: Sample, frames: Sequence[ImageFrame]) -> None:
    for frame in frames:
        thumbnail(sample, frame)
        view_of(sample, sample.capture.camera(frame.sensor), frame)


def second_works(sample: Sample) -> Iterator[Work]:
    """Work that needs decoded frames alone."""
    yield from (partial(blues_of, sample, frames) for frames in moments_of_cameras(sample))
    yield from moving_works(sample)
    yield from (partial(kinds_of, sample, camera.name) for camera in sample.capture.cameras)


def camera_works(sample: Sample) -> Iterator[Work]:
    yield from (partial(of_sweeps, sample, lidar) for lidar in sample.capture.lidars)
    for camera in sample.capture.cameras:
        yield partial(first_step, sample, camera.name)
        yield partial(of_camera, sample, camera)
    for camera in _compared(sample):
        yield from parts_of(sample, camera)
        yield partial(rolled.glance, sample, camera)
        yield partial(shutters.glance, sample, camera)
        yield from (partial(glance, sample, lidar, camera) for lidar in sample.capture.lidars if lidar.spins)


def found_works(sample: Sample) -> Iterator[Work]:
    return (partial(findings, sample, camera) for camera in _compared(sample))


def _compared(sample: Sample) -> Sequence[Camera]:
    """Cameras whose images are held against sweeps."""
    return sample.capture.cameras if sample.capture.sweeps and sample.capture.images else ()
