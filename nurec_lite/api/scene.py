# SPDX-License-Identifier: Apache-2.0
"""`TrainedScene`: a reconstruction that a program renders, edits and asks for its sensors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from nurec_lite.api.frames import Frames
from nurec_lite.api.inputs import batch_of, file_from, number_from, poses_from, seconds_from, times_from, vector_from
from nurec_lite.api.renders import CameraRender, LidarRender, camera_render, lidar_render
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.texts import read_json
from nurec_lite.capture.origin import to_users_world
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.edit_file import read_edits
from nurec_lite.output.maps import OUTPUTS, class_names, maps_of
from nurec_lite.output.plan import EDGE_S
from nurec_lite.output.sensor_file import read_sensor
from nurec_lite.output.sensors import NovelSensor
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.peer.rasterize import IMAGES_ALONE
from nurec_lite.scene.edit import Move, edited, removed_tracks, track_number, with_moved_actors, without_actors
from nurec_lite.training.folder import METRICS


class TrainedScene:
    """A trained scene with the capture that it was made from; `nurec_lite.load` and `nurec_lite.train` return one.

    World: that of the capture's files, in metres, z up. Poses are `T_world_sensor` [4, 4]: they take points of the sensor's frame to the
    world. A camera looks along z (x right, y down), a lidar and the vehicle along x (y left, z up). Times are seconds of the capture.
    Arrays, tensors and lists are taken. Results lie on `device`, except poses, which are float64 on the host. Mistakes raise
    `nurec_lite.UserError` with one sentence.
    """

    def __init__(self, run: Reconstruction, folder: Path, removed: tuple[str, ...] = ()) -> None:
        self._run, self._folder, self._removed = run, folder, removed
        self._frames = Frames(run.capture)

    def __repr__(self) -> str:
        what = f"{len(self._run.scene.gaussians)} Gaussians, {len(self.tracks)} tracks, {self._span_text()}"
        return f"<TrainedScene {self._folder}: {what}, cameras {list(self.cameras)}, lidars {list(self.lidars)}>"

    # ---- contents

    @property
    def device(self) -> torch.device:
        return self._run.device

    @property
    def capture(self) -> Capture:
        """The drive that the scene was learned from: frames, images, sweeps. Its poses are about `capture.origin`."""
        return self._run.capture

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """Cameras of the capture by their names."""
        return MappingProxyType({camera.name: camera for camera in self.capture.cameras})

    @property
    def lidars(self) -> Mapping[str, Lidar]:
        """Lidars of the capture by their names."""
        return MappingProxyType({lidar.name: lidar for lidar in self.capture.lidars})

    @property
    def tracks(self) -> Tracks:
        """The actors, as they are learned and moved, without those that were removed; on the host, float64, in the world."""
        scene = self._run.scene
        tracks = scene.learned_tracks().to("cpu", torch.float64)
        moved = replace(tracks, translations=to_users_world(tracks.translations.detach(), scene.origin))
        kept = [k for k, name in enumerate(tracks.ids) if name not in self._removed]
        return replace(moved, quaternions=tracks.quaternions.detach()).select(kept)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes by the numbers of `CameraRender.classes`: sky, static, then the classes of the tracks."""
        return class_names(self._run.scene)

    @property
    def span(self) -> tuple[float, float]:
        """First and last second of the drive; times beyond are refused."""
        return self._frames.path.span

    @property
    def metrics(self) -> dict[str, Any]:
        """Figures that training measured on the frames that it held out; empty if it did not measure."""
        path = self._folder / METRICS
        if not path.exists():
            return {}
        try:
            found = read_json(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); restore it, or remove it") from error
        if not isinstance(found, dict):
            raise UserError(f"{path} holds no figures by name; restore it, or remove it")
        return found

    def pose(
        self, sensor: str | Camera | Lidar | NovelSensor, time: Any, shift: Sequence[float] = (0.0, 0.0, 0.0)
    ) -> Tensor:
        """T_world_sensor [4, 4] on the path that was driven, float64; [B, 4, 4] for B times. `shift` is metres forward, left and up in
        the vehicle's axes."""
        known = self._frames.known(sensor)
        metres = vector_from(shift, "shift", (3,))
        return self._frames.pose(known, times_from(time, self.span, EDGE_S), metres)

    def sensor(self, file: str | PathLike[str]) -> NovelSensor:
        """A camera or lidar of your own from a YAML file (docs/sensors.md), for `render`, `render_lidar` and `pose`."""
        return read_sensor(file_from(file, "file"), self.capture)

    # ---- renders

    def render(
        self,
        camera: str | Camera | NovelSensor,
        pose: Any = None,
        time: Any = None,
        *,
        end_pose: Any = None,
        seconds: float | None = None,
        outputs: Sequence[str] = ("colour", "depth", "opacity"),
    ) -> CameraRender:
        """The image of a camera.

        Args:
            camera: a name of `cameras`, a `Camera` of your own, or a result of `sensor`. A known name gets the exposure of that camera,
                others the mean.
            pose: T_world_camera, [4, 4] or [B, 4, 4]; None: where the camera was at that time.
            time: of the middle of the exposure, a number or [B].
            end_pose: the pose at the end of the readout; `pose` is then that at its start. None: a given `pose` stands still.
            seconds: duration of the readout; None: that of the nearest captured image, of the file of `sensor`, or 0 for a new `Camera`.
            outputs: some of colour, depth, normals, opacity, classes; the others are None. Normals and classes take passes of their own.
        """
        _check_outputs(outputs)
        known = self._frames.camera(camera)
        start, end, times, size = self._asked(pose, end_pose, time)
        frames = self._frames.images(known, start, end, times, seconds_from(seconds, "seconds"))
        run, capture = self._run, self._frames.capture_with(known)
        maps = list(maps_of(run.stages, run.scene, capture, frames, outputs))
        return camera_render(maps, outputs, size is not None)

    def render_lidar(
        self,
        lidar: str | Lidar | NovelSensor,
        pose: Any = None,
        time: Any = None,
        *,
        end_pose: Any = None,
        seconds: float | None = None,
    ) -> LidarRender:
        """The revolution of a lidar.

        Args:
            lidar: a name of `lidars` sends the rays of the sweep that is nearest in time; a `Lidar` of your own sends every beam at every
                step, and so does a result of `sensor`.
            pose: T_world_lidar, [4, 4] or [B, 4, 4]; None: where the lidar was at that time.
            time: of the middle of the revolution, a number or [B].
            end_pose: the pose at the end of the revolution; `pose` is then that at its start. None: a given `pose` stands still.
            seconds: duration of a revolution of a lidar of your own; None: by `rate_hz` of the file of `sensor`, or 0.1 s.
        """
        run = self._run
        if not run.stages.renders_lidar:
            raise ConfigError(f"{IMAGES_ALONE}; use render=own")
        known = self._frames.lidar(lidar)
        start, end, times, size = self._asked(pose, end_pose, time)
        frames = self._frames.sweeps(known, start, end, times, seconds_from(seconds, "seconds"))
        with torch.no_grad():
            capture = self._frames.capture_with(known)
            sweeps = list(rendered_sweeps(run.stages, run.scene, capture, frames, self.device))
            return lidar_render(sweeps, size is not None)

    def _asked(
        self, pose: Any, end_pose: Any, time: Any
    ) -> tuple[Tensor | None, Tensor | None, Tensor, int | None]:  # [B, 4, 4], [B, 4, 4], [B], length of the batch
        start = None if pose is None else poses_from(pose, "pose")
        end = None if end_pose is None else poses_from(end_pose, "end_pose")
        if end is not None and start is None:
            raise ConfigError("end_pose is given without pose, which is the pose at the start")
        times = times_from(time, self.span, EDGE_S)
        size = batch_of(pose=start, end_pose=end, time=times)
        n = size or 1
        poses = [None if T is None else T.expand(n, 4, 4) for T in (start, end)]
        return poses[0], poses[1], times.expand(n), size

    # ---- with other actors

    def without(self, *ids: str) -> "TrainedScene":
        """The scene without these actors; `actors` stands for all of them."""
        run, tracks = self._run, self._run.scene.tracks
        names = [name for one in ids for name in (tracks.ids if one == "actors" else (one,))]
        for name in names:
            track_number(tracks, name, "without()", ("actors",))
        return self._with(replace(run, scene=without_actors(run.scene, names)), tuple(names))

    def moved(
        self, id: str, *, forward: float = 0.0, left: float = 0.0, up: float = 0.0, degrees: float = 0.0
    ) -> "TrainedScene":
        """The scene with an actor that drives elsewhere: metres along its own axes, and degrees to the left about its upward axis, at each
        time."""
        turn = math.radians(number_from(degrees, "degrees"))
        move = Move(number_from(forward, "forward"), number_from(left, "left"), number_from(up, "up"), turn)
        track_number(self._run.scene.tracks, id, "moved()")
        scene = with_moved_actors(self._run.scene, [(id, move)])
        return self._with(replace(self._run, scene=scene), ())

    def edited(self, file: str | PathLike[str]) -> "TrainedScene":
        """The scene after the edits of a YAML file (docs/editing.md): actors removed, moved, on other trajectories, or copied from any
        run."""
        edits = read_edits(file_from(file, "file"), self._run.scene, trajectory_of(self._run.capture).span)
        gone = removed_tracks(self._run.scene.tracks, edits.removed)
        names = tuple(self._run.scene.tracks.ids[k] for k in gone)
        return self._with(replace(self._run, scene=edited(self._run.scene, edits)), names)

    def _with(self, run: Reconstruction, removed: tuple[str, ...]) -> "TrainedScene":
        return TrainedScene(run, self._folder, (*self._removed, *removed))

    def close(self) -> None:
        """Ends the processes and threads that options started. Scenes made by `without`, `moved` and `edited` share it."""
        self._run.stages.close()

    def _span_text(self) -> str:
        return f"{self.span[0]:z.3f} to {self.span[1]:z.3f} s"


def _check_outputs(outputs: Sequence[str]) -> None:
    listed = isinstance(outputs, list | tuple | set | frozenset)
    unknown = [name for name in outputs if name not in OUTPUTS] if listed else []
    if unknown or not listed or not outputs:
        what = f"holds '{unknown[0]}'" if unknown else f"is {outputs!r}"
        raise ConfigError(f"outputs {what}, but takes a list of some of {', '.join(OUTPUTS)}")
