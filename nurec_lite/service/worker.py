# SPDX-License-Identifier: Apache-2.0
"""One thread that renders, and the queue before it. Shots of one scene with actors in the same places go together, and
those of one camera share a launch."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.evaluation.measure import as_seen
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.output.points import RenderedSweep
from nurec_lite.scene.scene import Scene
from nurec_lite.service.errors import BUSY, RequestError
from nurec_lite.service.figures import Figures
from nurec_lite.service.scenes import ServedScene, Shot
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import camera_view, lidar_view

MOST_TOGETHER = 16  # shots of a group
PIXELS_TOGETHER = 40_000_000
STOPPING = "the service is stopping; ask another replica"
log = logging.getLogger("nurec_lite")


@dataclass(eq=False)
class Job:
    """A shot that a request waits for. Its result is an image [H, W, 3] uint8, or points [n, 3] and intensities [n]."""

    scene: ServedScene
    state: tuple[object, ...]  # of the actors
    shot: Shot
    result: "Future[Any]" = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    def pixels(self) -> int:
        if not self.shot.is_image:
            return 0
        camera = self.shot.capture.camera(self.shot.frame.sensor)
        return camera.width * camera.height


class Worker:
    """The thread. It ends when it is closed, or when the GPU fails in a way that no later launch survives."""

    def __init__(
        self,
        figures: Figures,
        most: int,  # jobs that may wait
        device: threading.Lock,  # held while it renders
    ) -> None:
        self._figures, self._most, self._device = figures, most, device
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.failed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renderer", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues all of them, or none: RequestError if too many wait."""
        with self._changed:
            if self._closed or self.failed.is_set():
                raise RequestError(STOPPING, "UNAVAILABLE")
            waiting = len(self._waiting)
            if waiting + len(jobs) > self._most:
                raise RequestError(
                    f"{waiting} frames wait to be rendered, of {self._most} that may; try again later", BUSY
                )
            self._waiting.extend(jobs)
            self._changed.notify()

    def waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Renders the waiting shots, then ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        while (group := self._next()) is not None:
            group = [job for job in group if job.result.set_running_or_notify_cancel()]
            if group:
                self._answer(group)
            del group
            if self.failed.is_set():
                break
        self._abandon()

    def _next(self) -> list[Job] | None:
        """The oldest shot and those that go with it; None: closed, and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            first, group, others, pixels = self._waiting[0], list[Job](), deque[Job](), 0
            for job in self._waiting:
                alike = job.scene is first.scene and job.state == first.state and len(group) < MOST_TOGETHER
                if alike and (not group or pixels + job.pixels() <= PIXELS_TOGETHER):
                    group.append(job)
                    pixels += job.pixels()
                else:
                    others.append(job)
            self._waiting = others
            return group

    def _answer(self, group: list[Job]) -> None:
        """Renders one shot after another if they fail together, so that each gets its own result or error."""
        try:
            with self._device:
                found = self._rendered(group)
        except Exception as error:
            if _fatal(error):
                log.error("the GPU failed: %s", str(error).splitlines()[0])
                self.failed.set()
            if len(group) > 1 and not self.failed.is_set():
                for job in group:
                    self._answer([job])
                return
            for job in group:
                _settle(job, error)
            return
        for job, one in zip(group, found, strict=True):
            _settle(job, one)

    def _rendered(self, group: list[Job]) -> list[Any]:
        begin = time.monotonic()
        scene = group[0].scene
        found = render(scene, scene.actors.placed(group[0].state), [job.shot for job in group])
        images = sum(job.shot.is_image for job in group)
        rays = sum(len(job.shot.pattern) for job in group if job.shot.pattern is not None)
        self._figures.rendered(images, len(group) - images, rays, time.monotonic() - begin)
        return found

    def _abandon(self) -> None:
        with self._changed:
            left, self._waiting, self._closed = list(self._waiting), deque(), True
        for job in left:
            if job.result.set_running_or_notify_cancel():
                _settle(job, RequestError(STOPPING, "UNAVAILABLE"))


def _settle(job: Job, found: Any) -> None:
    try:
        if isinstance(found, Exception):
            job.result.set_exception(found)
        else:
            job.result.set_result(found)
    except InvalidStateError:  # cancelled meanwhile
        pass


def _fatal(error: Exception) -> bool:
    """Whether no later launch can succeed."""
    if isinstance(error, UserError) or is_out_of_memory(error):
        return False
    return isinstance(error, RuntimeError) and ("CUDA error" in str(error) or "cudaError" in str(error))


# ---- shots


@torch.no_grad()
def render(served: ServedScene, scene: Scene, shots: Sequence[Shot]) -> list[Any]:
    """Returns the render of each sensor, on the host."""
    device, stages = scene.sky.device, served.run.stages
    if device.type == "cuda":
        torch.cuda.set_device(device)  # torch keeps one for each thread
    views = [_view(shot, device) for shot in shots]
    found = stages.render.render_views(stages, scene, views)
    seen: list[Any] = []
    for shot, one in zip(shots, found, strict=True):
        if isinstance(one, CameraImage):
            assert isinstance(shot.frame, ImageFrame)
            seen.append(_pixels(scene, shot.capture, shot.frame, one.colour))
        else:
            seen.append(_points(shot, one))
    return [one.cpu().numpy() if isinstance(one, Tensor) else tuple(part.cpu().numpy() for part in one) for one in seen]


def _pixels(scene: Scene, capture: Capture, frame: ImageFrame, colour: Tensor) -> Tensor:  # [H, W, 3] uint8
    found = as_seen(scene, capture, frame, colour).mul(255).round().to(torch.uint8)
    mask = capture.camera(frame.sensor).mask
    return found if mask is None else found.masked_fill_(mask[..., None].to(found.device), 0)


def _view(shot: Shot, device: torch.device) -> Any:
    if isinstance(shot.frame, ImageFrame):
        return camera_view(shot.capture, shot.frame, device)
    return lidar_view(shot.capture, shot.frame, _rays(shot), device)


def _rays(shot: Shot) -> Sweep:
    assert shot.pattern is not None
    start, lasts = shot.frame.time_start, shot.frame.time_end - shot.frame.time_start
    return replace(shot.pattern, times=start + lasts * shot.pattern.times)


def _points(shot: Shot, returns: LidarReturns) -> tuple[Tensor, Tensor]:
    """[n, 3] float32 metres in the lidar's frame at the end of the revolution, [n] float32 intensities."""
    frame, lidar = shot.frame, shot.capture.lidar(shot.frame.sensor)
    assert isinstance(frame, SweepFrame)
    rendered = RenderedSweep(frame, lidar, _rays(shot), returns)
    T_end_world = invert(frame.T_world_rig_end.double() @ lidar.T_rig_lidar.double()).to(returns.median.device)
    points = transform(T_end_world, rendered.points_world())
    return points.float(), rendered.sweep.intensities[rendered.sweep.returned].clamp(0, 1).float()
