# SPDX-License-Identifier: Apache-2.0
"""cuda_graph: a whole step, from the scene to its update, is recorded once and launched as one CUDA graph.

Idea: a step has hundreds of kernels, and most are shorter than the host's time to launch one, so the GPU waits for the host. Here the
host launches `learn` of a step (collect, render, loss, backward, optimizer, noise) as one graph. Values that change between steps are
in fixed memory: shots with their views, the rates, whether a step failed. Sizes are the key of a graph: a camera's image, capacity for
rays, capacity of lists, Gaussians of the background. A step of sensors that were in plain steps before is recorded at once. Another one
runs plainly, from the fixed memory, and is inspected; if something cannot be recorded twice in a row, a message lists it, and steps
continue without a graph. Sweeps differ by some rays; a few sizes suffice, and padding repeats rays that no loss counts.
Between two launches the GPU runs two small kernels (kernels/update/multi_tensor_copy.cu). One keeps the figures of the last launch and
writes its report into host memory, before the next launch overwrites them. The other copies the step's shots to their places, and the
rates, which are arguments of the kernel.
Source: CUDA graphs, as torch records them (Ng et al., Accelerating PyTorch with CUDA Graphs, 2021).
Gain, code before and after, limits: docs/options/cuda_graph.md.
Limits: on a GPU alone. A new image size (train.coarse) needs a new recording; old ones stay until others need their place or Gaussians
are added. Losses and checkpoints are read outside of the graph. A relocation that adds Gaussians makes new tensors, so one step runs
plainly, and others are recorded again; other relocations are a graph of their own and write in place. With train.timing=true some
steps run without the graph, because a graph has no ranges inside. The recording holds its own memory in addition. Needs no_sync, since
recorded work may not wait, and fused_adam, with its rates on the device. Class exact: the same kernels; sums have some more zeros.
"""

import logging
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.capture_safety import CaptureSafety, unsafe_operations
from nurec_lite.base.graphs import CapturedGraph, Recorder
from nurec_lite.base.ranges import GRAPH, RECORD, span
from nurec_lite.base.transfer import HostFuture, locked
from nurec_lite.native import ops
from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.training.history import Figures
from nurec_lite.training.optim import stored
from nurec_lite.training.relocation_graph import CapturedRelocation
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Learn, Stages
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.static_inputs import StaticInputs, ray_capacity_for

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("no_sync", "fused_adam")
MAX_GRAPHS = 32  # recordings that are kept: those of 16 cameras, with a sweep and without
# with train.timing=true one step of so many runs without the graph, before step 400 and after it, since it takes four times as long;
# primes, so that steps with sweeps are among them
PROFILED_EVERY = 19, 101
log = logging.getLogger("nurec_lite")
# images and lidars, capacities of rays, knowledge of the host, capacities of lists
Key = tuple[tuple[tuple[Hashable, ...], tuple[Hashable, ...]], tuple[int, ...], Hashable, Hashable]


def unavailable(stages: Stages) -> str | None:
    return None if stages.device == "cuda" else "it records work of a GPU; use device=cuda"


@dataclass
class CapturedStep:
    """A step of some sizes."""

    inputs: StaticInputs
    ran: bool = False  # once, as it is
    graph: CapturedGraph[StepResult] | None = None


def profiled(step: int) -> bool:
    """Whether a step runs without the graph for train.timing."""
    every = PROFILED_EVERY[step >= 400]
    return step % every == every - 1


