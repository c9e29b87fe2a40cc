# SPDX-License-Identifier: Apache-2.0
"""State before a step, values that its parts hand to one another, and its report."""

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.transfer import HostFuture
from nurec_lite.capture.digest import Digest
from nurec_lite.config import Config
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.training.gone import edge_of_scene
from nurec_lite.training.history import Figures, History
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.watch import Watch


@dataclass
class TrainState:
    """Everything that changes during training, and the capture."""

    plan: ShotPlan
    config: Config
    scene: Scene
    optimizer: torch.optim.Adam
    generator: torch.Generator  # of noise and relocation, on the scene's device
    device: torch.device
    step: int = 0
    seconds: float = 0.0  # of training so far
    laps: "array[float]" = field(
        default_factory=lambda: array("f")
    )  # seconds from step to step since the run began or went on
    progress: float = 0.0  # 0 at the start, 1 at the end of the budget
    history: History = field(default_factory=History)
    watch: Watch = field(default_factory=Watch)
    gone: int = 0  # Gaussians so far that left the scene or were not finite, and became dead
    not_finite: int = 0  # of these, since the run began or went on
    # [groups of the optimizer + 1] float32 of the present step: the groups' rates, and how many standard deviations of noise. `schedule`
    # leaves it on the host, `learn` brings it to the device
    lr_and_noise: Tensor | None = None
    consistent: bool = True  # False while a step changes it; it must not be saved then
    # ends the checks of the capture, and raises if it is wrong; None: it has passed them. Nothing is saved before that
    accept: Callable[[], None] | None = None
    checked: Callable[[], bool] = lambda: True  # whether the checks have ended, so that `accept` does not wait
    # [] not 0 after a list overflowed: until it is reset, the optimizer and density control change nothing.
    # None: lists are as long as they need
    failed: Tensor | None = None
    image_lists: tuple["ListUse", ...] = ()  # of the present step
    # [images of all ranks] int64 of the present step: entries of the lists of each, for its report. None: nobody asks for them
    entries: Tensor | None = None
    # [1 + blocks] int32 of the present step, as nurec_lite.native.operators.visible_blocks has them: others stay as they are.
    # None: all count
    visible_blocks: Tensor | None = None
    blocks_sent: int = 0  # of several ranks: so many of these blocks fit into messages
    directions_sent: int = 0  # and directions of so many Gaussians, the last ones
    digest: Digest | None = None  # of the capture, for checkpoints; None: they do not name their capture
    most: int | None = None  # limit of Gaussians for density control; None: density.cap, which is a number

    @property
    def cap(self) -> int:
        """Largest number of Gaussians."""
        cap = self.config.density.cap if self.most is None else self.most
        assert isinstance(cap, int)
        return cap

    def end_checks(self) -> None:
        """Waits for the checks of the capture. CaptureError if it is certainly wrong."""
        if self.accept is not None:
            self.accept()
            self.accept = None

    def __post_init__(self) -> None:
        if math.isinf(self.watch.edge):
            self.watch.edge = edge_of_scene(self.scene.gaussians.means.detach())


@dataclass(frozen=True)
class Gathered:
    """Inputs of a step that come from the scene."""

    gaussians: tuple[AnyGaussians, ...]  # of each view, at its time
    activated: Mapping[str, Tensor] | None  # by the stage activate; None: callers activate themselves
    lists: tuple["ListUse", ...] = ()  # besides those of the views


@dataclass(frozen=True)
class Rendered:
    """A step's shots as the scene has them."""

    images: tuple[CameraImage, ...]
    exposed: tuple[Tensor, ...]  # [H, W, 3] of each image, as its camera would see it
    targets: tuple[Tensor, ...]  # [H, W, 3] of each image, captured, 0 to 1
    returns: tuple[LidarReturns, ...]  # of the sweeps
    activated: Mapping[str, Tensor] | None  # as above
    lists: tuple["ListUse", ...]  # of the images, then of the sweeps, then of all views


@dataclass(frozen=True)
class ListUse:
    """Length of a view's lists."""

    kind: str  # of the view
    capacity: int  # entries that they hold
    needed: Tensor | None  # [1] int64 entries that they would have to hold; None: they hold all
    overflow: Tensor | None  # [] 1 if those exceed the capacity, else 0; None: no capacity was given


def overflow_of(
    needed: Tensor,  # [1] int64
    capacity: int,
) -> Tensor:  # [] as ListUse has it
    return (needed[0] > capacity).float()


@dataclass(frozen=True)
class StepResult:
    """Figures of the progress bar and the log, and the one that decides whether the step counts; on the device."""

    figures: Figures  # every loss term before its weight, and the mean square error of the images, clipped to 0..1
    lists: tuple[ListUse, ...] = ()
    # [n + I + 1] int64 entries that each list with a capacity needs, in their order; those of the I images of all ranks, if ranks exchange
    # them; and whether the step changed nothing and will be done again. None where it cannot fail. Or, if their copies are under way, the
    # future on the host
    report: Tensor | HostFuture | None = None

    @property
    def terms(self) -> dict[str, Tensor]:  # [] each
        return self.figures.terms

    @property
    def mse(self) -> Tensor | None:  # []; None without an image
        return self.figures.mse
