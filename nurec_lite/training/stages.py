# SPDX-License-Identifier: Apache-2.0
"""The stages of a training step: four frozen records of functions, and the streams they run on (nurec_lite/training/step.py calls them).

`nurec_lite.backends` fills the records. An option takes the stages and returns others: it swaps a stage, wraps one, or sets a field of
the plan of the compiled stages. Nothing inside the step asks which options are on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.native.plan import RenderPlan
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.training import stage_protocols as p
from nurec_lite.training.density import McmcSplit, Order
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stage_protocols import AnyView, Capacity
from nurec_lite.training.state import Gathered, ListUse, Rendered, StepResult, TrainState
from nurec_lite.training.streams import EXPOSURES, FIGURES, HARMONICS, IMAGES, LISTS, SWEEPS, Streams

__all__ = ["EXPOSURES", "FIGURES", "HARMONICS", "IMAGES", "LISTS", "PEER", "SWEEPS", "AnyView", "Capacity", "Stages"]
PEER = "render=gsplat"  # the peer's name in claims of stages
Seen = tuple[CameraImage | LidarReturns, ListUse]  # the render of a view, and the length of its lists


class Fetch(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, /) -> Shots:
        """Returns the images and sweeps of a step, on the device."""


class MoveShots(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, shots: Shots, /) -> Shots:
        """Returns the shots on the device."""


class Gather(Protocol):
    def __call__(self, stages: "Stages", scene: Scene, views: Sequence[AnyView], /) -> Gathered:
        """Collects the Gaussians for all views of a step."""


class RenderAll(Protocol):
    def __call__(
        self, stages: "Stages", scene: Scene, views: Sequence[AnyView], gaussians: Sequence[AnyGaussians], /
    ) -> tuple[Seen, ...]:
        """Renders the views of a branch, each with its Gaussians."""


class RenderViews(Protocol):
    def __call__(
        self, stages: "Stages", scene: Scene, views: Sequence[AnyView], /
    ) -> tuple[CameraImage | LidarReturns, ...]:
        """Renders views without gradients."""


class Terms(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, shots: Shots, rendered: Rendered, /) -> dict[str, Tensor]:
        """Returns all terms [] of the loss by name."""


class Learn(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, shots: Shots, /) -> StepResult:
        """Updates the state from the shots."""


class BeginFrames(Protocol):
    def __call__(self, stages: "Stages", plan: ShotPlan, device: torch.device, /) -> None:
        """Lets frames of the plan come before the first step; called when the first scene needs no more frames."""


class OnState(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, /) -> None:
        """Changes the state."""


class Rearrange(Protocol):
    def __call__(self, stages: "Stages", state: TrainState, n_new: int, /) -> None:
        """Relocates Gaussians in the store, and adds so many."""


@dataclass(frozen=True)
class FeedStages:
    """Stages from the capture to the shots of a step on the device."""

    frames: p.Frames
    begin_frames: BeginFrames
    next_batch: p.NextBatch
    upload: p.Upload
    place: MoveShots  # moves decoded frames to the device
    fetch: Fetch  # next_batch, then place
    resize: MoveShots  # on the device, to the resolution that is learned at this time
    group_rays: p.GroupRays
    schedule: OnState  # sets the rates of the step, on the host


@dataclass(frozen=True)
class RenderStages:
    """Stages from the scene to images and lidar returns."""

    correct: p.Correct
    activate: p.Activate
    interpolate: p.Interpolate
    collect: p.Collect
    gather: Gather
    capacity: p.ListCapacity
    project: p.Project
    tile: p.Tile
    render_camera: p.RenderCamera
    render_lidar: p.RenderLidar
    render_all: RenderAll  # by the five stages above
    render_views: RenderViews


@dataclass(frozen=True)
class LossStages:
    """Stages from renders to the terms of the loss."""

    expose: p.Expose
    slice_grid: p.SliceGrid
    image_loss: p.ImageLoss
    lidar_loss: p.LidarLoss
    regularisers: p.Regularisers
    terms: Terms  # by the stages above


@dataclass(frozen=True)
class UpdateStages:
    """Stages from gradients to the next state, and the step around all of it."""

    reduce: p.UpdateState  # gradients and `failed`, over the processes that train together
    keep_unseen: p.UpdateState  # on a long drive only seen Gaussians keep gradients of regularisers
    optimize: p.UpdateState
    noise: p.UpdateState  # after an update: scales keep a minimum, transparent Gaussians explore
    learn: Learn  # render, loss, backward, and the four stages above
    footprints: p.Footprints
    relocate: p.Relocate
    order: Order  # [M] rows of a relocation, those of a node consecutive
    mcmc_split: McmcSplit
    rearrange: Rearrange  # by the four stages above
    density: OnState  # rearranges, in some steps
    try_step: Learn  # schedule, learn, density: the part of a step that can be repeated
    synchronize: OnState  # completes all steps; the loop calls it before it reads, saves or measures the state


class Replacements(TypedDict, total=False):
    """Every stage by its name, with its type."""

    frames: p.Frames
    begin_frames: BeginFrames
    next_batch: p.NextBatch
    upload: p.Upload
    place: MoveShots
    fetch: Fetch
    resize: MoveShots
    group_rays: p.GroupRays
    schedule: OnState
    correct: p.Correct
    activate: p.Activate
    interpolate: p.Interpolate
    collect: p.Collect
    gather: Gather
    capacity: p.ListCapacity
    project: p.Project
    tile: p.Tile
    render_camera: p.RenderCamera
    render_lidar: p.RenderLidar
    render_all: RenderAll
    render_views: RenderViews
    expose: p.Expose
    slice_grid: p.SliceGrid
    image_loss: p.ImageLoss
    lidar_loss: p.LidarLoss
    regularisers: p.Regularisers
    terms: Terms
    reduce: p.UpdateState
    keep_unseen: p.UpdateState
    optimize: p.UpdateState
    noise: p.UpdateState
    learn: Learn
    footprints: p.Footprints
    relocate: p.Relocate
    order: Order
    mcmc_split: McmcSplit
    rearrange: Rearrange
    density: OnState
    try_step: Learn
    synchronize: OnState
    streams: Streams


RECORDS = {"feed": FeedStages, "render": RenderStages, "loss": LossStages, "update": UpdateStages}
RECORD_OF = {f.name: record for record, kind in RECORDS.items() for f in fields(kind)}  # by the stage's name
STREAMS = "streams"  # can be replaced and wrapped as a stage can
Bind = Callable[[RenderPlan], Mapping[str, object]]  # returns the compiled stages of a plan


@dataclass(frozen=True)
class Changes:
    """Changes by options, and the stages among them that must be asked or closed."""

    claims: Mapping[str, str] = field(default_factory=dict)  # stage, or plan.FIELD -> the option that changed it
    wrapped: frozenset[str] = frozenset()  # stages that have a wrapper
    capturable: tuple[p.Capturable, ...] = ()
    closeable: tuple[p.Closeable, ...] = ()


@dataclass(frozen=True)
class Stages:
    """The functions of a step. `nurec_lite.training.baseline` lists the readable ones."""

    feed: FeedStages
    render: RenderStages
    loss: LossStages
    update: UpdateStages
    streams: Streams
    device: str = "cpu"  # or cuda: the kind of machine
    plan: RenderPlan | None = None  # of the compiled stages; None: none is compiled
    bind: Bind | None = None
    changes: Changes = Changes()
    ranks: int = 1  # processes that train together

    def stage(self, name: str) -> Any:
        """Returns a stage, or the streams, by name; TypeError where there is none."""
        if name == STREAMS:
            return self.streams
        if name not in RECORD_OF:
            raise TypeError(f"there is no stage '{name}'; the stages are {', '.join(RECORD_OF)}")
        return getattr(getattr(self, RECORD_OF[name]), name)

    def compiled(self, plan: RenderPlan, bind: Bind) -> "Stages":
        """Returns the stages with the compiled ones of a plan."""
        return replace(self._with(bind(plan)), plan=plan, bind=bind)

    def replaced(self, **stages: Unpack[Replacements]) -> "Stages":
        """Returns a copy with other stages that no option claims, such as those of a test or a benchmark."""
        return self._with(stages)

    def swap(self, option: str, **stages: Unpack[Replacements]) -> "Stages":
        """Replaces stages; two options that claim the same stage are an error that names both."""
        claims = self.changes.claims
        for name in stages:
            if name in claims:
                raise OptionError(
                    f"options '{claims[name]}' and '{option}' both replace the stage '{name}'; use one of them"
                )
        self._refuse_wrapped(option, stages)
        return self._with(stages, claims={**claims, **dict.fromkeys(stages, option)})

    def planned(self, option: str, **values: Any) -> "Stages":
        """Sets fields of the plan of the compiled stages; two options that claim the same field are an error that names both."""
        claims = self.changes.claims
        if self.plan is None or self.bind is None:
            raise OptionError(f"option '{option}' cannot run here: {uncompiled(self)}")
        for name in values:
            if (by := claims.get(f"plan.{name}")) is not None:
                raise OptionError(f"options '{by}' and '{option}' both set '{name}' of the plan; use one of them")
        plan = replace(self.plan, **values)
        bound = {name: stage for name, stage in self.bind(plan).items() if name not in claims}
        self._refuse_wrapped(option, bound)
        claims = {**claims, **{f"plan.{name}": option for name in values}}
        return replace(self._with(bound, claims=claims), plan=plan)

    def wrap(self, **wrappers: Callable[[Any], object]) -> "Stages":
        """Puts a wrapper around the present stage of each name."""
        outer = {name: wrapper(self.stage(name)) for name, wrapper in wrappers.items()}
        return self._with(outer, wrapped=self.changes.wrapped | wrappers.keys())

    def close(self) -> None:
        """Ends the stages, the outermost first: it may still call the stage inside."""
        for stage in reversed(self.changes.closeable):
            stage.close()

    @property
    def renders_lidar(self) -> bool:
        """Whether there are sweeps at all; the peer draws images alone."""
        return self.changes.claims.get("render_lidar") != PEER

    def _refuse_wrapped(self, option: str, stages: Iterable[str]) -> None:
        for name in stages:
            if name in self.changes.wrapped:  # the wrapper would be lost without a message
                raise OptionError(
                    f"option '{option}' replaces the stage '{name}', which another option wraps; name '{option}' first"
                )

    def _with(self, stages: Mapping[str, object], **changes: Any) -> "Stages":
        """Returns a copy with these stages in their records, and with changes."""
        capturable = self.changes.capturable + tuple(s for s in stages.values() if isinstance(s, p.Capturable))
        closeable = self.changes.closeable + tuple(s for s in stages.values() if isinstance(s, p.Closeable))
        parts: dict[str, Any] = {}
        for name, stage in stages.items():
            self.stage(name)  # refuses an unknown name
            record = RECORD_OF.get(name, STREAMS)
            parts[record] = (
                stage if record == STREAMS else replace(parts.get(record, getattr(self, record)), **{name: stage})
            )
        return replace(
            self, **parts, changes=replace(self.changes, capturable=capturable, closeable=closeable, **changes)
        )


def uncompiled(stages: Stages) -> str | None:
    """Returns the reason why an option of compiled kernels cannot run on these stages, or None."""
    return None if stages.plan else "it changes compiled kernels; use ops=native and render=own"


def without_gpu(stages: Stages) -> str | None:
    """Returns the reason why an option of the GPU's compiled kernels has no effect on these stages, or None."""
    return uncompiled(stages) or (
        None if stages.device == "cuda" else "it changes kernels of the GPU alone; use device=cuda"
    )