class CudaGraph:
    """Wraps `learn`: records it once for each key, then launches the graph."""

    def __init__(self) -> None:
        self.steps = 0
        self.launched = 0  # of these
        self.recorded = 0  # times
        self._learn: Learn | None = None
        self._off = False  # something cannot be recorded
        self._recorder: Recorder | None = None
        self._safety = CaptureSafety()  # at steps, by their sensors
        self._ran = False  # plainly, with the present store
        self._steps: dict[Key, CapturedStep] = {}  # by key, the least recently used first
        self._store: tuple[Any, ...] = ()  # tensors that recordings update
        self._rays: dict[str, list[int]] = {}  # capacities of rays, by lidar
        self._lr_and_noise = self._failed = torch.zeros(())  # where recordings read these

    def around(self, inner: Learn) -> "CudaGraph":
        self._learn = inner
        return self

    def __call__(self, stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        assert self._learn is not None
        self.steps += 1
        ungraphed = state.config.train.timing and profiled(state.step)  # for its ranges, which a graph lacks
        key = None if self._off or ungraphed else self._key(stages, state, shots)
        if key is None:
            return self._learn(stages, state, shots)
        record = self._record_for(key, state, shots)
        if record.graph is None:
            with span(RECORD):
                if not self._recorded(key, stages, state, record):
                    return self._plainly(key, stages, state, record)
        with span(GRAPH):
            return self._launch(record, state)

    def records(self) -> bool:
        """Whether steps are recorded: a first step has run, and the option is not off."""
        return self._recorder is not None and not self._off

    def _recorded(self, key: Key, stages: Stages, state: TrainState, record: CapturedStep) -> bool:
        """Whether the step is recorded now. Plain steps come before: they make all that is made once."""
        known = self._ran and self._safety.is_safe(*_parts(key))
        return (known or record.ran) and self._record(record, stages, state)

    def _stand_aside(self, why: str) -> None:
        """Switches the option off: further steps run as without it."""
        self._off = True
        log.warning("cuda_graph is off%s", why)

    def close(self) -> None:
        """Frees the memory of the graphs, and logs their use."""
        if self.launched and self._recorder is not None:  # once
            log.info(
                "cuda_graph: %d of %d steps were launched, of %d recordings", self.launched, self.steps, self.recorded
            )
        self._steps.clear()
        self._recorder, self._store = None, ()

    def _key(self, stages: Stages, state: TrainState, shots: Shots) -> Key | None:
        """All that may make the step's launches differ from those of another; None: the host does not know yet."""
        store = stored(state.scene, state.optimizer)
        if len(store) != len(self._store) or any(a is not b for a, b in zip(store, self._store, strict=True)):
            self._steps.clear()
            self._store, self._ran = store, False
        known = tuple(stage.graph_key(state.scene) for stage in stages.changes.capturable)
        capacities = tuple(stages.render.capacity(view) for view in shots.views)
        if state.failed is None or state.lr_and_noise is None or None in known or None in capacities:
            return None
        images = tuple((shot.camera, tuple(shot.image.shape)) for shot in shots.images)
        lidars = tuple((shot.view.lidar.name, shot.view.ray_groups is None) for shot in shots.sweeps)
        rays = tuple(self._ray_capacity(shot.view.lidar.name, len(shot.sweep)) for shot in shots.sweeps)
        return (images, lidars), rays, known, capacities

    def _ray_capacity(self, lidar: str, rays: int) -> int:
        known = self._rays.setdefault(lidar, [])
        capacity = ray_capacity_for(rays, known)
        if capacity not in known:
            known.append(capacity)
        return capacity

    def _record_for(self, key: Key, state: TrainState, shots: Shots) -> CapturedStep:
        """The record of the key, with these shots in its places."""
        assert state.lr_and_noise is not None and state.failed is not None
        if self._recorder is None:
            self._recorder = Recorder(state.device)
            self._lr_and_noise, self._failed = (
                torch.empty_like(state.lr_and_noise, device=state.device),
                torch.empty_like(state.failed),
            )
        record = self._steps.pop(key, None) or CapturedStep(StaticInputs(shots, key[1]))
        self._steps[key] = record
        if len(self._steps) > MAX_GRAPHS:
            del self._steps[next(iter(self._steps))]
        pairs = list(record.inputs.pairs(shots))
        if state.failed is not self._failed:
            pairs.append((self._failed, state.failed))
        multi_tensor_copy(pairs, self._lr_and_noise, state.lr_and_noise.tolist())
        return record

    def _plainly(self, key: Key, stages: Stages, state: TrainState, record: CapturedStep) -> StepResult:
        """Runs a step as it is, and inspects one of new sensors for unsafe work."""
        parts = _parts(key)
        if self._off or self._safety.is_safe(*parts):
            result, record.ran = self._work(stages, state, record.inputs), True
        else:
            with unsafe_operations(state.device) as unsafe:
                result = self._work(stages, state, record.inputs)
            record.ran = self._judged(parts, unsafe)
        self._ran = self._ran or record.ran
        state.failed = self._failed
        return result

    def _judged(self, parts: tuple[Hashable, ...], unsafe: list[str]) -> bool:
        """Whether steps of these parts may be recorded."""
        why = self._safety.judge(parts, unsafe)
        if why is not None:
            self._stand_aside(f", since a step cannot be recorded: {why}")
        return not unsafe

    def _record(self, record: CapturedStep, stages: Stages, state: TrainState) -> bool:
        """Records a graph without computing anything; returns whether it could."""
        assert self._recorder is not None
        try:
            record.graph = self._recorder.record(lambda: self._work(stages, state, record.inputs), (state.generator,))
        except RuntimeError as error:
            state.optimizer.zero_grad(set_to_none=True)
            if record.ran:
                self._stand_aside(f", since a step could not be recorded: {str(error).splitlines()[0]}")
            return False
        self.recorded += 1
        return True

    def _work(self, stages: Stages, state: TrainState, inputs: StaticInputs) -> StepResult:
        """The step, on the static inputs."""
        assert self._learn is not None
        inside = replace(state, lr_and_noise=self._lr_and_noise, failed=self._failed)
        result = self._learn(stages, inside, inputs.shots)
        assert inside.failed is not None
        self._failed.copy_(inside.failed)
        return result

    def _launch(self, record: CapturedStep, state: TrainState) -> StepResult:
        assert record.graph is not None
        state.failed = self._failed
        self.launched += 1
        return _kept(record.graph.launch())


def _parts(key: Key) -> tuple[Hashable, ...]:
    """Returns the images of a step with their sizes, and the rest: a step may make things once for each of the two."""
    (images, lidars), rays, _, _ = key
    return images, (len(images), lidars, rays)


def _kept(result: StepResult) -> StepResult:
    """Result of a launch, copied: the next launch overwrites its figures and its report."""
    assert isinstance(result.report, Tensor)
    figures, report = torch.empty_like(result.figures.values), locked(result.report)
    multi_tensor_copy(((figures, result.figures.values), (report, result.report)))
    arrival = HostFuture.of_pending(report, result.report.device)
    return replace(result, figures=Figures(result.figures.names, figures), report=arrival)


def apply(stages: Stages) -> Stages:
    ops.load()
    own = CudaGraph()
    return stages.wrap(learn=own.around, rearrange=lambda inner: CapturedRelocation(inner, own.records))
