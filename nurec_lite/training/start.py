# SPDX-License-Identifier: Apache-2.0
"""The start of a run: a fresh scene, or that of a checkpoint if it was made from the same capture with the same model."""

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.key_values import assigned, hydra_value
from nurec_lite.bounds import AUTO
from nurec_lite.capture.digest import Digest
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config, ModelConfig
from nurec_lite.scene.calibration import none_known
from nurec_lite.scene.init import first_scene
from nurec_lite.scene.needed import MIN_GAUSSIANS
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import (
    CheckpointError,
    load_checkpoint,
    scene_from_dict,
    scene_to,
    with_lidar_opacity,
)
from nurec_lite.training.coarse import check_coarse, coarse_share
from nurec_lite.training.gone import edge_of_stored_scene
from nurec_lite.training.history import History
from nurec_lite.training.known_capture import check_known_capture, fresh_digest
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ShotPlan, as_planned
from nurec_lite.training.state import TrainState
from nurec_lite.training.watch import Watch

log = logging.getLogger(__name__)


def make_state(
    config: Config,
    capture: Capture,
    device: torch.device,
    content: dict[str, Any] | None = None,  # of the checkpoint, on the host, if it was read already
    frames: Callable[[ShotPlan], ShotPlan] = as_planned,  # the stage
    digest: Digest | None = None,  # of the capture, if it was compared with the checkpoint's already
    begin_frames: Callable[[ShotPlan, torch.device], None] = lambda *_: None,  # the stage, with its record
) -> TrainState:
    """A fresh state, or that of the checkpoint `train.resume`."""
    check_coarse(config, capture)
    rays = config.train.lidar_rays if config.render == "own" else 0  # the peer renders none
    t = config.train
    coarse = coarse_share(config, capture) > 0
    plan = frames(
        ShotPlan(capture, config.seed, rays, sweeps_every=t.lidar_every, sector=t.lidar_sector, coarse=coarse)
    )
    if t.resume is None:
        return _fresh_state(config, plan, device, partial(begin_frames, plan, device))
    return _stored_state(config, plan, device, Path(t.resume), content, digest)


def _fresh_state(
    config: Config,
    plan: ShotPlan,
    device: torch.device,
    looked: Callable[[], None],
) -> TrainState:
    capture, wanted = plan.capture, config.model
    model = replace(wanted, lidar_opacity=_two_opacities(config, plan))
    scene, most = _first(config, capture, model, device, looked)
    if wanted.calibrate and config.render == "own":  # the peer gives poses no gradient
        scene.calibration = none_known(capture, wanted.knot_seconds, device, wanted.bilateral_grid)
    optimizer, generator = make_optimizer(scene, config.lr), torch.Generator(device).manual_seed(config.seed)
    return TrainState(plan, config, scene, optimizer, generator, device, digest=fresh_digest(capture), most=most)


def _first(
    config: Config, capture: Capture, model: ModelConfig, device: torch.device, looked: Callable[[], None]
) -> tuple[Scene, int | None]:
    """The scene to start from, and the cap where the capture decides on it."""
    first = first_scene(capture, model, config.density.cap, config.seed, device, config.train, looked)
    if config.density.cap != AUTO:
        return first.scene, None
    log.info("density.cap=auto: at most %s Gaussians (%s)", f"{first.chosen.cap:,}", first.chosen.why)
    return first.scene, first.chosen.cap


def _two_opacities(config: Config, plan: ShotPlan) -> bool:
    """Whether the lidar has an opacity of its own. Without a ray that teaches it, it would only fade."""
    return config.model.lidar_opacity and plan.has_sweeps


def _stored_state(
    config: Config,
    plan: ShotPlan,
    device: torch.device,
    path: Path,
    content: dict[str, Any] | None,
    digest: Digest | None,
) -> TrainState:
    content = content or load_checkpoint(path, "cpu")
    check_same_configuration(path, content, config)
    content = with_lidar_opacity(content) if _two_opacities(config, plan) else content
    scene = scene_to(scene_from_dict(content["scene"]), device)
    digest = digest or check_known_capture(path, content, plan.capture, config.data, exact=True)
    optimizer, generator = make_optimizer(scene, config.lr), torch.Generator(device)
    restore_moments(optimizer, content["optimizer"])
    restore_generator(path, generator, content["generator"])
    history, counters = History(content["history"]), content["counters"]
    edge = counters["edge"] if "edge" in counters else edge_of_stored_scene(scene.gaussians.means.detach())
    state = TrainState(
        plan, config, scene, optimizer, generator, device, int(counters["step"]), counters["seconds"], history=history,
        watch=Watch(edge), digest=digest, most=_most_of(content, config),
    )  # fmt: skip
    state.gone = int(counters.get("gone", 0))
    return state


def _most_of(content: dict[str, Any], config: Config) -> int | None:
    """The cap of a run that goes on, where the capture decided on it; that of its settings where it is left open only now."""
    if config.density.cap != AUTO:
        return None
    counters, before = content["counters"], content["config"].get("density", {}).get("cap", MIN_GAUSSIANS)
    return int(counters.get("most_gaussians", MIN_GAUSSIANS if before == AUTO else before))


def check_same_configuration(
    path: Path,
    content: dict[str, Any],  # of the checkpoint
    config: Config,
) -> None:
    """Refuses changes of the data and the model. Paths, budgets, rates and options may change, and the lidar may get
    its own opacity."""
    given = {"lidar_opacity"} if config.model.lidar_opacity else set()
    for part, moved in (("data", _moved(content, config)), ("model", given)):
        now = getattr(config, part)
        was, now = (
            asdict(type(now)()) | content["config"].get(part, {}),
            asdict(now),
        )  # an older version lacks some keys
        moved |= {key for key in now if part == "model" and now[key] == AUTO}  # numbers of a scene that is made already
        other = next((key for key in now if key not in moved and was.get(key) != now[key]), None)
        if other is not None:
            wanted = assigned(f"{part}.{other}", was.get(other))
            raise CheckpointError(
                f"{path} was made with {wanted}, but this run has {hydra_value(now[other])}; "
                f"give {wanted} or begin anew without train.resume"
            )


def _moved(content: dict[str, Any], config: Config) -> set[str]:
    """Keys of `data` that may change. A pack of a drive needs no date, and may hold images that are reduced already."""
    moved = {"root", "name", "kind", "poses", "tracks", "trust"}
    if content["config"].get("data", {}).get("kind", config.data.kind) != config.data.kind:
        moved |= {"date", "drive", "image_delay", "without"} | ({"downscale"} if "capture" in content else set())
    return moved


def restore_moments(optimizer: torch.optim.Adam, stored: dict[str, Any]) -> None:
    """Restores the moments of a checkpoint's optimizer alone: its settings are the program's, and its rates follow a
    schedule."""
    optimizer.load_state_dict(optimizer.state_dict() | {"state": stored["state"]})


def restore_generator(path: Path, generator: torch.Generator, stored: Tensor) -> None:
    """Sets a generator to its state in a checkpoint. The state of a processor's generator does not fit one of a GPU, nor the other way:
    the generator then begins anew, since the run could not go on bit by bit in any case."""
    if len(stored) != len(generator.get_state()):
        log.info("%s was made on another kind of device; random numbers begin anew", path)
        return
    try:
        generator.set_state(stored)
    except RuntimeError as error:  # torch looks at more than the length
        raise CheckpointError(
            f"{path} holds no state of a generator of random numbers; use another checkpoint"
        ) from error
