# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.train: reconstructs a capture within a budget of steps or seconds, then measures it."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import logging
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device, commit, device_name, environment
from nurec_lite.base.files import write_text
from nurec_lite.base.paths import resource
from nurec_lite.base.progress import seconds_since_start
from nurec_lite.capture.types import Capture
from nurec_lite.cli.command import command
from nurec_lite.cli.multirun import in_own_folder, one_job
from nurec_lite.config import Config, check_budget, to_config, to_dict
from nurec_lite.evaluation.measure import Evaluation, evaluate, held_out
from nurec_lite.evaluation.results import table
from nurec_lite.readers import open_capture
from nurec_lite.report.content import Report
from nurec_lite.report.page import write_results
from nurec_lite.report.settings import commands_after_train
from nurec_lite.report.tensorboard import check_tensorboard, tensorboard
from nurec_lite.training.loop import train
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

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
    base = base_stages(config.ops, device, config.render)  # compiles kernels: what may fail comes before
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
