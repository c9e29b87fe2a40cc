# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.train: reconstructs a capture within a budget of steps or seconds, then measures it."""

import nurec_lite.threads  # noqa: F401  before torch

# isort: split
import logging
import time
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig, OmegaConf

from nurec_lite.capture.loader import BatchPlan
from nurec_lite.capture.open import open_capture
from nurec_lite.capture.types import Capture
from nurec_lite.checkpoint import load_checkpoint, save_checkpoint, scene_from_dict
from nurec_lite.command import command
from nurec_lite.config import Config, TrainConfig, check_budget, to_config, to_dict
from nurec_lite.environment import choose_device, commit, device_name, environment
from nurec_lite.files import write_text
from nurec_lite.history import History, Row
from nurec_lite.measure import Evaluation, evaluate, held_out
from nurec_lite.multirun import StoppedError, in_own_folder, one_job
from nurec_lite.opt import build_stages
from nurec_lite.optim import make_optimizer
from nurec_lite.paths import resource
from nurec_lite.profiling.ranges import STEP, span
from nurec_lite.profiling.timing import timed
from nurec_lite.progress import Bar, StopWish, seconds_since_start
from nurec_lite.reconstruction import check_same_capture, check_same_configuration
from nurec_lite.report.content import Report
from nurec_lite.report.page import write_results
from nurec_lite.report.settings import commands_after_train
from nurec_lite.results import table
from nurec_lite.scene.init import make_scene
from nurec_lite.stages import Stages
from nurec_lite.state import TrainState
from nurec_lite.tensorboard import check_tensorboard, tensorboard

HELP = """
Reconstructs a driving capture as 3D Gaussians within a budget of seconds or steps, then measures it on the frames held out.

  python -m nurec_lite.train                                                       the bundled street, 150 s
  python -m nurec_lite.train data=kitti_raw data.root=FOLDER train.seconds=600     a KITTI drive
  python -m nurec_lite.train data=pack data.root=FILE out=runs/mine                a capture in one file
  python -m nurec_lite.train train.resume=runs/mine/checkpoint.pt train.steps=900  goes on from a checkpoint
  python -m nurec_lite.train '+opt=[workers]'                                      with an option (README lists them)

Leaves in the folder `out`: metrics.json, report.html, checkpoint.pt, history.csv, config.yaml and pictures/. Ctrl-C ends it after
the step under way and saves a checkpoint. `--cfg job` prints what a command line composes, `-m` runs several one after another.
"""
log = logging.getLogger("nurec_lite")


def run(config: Config) -> dict[str, object]:
    """The whole job: read, initialise (or resume), train, save, measure, draw. Returns what metrics.json holds."""
    check_budget(config)
    check_tensorboard(config)
    out, device = Path(config.out), choose_device(config.device)
    capture = open_capture(config.data)
    base = Stages.of(config.ops, device, config.render)  # compiles kernels: what may fail comes before
    stages = build_stages(config.opt, base)
    try:
        state = make_state(config, capture, device)
        said = capture.name, _what(capture), len(state.scene.gaussians), device, seconds_since_start()
        log.info("%s: %s; %d Gaussians on %s, %.1f s after the start", *said)
        write_text(out / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(to_dict(config))))
        with tensorboard(config, state.history) as scalars:
            train(stages, state, out / "checkpoint.pt")
            metrics, evaluation = _counters(state), None
            if config.train.evaluate:
                evaluation = _measured(stages, state, out)
                metrics = evaluation.metrics | metrics
                scalars(state.step, evaluation.metrics)
    finally:
        stages.close()
    rows, commands = state.history.rows, commands_after_train(config)
    write_results(out, Report(capture.name, config, metrics, evaluation, rows, environment(device), commands))
    return metrics


