# SPDX-License-Identifier: Apache-2.0
"""Signatures of the stages that work without the record of stages. Letters: N Gaussians, M after a relocation, Q query times, R rays."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.tracks import TrackPoses, Tracks
from nurec_lite.native.capacity import Listed
from nurec_lite.scene.calibration import Calibration
from nurec_lite.scene.gaussians import AnyGaussians, Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.project import Projection
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.density import McmcSplit, Order, Relocation
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.state import TrainState

AnyView = CameraView | LidarView
OneView = TypeVar("OneView", CameraView, LidarView)
Capacity = int | None  # entries that a view's lists may have; None: as many as they need, which the host waits to know


class Frames(Protocol):
    def __call__(self, plan: ShotPlan, /) -> ShotPlan:
        """Sets how many images and sweeps a step gets; called once, before the first step."""


class NextBatch(Protocol):
    def __call__(self, plan: ShotPlan, step: int, /) -> Shots:
        """Decodes a step's images and sweeps, on the host."""


class Upload(Protocol):
    def __call__(self, tensor: Tensor, device: torch.device, /) -> Tensor:
        """Copies one tensor from the host to the device."""


class GroupRays(Protocol):
    def __call__(self, view: LidarView, /) -> LidarView:
        """Groups the rays of a sweep that stays on the device, once."""


class Correct(Protocol):
    def __call__(self, view: OneView, calibration: Calibration | None, /) -> OneView:
        """Moves a view to the estimated pose of its sensor."""


class Activate(Protocol):
    def __call__(self, gaussians: Gaussians, /) -> Mapping[str, Tensor]:
        """Returns values by the names of WorldGaussians, and lidar_opacities."""


class Interpolate(Protocol):
    def __call__(self, tracks: Tracks, times: Tensor, /) -> TrackPoses:
        """Returns the poses of all tracks at times [Q]."""


class Collect(Protocol):
    def __call__(
        self,
        scene: Scene,
        times: Tensor,  # [Q] float64 seconds
        interpolate: Callable[[Tracks, Tensor], TrackPoses],
        activated: Mapping[str, Tensor] | None,  # None: not known yet
        by_lidar: Sequence[bool] | None,  # [Q]; None: all by cameras
        /,
    ) -> tuple[AnyGaussians, ...]:
        """Returns the Gaussians in world space at each of Q times."""


class ListCapacity(Protocol):
    def __call__(self, view: Listed, /) -> Capacity:
        """Returns how many entries the view's lists may have."""


class Project(Protocol):
    def __call__(self, gaussians: AnyGaussians, view: AnyView, capacity: Capacity = None, /) -> Projection:
        """Returns the bounds of Gaussians in the sensor."""


class Tile(Protocol):
    def __call__(self, projection: Projection, view: AnyView, capacity: Capacity = None, /) -> PairList:
        """Returns the list of Gaussians of each tile, near to far."""


class RenderCamera(Protocol):
    def __call__(self, gaussians: AnyGaussians, view: CameraView, pairs: PairList, sky: Tensor, /) -> CameraImage:
        """Blends the lists of an image over the sky [3, H, W]."""


class RenderLidar(Protocol):
    def __call__(self, gaussians: AnyGaussians, view: LidarView, pairs: PairList, /) -> LidarReturns:
        """Blends the lists of a sweep."""


class Expose(Protocol):
    def __call__(self, image: Tensor, log_gain: Tensor, offset: Tensor, vignetting: Tensor | None, /) -> Tensor:
        """Returns the image [H, W, 3] as the camera exposes it."""


class SliceGrid(Protocol):
    def __call__(self, grid: Tensor, image: Tensor, /) -> Tensor:
        """Returns the image [H, W, 3] with the tones of the bilateral grid [12, Z, Y, X]."""


class ImageLoss(Protocol):
    def __call__(self, rendered: Tensor, target: Tensor, ssim_weight: float, /) -> Tensor:
        """Returns the loss [] of one image."""


class LidarLoss(Protocol):
    def __call__(
        self,
        returns: LidarReturns,
        sweep: Sweep,
        counted: Tensor | None,  # [R] bool; None: all rays count
        with_targets: bool,  # the view had range targets
        /,
    ) -> dict[str, Tensor]:
        """Returns the terms [] of one sweep by name."""


class Regularisers(Protocol):
    def __call__(self, opacities: Tensor, lidar_opacities: Tensor, scales: Tensor, /) -> dict[str, Tensor]:
        """Returns the terms [] of all Gaussians by name."""


class UpdateState(Protocol):
    def __call__(self, state: TrainState, /) -> None:
        """Changes the state from its own content alone."""


class Footprints(Protocol):
    def __call__(self, scene: Scene, capture: Capture, images: Sequence[int], /) -> Tensor:
        """Returns the area [N] of Gaussians in square pixels, in images of these numbers."""


class Relocate(Protocol):
    def __call__(
        self,
        gaussians: Gaussians,
        n_new: int,  # Gaussians to add
        generator: torch.Generator,
        weights: Tensor | None,  # [N]
        jitter: float,  # standard deviations
        lost: Tensor | None,  # [N] bool, dead at any opacity
        order: Order | None,
        mcmc_split: McmcSplit | None,
        /,
    ) -> Relocation | None:
        """Returns the store after a relocation; None where it cannot be done."""


@runtime_checkable
class Capturable(Protocol):
    """A stage with state on the host that decides the launches of a step, and so whether a captured CUDA graph is still valid."""

    def graph_key(self, scene: Scene) -> Hashable | None:
        """Returns the state, other than sizes, that a graph depends on; None while it is unknown."""

    def forbids_inplace_relocation(self, scene: Scene, node: Tensor) -> Tensor:
        """Returns [] bool on the device: a relocation that keeps the number of Gaussians, with these nodes [N], must be left out. May be
        captured itself, so it must not wait for the device."""


@runtime_checkable
class Closeable(Protocol):
    """A stage that has started something, such as loader processes."""

    def close(self) -> None:
        """Ends it."""
