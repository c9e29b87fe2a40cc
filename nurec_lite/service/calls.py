# SPDX-License-Identifier: Apache-2.0
"""The calls of SensorsimService: bytes of a request in, bytes of the reply out. Nothing here knows of gRPC."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nurec_lite.base.errors import UserError
from nurec_lite.service.cameras import message_flaw, pose_of, spec_of
from nurec_lite.service.checks import ends, moment, placed
from nurec_lite.service.errors import BUSY, RequestError, sentence_of
from nurec_lite.service.images import EgoMasks, encoded, image_format, quality_of, with_body
from nurec_lite.service.messages import message, parsed
from nurec_lite.service.scenes import Scenes, ServedScene
from nurec_lite.service.worker import Job, Worker

API_VERSION = (0, 0, 5)  # of the messages
MOST_ITEMS = 64  # frames of a request
IMAGES = 8  # of the largest size, that have as many pixels as a request may ask for


class Caller(Protocol):
    """The one that waits for a reply."""

    def own(self, jobs: Sequence[Job], /) -> None:
        """Ties the jobs to the caller: they are dropped when it goes."""

    def wait(self, job: Job, /) -> Any:
        """Returns the job's result; raises once the caller has gone."""

    def gone(self) -> bool:
        """Whether nobody waits any longer."""


@dataclass(frozen=True)
class Encoding:
    """The way to turn a rendered image into bytes."""

    kind: str
    quality: int
    body: Path | None  # picture of the vehicle's body

    def __call__(self, image: np.ndarray) -> bytes:
        return encoded(image if self.body is None else with_body(image, self.body), self.kind, self.quality)


