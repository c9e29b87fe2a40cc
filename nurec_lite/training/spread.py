# SPDX-License-Identifier: Apache-2.0
"""One run on several ranks: each holds the whole scene, and renders an equal share of a step's images and sweeps."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.ranks import Ranks
from nurec_lite.training.checkpoint import scene_from_dict, scene_to_dict
from nurec_lite.training.exchange import Exchange
from nurec_lite.training.optim import MOMENTS, make_optimizer
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stage_protocols import Frames
from nurec_lite.training.stages import Rearrange, Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.watch import Watch

RANKS = "ranks"  # their name in claims of stages


def exchanging(stages: Stages, ranks: Ranks) -> Stages:
    """The stages before options: gradients are averaged over the ranks."""
    if ranks.size == 1:
        return stages
    exchange = Exchange(ranks)
    own = stages.swap(RANKS, reduce=exchange).wrap(learn=exchange.around)
    return replace(own, ranks=ranks.size)


def exchanged(stages: Stages) -> dict[str, object]:
    """Figures of the exchange for metrics.json; none of one process."""
    exchange = stages.update.reduce
    if not isinstance(exchange, Exchange):
        return {}
    return {"ranks": stages.ranks, "exchanged_bytes_a_step": exchange.bytes_a_step}


def spread(stages: Stages, ranks: Ranks) -> Stages:
    """The stages with all options: a step's frames are shared, and relocations are those of the first rank."""
    if ranks.size == 1:
        return stages
    return stages.wrap(
        frames=lambda inner: _shared_frames(inner, ranks), rearrange=lambda inner: _same_relocations(inner, ranks)
    )


def _shared_frames(inner: Frames, ranks: Ranks) -> Frames:
    return lambda plan: shared(inner(plan), ranks)


def shared(plan: ShotPlan, ranks: Ranks) -> ShotPlan:
    """The rank's share of the plan; ConfigError where a step's frames cannot be shared equally."""
    _check_equal("images", plan.images.size, len(plan.images.frames), ranks.size)
    if plan.has_sweeps:
        _check_equal("sweeps", plan.sweeps.size, len(plan.sweeps.frames), ranks.size)
    return replace(plan, rank=ranks.place.rank, ranks=ranks.size)


def _check_equal(what: str, a_step: int, frames: int, ranks: int) -> None:
    if a_step % ranks == 0:
        return
    wanted = -(-a_step // ranks) * ranks
    remedy = f"give opt.batch.{what}={wanted}" if wanted <= frames else f"start at most {frames} ranks"
    raise ConfigError(
        f"{what} of a step: {a_step} (opt.batch.{what}), which {ranks} ranks cannot share equally; {remedy}"
    )


def _same_relocations(inner: Rearrange, ranks: Ranks) -> Rearrange:
    """Wraps `rearrange`. Ranks draw the same numbers, but a GPU may add up weights in another order."""

    def rearrange(stages: Stages, state: TrainState, n_new: int) -> None:
        inner(stages, state, n_new)
        ranks.broadcast(_stored(state))

    return rearrange


def _stored(state: TrainState) -> Iterator[Tensor]:
    """All that a relocation changes."""
    yield state.scene.gaussians.node
    for group in state.optimizer.param_groups:
        (parameter,) = group["params"]
        yield parameter.detach()
        yield from (v for k, v in state.optimizer.state.get(parameter, {}).items() if k in MOMENTS)


def with_scene_of_first(state: TrainState, ranks: Ranks) -> TrainState:
    """A fresh state with the scene of the first rank; frames that arrive in another order may give another one."""
    content = scene_to_dict(state.scene)
    shapes = ranks.share({name: tuple(value.shape) for name, value in _tensors(content).items()})
    for name, shape in shapes.items():
        _put(content, name, _of_shape(_tensors(content)[name], shape))
    ranks.broadcast(_tensors(content).values())
    scene = scene_from_dict(content)
    optimizer = make_optimizer(scene, state.config.lr)
    return replace(state, scene=scene, optimizer=optimizer, watch=Watch(), most=ranks.share(state.most))


def _tensors(content: dict[str, Any]) -> dict[str, Tensor]:
    return {**content["parameters"], "node": content["node"]}


def _put(content: dict[str, Any], name: str, value: Tensor) -> None:
    (content if name == "node" else content["parameters"])[name] = value


def _of_shape(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    return value.contiguous() if tuple(value.shape) == shape else value.new_empty(shape)