def make_state(config: Config, capture: Capture, device: torch.device) -> TrainState:
    """A fresh state, or that of the checkpoint `train.resume`."""
    rays = config.train.lidar_rays if config.render == "own" else 0  # the peer renders none
    plan = BatchPlan(capture, config.seed, rays)
    generator = torch.Generator(device).manual_seed(config.seed)
    if config.train.resume is None:
        scene = make_scene(capture, config.model, config.seed, device)
        return TrainState(plan, config, scene, make_optimizer(scene, config.lr), generator, device)
    path = Path(config.train.resume)
    content = load_checkpoint(path, device)
    check_same_configuration(path, content["config"], config)
    scene = scene_from_dict(content["scene"])
    check_same_capture(path, scene, capture)
    optimizer = make_optimizer(scene, config.lr)
    optimizer.load_state_dict(content["optimizer"])
    generator.set_state(content["generator"].cpu())
    step, seconds = int(content["counters"]["step"]), content["counters"]["seconds"]
    history = History(content["history"])
    return TrainState(plan, config, scene, optimizer, generator, device, step, seconds, history=history)


def train(stages: Stages, state: TrainState, checkpoint: Path) -> None:
    """Steps until the budget is spent; saves now and then and at the end, also if the user asks to stop."""
    budget, begin, saved = state.config.train, time.monotonic() - state.seconds, time.monotonic()
    bar = Bar(budget.steps, budget.seconds)
    with StopWish() as stop, timed(budget.timing, state.device, checkpoint.parent):
        while (progress := spent(budget, state.step, state.seconds)) < 1 and not stop.asked:
            state.progress = progress
            bar.show(one_step(stages, state, begin))
            if time.monotonic() - saved > budget.checkpoint_seconds:
                stages.settle(stages, state)
                save(state, checkpoint)
                saved = time.monotonic()
        stages.settle(stages, state)
        bar.show(state.history.read())
        bar.close(complete=not stop.asked)
        save(state, checkpoint)
    if stop.asked:
        raise StoppedError(f"stopped after step {state.step}; go on with train.resume={checkpoint}")


def one_step(
    stages: Stages,
    state: TrainState,
    begin: float,  # of training, by time.monotonic
) -> Row | None:
    """The next batch, the step on it, and what the history says of it, if it was read."""
    with span(STEP):
        with span("next_batch"):
            batch = stages.next_batch(state.plan, state.step)
        result = stages.step(stages, state, batch)
        state.step, state.seconds = state.step + 1, time.monotonic() - begin
        with span("report"):
            n = len(state.scene.gaussians)
            return state.history.add(state.step, state.seconds, n, result.mse, result.terms, result.failed)


def spent(budget: TrainConfig, step: int, seconds: float) -> float:
    """Share of the budget that is used up, of steps or of seconds, whichever is further."""
    pairs = ((step, budget.steps), (seconds, budget.seconds))
    return max(used / limit if limit else 1.0 for used, limit in pairs if limit is not None)


def save(state: TrainState, path: Path) -> None:
    """The checkpoint, and the history as a table beside it."""
    state.history.read()
    counters = {"step": state.step, "seconds": state.seconds}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, state.history.rows)
    write_text(path.with_name("history.csv"), state.history.to_csv())


def _counters(state: TrainState) -> dict[str, object]:
    return {
        "seconds_total": seconds_since_start(),
        "seconds_train": state.seconds,
        "steps": state.step,
        "gaussians": len(state.scene.gaussians),
        "device": device_name(state.device),
        "commit": commit(),
    }


def _measured(stages: Stages, state: TrainState, out: Path) -> Evaluation:
    log.info("measuring the held-out frames")
    capture = state.plan.capture
    return evaluate(stages, state.scene, capture, held_out(capture), out / "pictures", progress=True)


def _what(capture: Capture) -> str:
    return f"{len(capture.images)} images, {len(capture.sweeps)} sweeps, {len(capture.tracks)} tracks"


@hydra.main(version_base="1.3", config_path=str(resource("conf")), config_name="train")
def main(composed: DictConfig) -> None:
    with one_job():
        config = in_own_folder(to_config(composed))
        metrics = run(config)
        print(
            f"{table(metrics)}\nresults in {config.out}: {', '.join(sorted(p.name for p in Path(config.out).iterdir()))}"
        )


if __name__ == "__main__":
    command("train", HELP, lambda arguments: main())
