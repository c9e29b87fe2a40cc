# SPDX-License-Identifier: Apache-2.0
"""Scenes that are served: each is a trained run with its capture, its actors, and the sensors that requests asked for."""

import gc
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.cli.arguments import check_files
from nurec_lite.cli.command import configuration
from nurec_lite.cli.reconstruction import Reconstruction, opened
from nurec_lite.config import ServeConfig
from nurec_lite.evaluation.measure import completed
from nurec_lite.geometry.camera import Camera, forget_pixels
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import invert
from nurec_lite.output.edit_file import read_edits
from nurec_lite.output.sensors import NovelSensor, sensors_of, with_sensor
from nurec_lite.scene.edit import edited, removed_tracks
from nurec_lite.service.actors import Actors
from nurec_lite.service.cameras import camera_of, message_flaw
from nurec_lite.service.checks import Ends, Moment
from nurec_lite.service.errors import BROKEN, BUSY, MISSING, RequestError
from nurec_lite.service.lidars import lidar_of, patterns
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.folder import CHECKPOINT

MOST_CAMERAS = 24  # of requests: the directions of their pixels are kept
MOST_PIXELS = 64_000_000  # of these cameras together
PATIENCE_S = 20.0  # at most, for waiting frames of dropped scenes
LOOK_S = 0.2  # seconds between two looks whether they are
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Shot:
    """A frame of one sensor, and the capture that has this sensor."""

    capture: Capture
    frame: ImageFrame | SweepFrame
    pattern: Sweep | None = None  # rays of a lidar, on the device; their times are fractions of the revolution

    @property
    def is_image(self) -> bool:
        return self.pattern is None


class ServedScene:
    """A served scene. Methods are safe in any thread, but `actors.placed` belongs to the thread that renders."""

    def __init__(self, name: str, run: Reconstruction, config: ServeConfig) -> None:
        self.path: Trajectory = trajectory_of(run.capture)
        edits = None if config.edits is None else read_edits(Path(config.edits), run.scene, self.path.span)
        scene, gone = run.scene, ()  # type: Any, tuple[str, ...]
        if edits is not None:
            gone = tuple(run.scene.tracks.ids[k] for k in removed_tracks(run.scene.tracks, edits.removed))
            scene = edited(scene, edits)
        self.name, self.run, self.capture = name, run, run.capture
        self.actors = Actors(completed(scene, run.capture), config.unlisted, gone, config.unknown)
        self._most_pixels = config.max_pixels
        self._lidars = patterns(config.patterns, run.capture)
        self._sweeps = {number: _pattern(lidar, run) for number, lidar in self._lidars.items()}
        self._cameras: OrderedDict[tuple[bytes, int, int], tuple[NovelSensor, Capture]] = OrderedDict()
        self._lock, self._numbers = threading.Lock(), count()

    def image(self, request: Any, moment: Moment, ends: Ends) -> Shot:
        sensor, capture = self._camera(request)
        return Shot(capture, self._frame(sensor, moment, ends))

    def sweep(self, lidar_type: int, moment: Moment, ends: Ends) -> Shot:
        lidar = lidar_of(self._lidars, lidar_type)
        capture, rays = self._sweeps[lidar_type]
        return Shot(capture, self._frame(lidar, moment, ends), rays)

    def close(self) -> None:
        self.run.stages.close()

    def _frame(self, sensor: NovelSensor, moment: Moment, ends: Ends) -> Any:
        own = sensor.sensor
        mount = own.T_rig_cam if isinstance(own, Camera) else own.T_rig_lidar
        start, end = (T @ invert(mount.double()) for T in ends.matrices())
        lasting = replace(sensor, seconds=moment.end - moment.start)
        return lasting.frame(0.5 * (moment.start + moment.end), start, end)

    def _camera(self, request: Any) -> tuple[NovelSensor, Capture]:
        """Returns one object for equal cameras, so that cached results are found again."""
        spec = request.camera_intrinsics
        key = spec.SerializeToString(deterministic=True), request.resolution_h, request.resolution_w
        with self._lock:
            if key not in self._cameras:
                known = {camera.name: camera for camera in self.capture.cameras}
                size, own = (
                    (request.resolution_h, request.resolution_w),
                    f"requested/{next(self._numbers) % MOST_CAMERAS}",
                )
                camera = camera_of(spec, *size, self._most_pixels, known, own)
                self._cameras[key] = NovelSensor(camera, 0.0), with_sensor(self.capture, camera)
                self._forget()
            self._cameras.move_to_end(key)
            return self._cameras[key]

    def _forget(self) -> None:
        """Drops cameras that were not asked for lately, and the pixels' directions with them."""
        before = len(self._cameras)
        while len(self._cameras) > 1 and (len(self._cameras) > MOST_CAMERAS or self._pixels() > MOST_PIXELS):
            self._cameras.popitem(last=False)
        if len(self._cameras) < before:
            forget_pixels()

    def _pixels(self) -> int:
        return sum(
            one.sensor.width * one.sensor.height for one, _ in self._cameras.values() if isinstance(one.sensor, Camera)
        )


def _pattern(lidar: NovelSensor, run: Reconstruction) -> tuple[Capture, Sweep]:
    """The capture with the lidar, and the rays of a revolution from 0 to 1 s on the device."""
    eye = torch.eye(4, dtype=torch.float64)
    frame = replace(lidar, seconds=1.0).frame(0.5, eye, eye)
    assert isinstance(frame, SweepFrame)
    return with_sensor(run.capture, lidar.sensor), frame.load().to(run.device)