class Calls:
    """Methods of the service, by their names."""

    def __init__(
        self, scenes: Scenes, worker: Worker, masks: EgoMasks, encoders: Executor, version: str, commit: str
    ) -> None:
        self._scenes, self._worker, self._masks, self._encoders = scenes, worker, masks, encoders
        self._version, self._commit = version, commit

    # ---- scenes and sensors

    def get_version(self, data: bytes, caller: Caller) -> bytes:
        parsed("Empty", data)
        major, minor, patch = API_VERSION
        version = {"major": major, "minor": minor, "patch": patch}
        return _bytes("VersionId", version_id=self._version, git_hash=self._commit, grpc_api_version=version)

    def get_available_scenes(self, data: bytes, caller: Caller) -> bytes:
        parsed("Empty", data)
        return _bytes("AvailableScenesReturn", scene_ids=self._scenes.names())

    def get_loaded_scenes(self, data: bytes, caller: Caller) -> bytes:
        """One instance of each loaded scene, which all callers share."""
        parsed("Empty", data)
        scenes = [
            {"scene_id": name, "loaded_instance_count": 1, "reusable_instance_count": 1}
            for name in self._scenes.loaded()
        ]
        return _bytes("LoadedScenesReturn", scenes=scenes, loaded_instance_capacity=self._scenes.capacity)

    def get_available_cameras(self, data: bytes, caller: Caller) -> bytes:
        scene = self._scenes.get(parsed("SceneRequest", data).scene_id, caller.gone)
        cameras = [
            message("AvailableCamera")(
                intrinsics=spec_of(camera), rig_to_camera=pose_of(camera.T_rig_cam), logical_id=camera.name
            )
            for camera in scene.capture.cameras
            if message_flaw(camera) is None
        ]
        return _bytes("AvailableCamerasReturn", available_cameras=cameras)

    def get_available_trajectories(self, data: bytes, caller: Caller) -> bytes:
        """The path of the rig from time 0 on: time stamps have no sign."""
        path = self._scenes.get(parsed("SceneRequest", data).scene_id, caller.gone).path
        poses = [
            {"pose": pose_of(T), "timestamp_us": round(1e6 * time)}
            for time, T in zip(path.times.tolist(), path.poses, strict=True)
            if round(1e6 * time) >= 0
        ]
        return _bytes("AvailableTrajectoriesReturn", available_trajectories=[{"trajectory": {"poses": poses}}])

    def get_available_ego_masks(self, data: bytes, caller: Caller) -> bytes:
        parsed("Empty", data)
        ids = [
            {"ego_mask_id": {"camera_logical_id": name, "rig_config_id": self._masks.rig}}
            for name in self._masks.cameras()
        ]
        return _bytes("AvailableEgoMasksReturn", ego_mask_metadata=ids)

    # ---- renders

    def render_rgb(self, data: bytes, caller: Caller) -> bytes:
        request = parsed("RGBRenderRequest", data)
        job, encode = self._image(request, caller)
        self._submit(caller, [job])
        return _bytes("RGBRenderReturn", image_bytes=encode(caller.wait(job)))

    def batch_render_rgb(self, data: bytes, caller: Caller) -> bytes:
        """Renders each item; one that fails says why."""
        items = parsed("BatchRGBRenderRequest", data).items
        _check_count(len(items))
        tried = [_tried(partial(self._image, item.request, caller)) for item in items]
        self._submit(caller, [made[0] for made in tried if isinstance(made, tuple)])
        shown = [made if isinstance(made, str) else _tried(partial(self._begun, made, caller)) for made in tried]
        results = []
        for item, one in zip(items, shown, strict=True):
            ready = one if isinstance(one, str) else one.result()
            failed = isinstance(ready, str)
            answer = {"error_message": ready} if failed else {"result": {"image_bytes": ready}}
            results.append(message("BatchRGBRenderResult")(camera_name=item.camera_name, success=not failed, **answer))
        return _bytes("BatchRGBRenderReturn", items=results)

    def render_aggregated(self, data: bytes, caller: Caller) -> bytes:
        request = parsed("AggregatedRenderRequest", data)
        _check_count(len(request.rgb_requests) + len(request.lidar_requests))
        images = [self._image(one, caller) for one in request.rgb_requests]
        sweeps = [self._sweep(one, caller) for one in request.lidar_requests]
        self._submit(caller, [*(job for job, _ in images), *sweeps])
        begun = [self._begun(made, caller) for made in images]
        points = [_lidar_bytes(*caller.wait(job)) for job in sweeps]
        returns = [message("RGBRenderReturn")(image_bytes=one.result()) for one in begun]
        whole = _bytes("AggregatedRenderReturn", rgb_returns=returns)
        return b"".join([whole, *(_field(2, one) for one in points)])

    def render_lidar(self, data: bytes, caller: Caller) -> bytes:
        job = self._sweep(parsed("LidarRenderRequest", data), caller)
        self._submit(caller, [job])
        return _lidar_bytes(*caller.wait(job))

    # ---- jobs

    def _image(self, request: Any, caller: Caller) -> tuple[Job, Encoding]:
        kind, quality = image_format(request.image_format), quality_of(request.image_quality)
        body = self._masks.file(request.ego_mask_id.camera_logical_id) if request.insert_ego_mask else None
        scene = self._scenes.get(request.scene_id, caller.gone)
        when = moment(request, scene.path.span)
        shot = scene.image(request, when, ends(request.sensor_pose, "sensor_pose"))
        return Job(scene, scene.actors.state(placed(request.dynamic_objects), when), shot), Encoding(
            kind, quality, body
        )

    def _sweep(self, request: Any, caller: Caller) -> Job:
        scene: ServedScene = self._scenes.get(request.scene_id, caller.gone)
        when = moment(request, scene.path.span)
        shot = scene.sweep(request.lidar_config.lidar_type, when, ends(request.sensor_pose, "sensor_pose"))
        return Job(scene, scene.actors.state(placed(request.dynamic_objects), when), shot)

    def _submit(self, caller: Caller, jobs: Sequence[Job]) -> None:
        pixels, most = sum(job.pixels() for job in jobs), IMAGES * self._scenes.most_pixels
        if pixels > most:
            raise RequestError(
                f"the request asks for {pixels} pixels, but may ask for {most}; send several requests", BUSY
            )
        caller.own(jobs)
        self._worker.submit(jobs)

    def _begun(self, made: tuple[Job, Encoding], caller: Caller) -> Any:
        """The future of the encoded image; several are encoded at a time."""
        job, encode = made
        return self._encoders.submit(encode, caller.wait(job))


def _tried(make: Callable[[], Any]) -> Any:
    """The result, or the sentence of an error that the caller can mend."""
    try:
        return make()
    except UserError as error:
        return sentence_of(error)


def _check_count(count: int) -> None:
    if not 1 <= count <= MOST_ITEMS:
        status = BUSY if count else "INVALID_ARGUMENT"
        raise RequestError(f"the request asks for {count} frames, but may ask for 1 to {MOST_ITEMS}", status)


# ---- replies


def _bytes(name: str, **fields: Any) -> bytes:
    data: bytes = message(name)(**fields).SerializeToString()
    return data


def _lidar_bytes(points: np.ndarray, intensities: np.ndarray) -> bytes:
    """A LidarRenderReturn, written as it stands on the wire: protobuf would turn each number into an object first."""
    packed = (np.ascontiguousarray(values, "<f4").tobytes() for values in (points, intensities))
    return b"".join([*(_field(k, values) for k, values in enumerate(packed, 1)), b"\x18", _varint(len(points))])


def _field(number: int, data: bytes) -> bytes:
    """A field of given length."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
