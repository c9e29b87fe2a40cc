# SPDX-License-Identifier: Apache-2.0
"""The seams of the trainer: a frozen record of the callables that a step is made of (nurec_lite/training/step.py says how).

`nurec_lite.backends` fills it. An option takes the record and returns another one: it swaps a stage, wraps one, or sets a field of
the plan that compiled stages carry. Nothing inside the step asks which options are on.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.tracks import TrackPoses, Tracks
from nurec_lite.native.plan import RenderPlan
from nurec_lite.scene.calibration import Calibration
from nurec_lite.scene.gaussians import AnyGaussians, Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.project import Projection
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.density import Part, Relocation
from nurec_lite.training.shots import ShotPlan, Shots, as_it_is, as_planned
from nurec_lite.training.state import Gathered, Listed, Rendered, StepResult, TrainState

PEER = "render=gsplat"  # under which name the peer claims stages
IMAGES, SWEEPS, LISTS, FIGURES = "images", "sweeps", "lists", "figures"  # branches of a step
AnyView = CameraView | LidarView
Room = int | None  # entries that a view's lists may have; None: as many as they need, which the host waits to know


@dataclass(frozen=True)
class Stages:
    """The callables that a step is made of, none of which has a default: `nurec_lite.training.baseline` lists the readable ones."""

    # feed: what the step learns from
    next_batch: Callable[[ShotPlan, int], Shots]  # decodes a step's images and sweeps, on the host
    upload: Callable[[Tensor, torch.device], Tensor]  # one tensor, from the host to the device
    place: Callable[["Stages", TrainState, Shots], Shots]  # what was decoded, to the device
    feed: Callable[["Stages", TrainState], Shots]  # the two together
    resize: Callable[
        ["Stages", TrainState, Shots], Shots
    ]  # on the device, to the resolution at which images are learned by now
    schedule: Callable[["Stages", TrainState], None]  # sets the rates of the step, on the host
    # learn: from the scene to its update
    branches: Callable[[torch.device], AbstractContextManager[None]]  # around all work of a step that has branches
    # (branch, work, all that it reads and others made) -> what it makes. Works of a branch come one after another, behind those of other
    # branches that made what they read; else there is no order between branches, and none beside what the step does itself until `join`,
    # or the end of `branches`: only then the step looks at what they made
    beside: Callable[..., Any]
    join: Callable[[], None]
    correct: Callable[[Any, Calibration | None], Any]  # a view, to where its sensor is believed to have been
    expose: Callable[..., Tensor]  # (image, log gain, offset, vignetting | None) -> the image as it is exposed
    slice_grid: Callable[[Tensor, Tensor], Tensor]  # (bilateral grid, image) -> the image as it maps tones
    activate: Callable[[Gaussians], Mapping[str, Tensor]]  # by the names of WorldGaussians, and lidar_opacities
    interpolate: Callable[[Tracks, Tensor], TrackPoses]
    collect: Callable[
        ..., tuple[AnyGaussians, ...]
    ]  # (scene, times [Q], interpolate, activated | None, [Q] whether a lidar looks) -> Q
    gather: Callable[["Stages", Scene, Sequence[AnyView]], Gathered]  # collects for all views of a step
    room: Callable[[AnyView], Room]  # of the view's lists
    project: Callable[[AnyGaussians, AnyView, Room], Projection]
    tile: Callable[[Projection, AnyView, Room], PairList]
    render_camera: Callable[[AnyGaussians, CameraView, PairList, Tensor], CameraImage]
    render_lidar: Callable[[AnyGaussians, LidarView, PairList], LidarReturns]
    render_all: Callable[
        ["Stages", Scene, Sequence[AnyView], Sequence[AnyGaussians]],
        tuple[tuple[CameraImage | LidarReturns, Listed], ...],
    ]  # by the six above: what each view of a step sees, and how long its lists are
    image_loss: Callable[[Tensor, Tensor, float], Tensor]  # (rendered, target, share of SSIM) -> []
    lidar_loss: Callable[
        ..., dict[str, Tensor]
    ]  # (returns, sweep, which rays count | None, whether it was aimed) -> [] each
    regularisers: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]  # (opacities, the lidar's, scales) -> [] each
    loss: Callable[["Stages", TrainState, Shots, Rendered], dict[str, Tensor]]  # [] of all terms
    reduce: Callable[[TrainState], None]  # gradients and `failed`, over the processes that train together
    optimize: Callable[[TrainState], None]
    noise: Callable[[TrainState], None]  # behind an update: disks keep their thickness, transparent ones explore
    learn: Callable[["Stages", TrainState, Shots], StepResult]  # all of these
    # density
    footprints: Callable[[Scene, Capture, Sequence[int]], Tensor]  # of Gaussians, in images of these numbers
    relocate: Callable[..., Relocation | None]  # (gaussians, new ones, generator, weights, jitter, lost, order, part)
    order: Callable[[Relocation], Tensor]  # [M] in which it leaves Gaussians, those of a node one behind another
    part: Part  # (opacity logits [N, S], copies [N], most of them | None) -> logits of each copy [N, S], factor of its scales [N]
    rearrange: Callable[["Stages", TrainState, int], None]  # by these four, what is stored, with so many new ones
    density: Callable[["Stages", TrainState], None]  # that, now and then
    # around them
    attempt: Callable[["Stages", TrainState, Shots], StepResult]  # schedule, learn, density: what can be done again
    settle: Callable[
        ["Stages", TrainState], None
    ]  # the loop calls it before it looks at the state, saves or measures it
    # looking without learning
    render_views: Callable[
        ["Stages", Scene, Sequence[AnyView]], tuple[CameraImage | LidarReturns, ...]
    ]  # what each view sees, without gradients
    # what they are for
    frames: Callable[[ShotPlan], ShotPlan] = as_planned  # once: how many images and sweeps a step gets
    bundle: Callable[[LidarView], LidarView] = as_it_is  # on the device, once a sweep that stays there: groups its rays
    device: str = "cpu"  # or cuda: the kind of machine
    plan: RenderPlan | None = None  # how compiled stages cut their work; None: they are not compiled
    bind: Callable[[RenderPlan], Mapping[str, Callable]] | None = None  # the compiled stages of a plan
    claims: Mapping[str, str] = field(default_factory=dict)  # stage, or plan.FIELD -> the option that changed it
    wrapped: frozenset[str] = frozenset()  # stages that something stands around
    # what of the host's knowledge decides what stages launch, beside sizes; None: it is still changing
    knowledge: tuple[Callable[[Scene], Hashable | None], ...] = ()
    # whether a relocation that keeps the number of Gaussians, with these nodes [N], must be left out: [] bool, on the device. May be
    # recorded, so it leaves what it finds on the device as well
    vetoes: tuple[Callable[[Scene, Tensor], Tensor], ...] = ()
    closers: tuple[Callable[[], None], ...] = ()  # end what stages have started, such as loader processes

    def swap(self, option: str, **stages: Callable) -> "Stages":
        """Replaces stages; two options that claim the same stage are an error that names both."""
        for name in stages:
            if name in self.claims:
                raise OptionError(
                    f"options '{self.claims[name]}' and '{option}' both replace the stage '{name}'; use one of them"
                )
        self._refuse_wrapped(option, stages)
        new: dict[str, Any] = {**stages, "claims": {**self.claims, **dict.fromkeys(stages, option)}}
        knowledge = self.knowledge + tuple(stage.known for stage in stages.values() if hasattr(stage, "known"))
        vetoes = self.vetoes + tuple(stage.veto for stage in stages.values() if hasattr(stage, "veto"))
        return replace(self, knowledge=knowledge, vetoes=vetoes, closers=self.closers + _closers(stages), **new)

    def planned(self, option: str, **fields: Any) -> "Stages":
        """Sets fields of the plan that compiled stages carry; two options that claim the same field are an error that names both."""
        if self.plan is None or self.bind is None:
            raise OptionError(f"option '{option}' cannot run here: {uncompiled(self)}")
        for name in fields:
            if (by := self.claims.get(f"plan.{name}")) is not None:
                raise OptionError(f"options '{by}' and '{option}' both set '{name}' of the plan; use one of them")
        plan = replace(self.plan, **fields)
        bound = {name: stage for name, stage in self.bind(plan).items() if name not in self.claims}
        self._refuse_wrapped(option, bound)
        claims = {**self.claims, **{f"plan.{name}": option for name in fields}}
        new: dict[str, Any] = {**bound, "plan": plan, "claims": claims}
        return replace(self, **new)

    def _refuse_wrapped(self, option: str, stages: Iterable[str]) -> None:
        for name in stages:
            if name in self.wrapped:  # the wrapper would be lost in silence
                raise OptionError(
                    f"option '{option}' replaces the stage '{name}', which another option wraps; name '{option}' first"
                )

    @property
    def renders_lidar(self) -> bool:
        """Whether there are sweeps at all; the peer draws images alone."""
        return self.claims.get("render_lidar") != PEER

    def wrap(self, **wrappers: Callable[[Callable], Callable]) -> "Stages":
        """Puts something around stages, whatever they are by then."""
        outer: dict[str, Any] = {name: wrapper(getattr(self, name)) for name, wrapper in wrappers.items()}
        closers = self.closers + _closers(outer)
        return replace(self, wrapped=self.wrapped | wrappers.keys(), closers=closers, **outer)

    def close(self) -> None:
        """Ends what stages have started, the outermost first: it may be calling what it stands around."""
        for closer in reversed(self.closers):
            closer()


def _closers(stages: Mapping[str, Callable]) -> tuple[Callable[[], None], ...]:
    return tuple(stage.close for stage in stages.values() if hasattr(stage, "close"))


def uncompiled(stages: Stages) -> str | None:
    """Why an option of compiled kernels cannot run on these stages, or None."""
    return None if stages.plan else "it changes compiled kernels; use ops=native and render=own"


def without_gpu(stages: Stages) -> str | None:
    """Why an option of the GPU's compiled kernels cannot do anything on these stages, or None."""
    return uncompiled(stages) or (
        None if stages.device == "cuda" else "it changes kernels of the GPU alone; use device=cuda"
    )