class Scenes:
    """Runs by their scene_id; as many stay loaded as are allowed and as memory holds."""

    def __init__(self, config: ServeConfig, arguments: Sequence[str]) -> None:
        self._config, self._arguments, self.most_pixels = config, list(arguments), config.max_pixels
        self._files = _files(config.runs)
        self._loaded: OrderedDict[str, ServedScene] = OrderedDict()
        self._dropped: list[weakref.ref[ServedScene]] = []
        self._loading = threading.Lock()  # one is loaded at a time, while those that are loaded answer
        self._lock = threading.Lock()  # of the table of loaded scenes
        self.device = (
            threading.Lock()
        )  # held by every user of the device: a CUDA graph is not recorded while a scene is loaded

    def names(self) -> tuple[str, ...]:
        return tuple(self._files)

    def loaded(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._loaded)

    @property
    def capacity(self) -> int:
        """Number of scenes that stay loaded at a time, at most."""
        return self._config.loaded

    def get(self, name: str, gone: Callable[[], bool] = lambda: False) -> ServedScene:
        """The scene, which is loaded if it is not and somebody still waits; RequestError for one that is not served."""
        if name not in self._files:
            raise RequestError(f"scene_id is '{name:.200}', but the scenes are {', '.join(self._files)}", MISSING)
        if (found := self._found(name)) is not None:
            return found
        with self._loading:
            if (found := self._found(name)) is not None:
                return found
            if gone():  # while others loaded their scenes
                raise CancelledError
            scene = self._load(name)
            with self._lock:
                self._loaded[name] = scene
            return scene

    def close(self) -> None:
        with self._loading:
            while self._loaded:
                self._drop()

    def _found(self, name: str) -> ServedScene | None:
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
            return self._loaded.get(name)

    def _load(self, name: str) -> ServedScene:
        """Loads a run, after it has made room; RequestError for one that is gone or broken since the service began."""
        while len(self._loaded) >= self._config.loaded:
            self._drop()
        while True:
            try:
                return self._open(name)
            except Exception as error:
                short = is_out_of_memory(error)
                if isinstance(error, UserError) and not short:
                    raise RequestError(f"scene {name} cannot be loaded: {error}", BROKEN) from error
                if not short:
                    raise
            # Here the error is gone, and the memory that it referred to
            if self._loaded:
                self._drop()
            elif not self._leaving():
                raise RequestError(
                    f"there is not enough memory for the scene {name}; use device=cpu, or a smaller run", BUSY
                )

    def _drop(self) -> None:
        """Drops the scene that was unused longest. Its waiting frames are still rendered, and hold its memory until then."""
        with self._lock:
            name, scene = self._loaded.popitem(last=False)
        self._dropped.append(weakref.ref(scene))
        scene.close()
        del scene
        with self.device:
            _free()
        log.info("scene %s is no longer loaded", name)

    def _leaving(self) -> bool:
        """Waits until dropped scenes have no waiting frames; returns whether there were any."""
        left = [one for one in self._dropped if one() is not None]
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if not any(one() is not None for one in left):
                break
            time.sleep(LOOK_S)
            with self.device:
                _free()
        self._dropped = [one for one in left if one() is not None]
        return len(self._dropped) < len(left)

    def _open(self, name: str) -> ServedScene:
        path = self._files[name]
        content = load_checkpoint(path, "cpu")
        arguments = [f"checkpoint={path}", *self._arguments]
        config = configuration("render", arguments, content)
        check_files(path, config.data, arguments)
        run = opened(config, content, arguments, busy=self.device)
        with self.device:
            scene = ServedScene(name, run, self._config)
        log.info("scene %s: %d Gaussians, %s", name, len(scene.actors.scene.gaussians), described(scene))
        return scene


def _files(runs: Sequence[str]) -> dict[str, Path]:
    """Checkpoints by the names of their scenes."""
    found: dict[str, Path] = {}
    for run in runs:
        path = Path(run)
        path = path / CHECKPOINT if path.is_dir() else path
        name = path.absolute().parent.name
        if name in found and found[name].resolve() == path.resolve():
            raise ConfigError(f"{run} is named twice; leave one of them out")
        if name in found:
            raise ConfigError(f"{found[name]} and {path} are both scene '{name}'; rename one of the folders")
        if not path.exists():
            raise ConfigError(
                f"{path} does not exist; name the folder of a run, as in python -m nurec_lite.serve runs/mine"
            )
        found[name] = path
    if not found:
        raise ConfigError("no run is named; give folders of runs, as in python -m nurec_lite.serve runs/mine")
    return found


def _free() -> None:
    """Gives memory of scenes that nothing refers to any longer back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def described(scene: ServedScene) -> str:
    first, last = scene.path.span
    sensors = ", ".join(one.name for one in sensors_of(scene.capture))
    origin = scene.capture.origin
    away = f"; its world begins at {', '.join(f'{x:.3f}' for x in origin)} m of the capture's" if any(origin) else ""
    lacking = [f"{camera.name} (it has {flaw})" for camera in scene.capture.cameras if (flaw := message_flaw(camera))]
    listed = f"; get_available_cameras has no message for {', '.join(lacking)}" if lacking else ""
    return f"{len(scene.actors.ids)} actors, {first:z.3f} to {last:z.3f} s, sensors {sensors}{away}{listed}"
