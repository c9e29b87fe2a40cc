# SPDX-License-Identifier: Apache-2.0
"""The seams of the trainer: a frozen record of callables, and the training step written with them.

The defaults are the readable baseline. An option takes the record and returns another one (`nurec_lite.opt`): it swaps a stage, wraps
one, or sets a field of the plan that compiled stages carry. Nothing inside the step asks which options are on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.base.ranges import in_span, span
from nurec_lite.capture.loader import Batch, BatchPlan
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate
from nurec_lite.native.plan import RenderPlan
from nurec_lite.scene.collect import collect_at
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.scene import Scene, exposed
from nurec_lite.splat.project import Projection, project
from nurec_lite.splat.render import CameraImage, LidarReturns, render_camera, render_lidar
from nurec_lite.splat.tiles import PairList, tile
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import Moved, density, load_batch, nothing_to_settle, optimize, to_device, total_loss
from nurec_lite.training.state import StepResult, TrainState

OPS = ("native", "reference")
RENDERS = ("own", "gsplat")
PEER = "render=gsplat"  # under which name the peer claims stages


def collected(
    stages: "Stages",
    scene: Scene,
    times: Sequence[float],
    local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
) -> tuple[AnyGaussians, ...]:
    """The Gaussians in world space at each time."""
    with span("collect"):
        return stages.collect(scene, times, in_span("interpolate", stages.interpolate), local)


def render_frame(
    stages: "Stages",
    scene: Scene,
    view: CameraView,
    gaussians: AnyGaussians | None = None,  # at the view's time, if they are collected already
) -> CameraImage:
    """One exposure, from the scene to the image."""
    with span("render_camera"):
        gaussians = collected(stages, scene, (view.time_mid,))[0] if gaussians is None else gaussians
        return stages.render_camera(gaussians, view, _pairs(stages, gaussians, view), scene.sky)


def render_sweep(
    stages: "Stages",
    scene: Scene,
    view: LidarView,
    gaussians: AnyGaussians | None = None,  # likewise
) -> LidarReturns:
    """The rays of one sweep, from the scene to the returns."""
    with span("render_lidar"):
        gaussians = collected(stages, scene, (view.time_mid,))[0] if gaussians is None else gaussians
        return stages.render_lidar(gaussians, view, _pairs(stages, gaussians, view))


def _pairs(stages: "Stages", gaussians: AnyGaussians, view: CameraView | LidarView) -> PairList:
    """Which Gaussians each of the view's tiles looks at."""
    with span("project"):
        projection = stages.project(gaussians, view)
    with span("tile"):
        return stages.tile(projection, view)


def train_step(stages: "Stages", state: TrainState, batch: Batch) -> StepResult:
    """One image and some rays: render, compare, differentiate, update, adapt."""
    with span("to_device"):
        batch, camera, lidar = stages.to_device(state, batch)
    rendered = render_frame(stages, state.scene, camera)
    returns = None if lidar is None else render_sweep(stages, state.scene, lidar)
    return learn(stages, state, batch, rendered, returns)


def learn(
    stages: "Stages",
    state: TrainState,
    batch: Batch,
    rendered: CameraImage,
    returns: LidarReturns | None,
    local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
) -> StepResult:
    """Compares what was rendered with the batch, and updates."""
    sensor = state.plan.capture.images[batch.image_index].sensor
    image = exposed(state.scene, state.plan.capture.camera_index(sensor), rendered.colour)
    target = batch.image.float() / 255
    with span("loss"):
        loss, terms = stages.loss(state, batch, image, target, returns, local)
    return update(stages, state, loss, terms, image, target)


def update(
    stages: "Stages",
    state: TrainState,
    loss: Tensor,  # []
    terms: dict[str, Tensor],  # of the loss, before their weights
    image: Tensor,  # [H, W, 3] as the camera would see it
    target: Tensor,  # [H, W, 3]
) -> StepResult:
    """What follows the loss in every step: differentiate, update, adapt."""
    with span("backward"):
        loss.backward()
    with span("optimize"):
        stages.optimize(state)
    with span("density"):
        stages.density(state)
    mse = (image.detach().clamp(0, 1) - target).square().mean()
    return StepResult({name: term.detach() for name, term in terms.items()}, mse)


@dataclass(frozen=True)
class Stages:
    """The callables that a step is made of."""

    next_batch: Callable[[BatchPlan, int], Batch] = load_batch
    to_device: Callable[[TrainState, Batch], Moved] = to_device
    interpolate: Callable[[Tracks, Tensor], TrackPoses] = interpolate
    collect: Callable[..., tuple[AnyGaussians, ...]] = collect_at
    project: Callable[[AnyGaussians, CameraView | LidarView], Projection] = project
    tile: Callable[[Projection, CameraView | LidarView], PairList] = tile
    render_camera: Callable[[AnyGaussians, CameraView, PairList, Tensor], CameraImage] = render_camera
    render_lidar: Callable[[AnyGaussians, LidarView, PairList], LidarReturns] = render_lidar
    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]] = total_loss
    optimize: Callable[[TrainState], None] = optimize
    density: Callable[[TrainState], None] = density
    step: Callable[["Stages", TrainState, Batch], StepResult] = train_step
    settle: Callable[["Stages", TrainState], None] = nothing_to_settle
    device: str = "cpu"  # or cuda: the kind of machine that they are for
    plan: RenderPlan | None = None  # how compiled stages cut their work; None: they are not compiled
    claims: Mapping[str, str] = field(default_factory=dict)  # stage, or plan.FIELD -> the option that changed it
    wrapped: frozenset[str] = frozenset()  # stages that something stands around
    closers: tuple[Callable[[], None], ...] = ()  # end what stages have started, such as loader processes

    def swap(self, option: str, **stages: Callable) -> "Stages":
        """Replaces stages; two options that claim the same stage are an error that names both."""
        for name in stages:
            if name in self.claims:
                raise OptionError(
                    f"options '{self.claims[name]}' and '{option}' both replace the stage '{name}'; use one of them"
                )
        self._refuse_wrapped(option, stages)
        closers = tuple(stage.close for stage in stages.values() if hasattr(stage, "close"))
        new: dict[str, Any] = {**stages, "claims": {**self.claims, **dict.fromkeys(stages, option)}}
        return replace(self, closers=self.closers + closers, **new)

    def planned(self, option: str, **fields: Any) -> "Stages":
        """Sets fields of the plan that compiled stages carry; two options that claim the same field are an error that names both."""
        if self.plan is None:
            raise OptionError(f"option '{option}' cannot run here: {uncompiled(self)}")
        for name in fields:
            if (by := self.claims.get(f"plan.{name}")) is not None:
                raise OptionError(f"options '{by}' and '{option}' both set '{name}' of the plan; use one of them")
        from nurec_lite.native.stages import native_stages

        plan = replace(self.plan, **fields)
        bound = {name: stage for name, stage in native_stages(plan).items() if name not in self.claims}
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
        return replace(self, wrapped=self.wrapped | wrappers.keys(), **outer)

    def close(self) -> None:
        """Ends what stages have started."""
        for closer in self.closers:
            closer()


def uncompiled(stages: Stages) -> str | None:
    """Why an option of compiled kernels cannot run on these stages, or None."""
    return None if stages.plan else "it changes compiled kernels; use ops=native and render=own"
