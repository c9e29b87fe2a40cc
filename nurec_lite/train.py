# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.train: reconstructs a capture within a budget of steps or seconds, then measures it."""

import os

# Threads that wait for one another spin briefly, then sleep. On two quiet cores sleeping at once costs 1.4 x, and on a busy machine
# spinning for long costs 10 x and more (benchmarks/LOG.md).
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import json
import logging
import math
import subprocess
import sys
import time
from pathlib import Path

import hydra
import torch
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from nurec_lite.capture.loader import BatchPlan
from nurec_lite.capture.open import open_capture
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, scene_from_dict
from nurec_lite.config import Config, ConfigError, TrainConfig, to_config, to_dict
from nurec_lite.evaluate import evaluate, held_out
from nurec_lite.metrics import to_json
from nurec_lite.opt import build_stages, unknown_option
from nurec_lite.optim import make_optimizer
from nurec_lite.paths import PACKAGE, resource
from nurec_lite.progress import Bar, seconds_since_start
from nurec_lite.scene.init import make_scene
from nurec_lite.stages import OptionError, Stages, TrainState

log = logging.getLogger("nurec_lite")


def run(config: Config) -> dict[str, object]:
    """The whole job: read, initialise (or resume), train, save, measure, draw. Returns what metrics.json holds."""
    stages = build_stages(config.opt)
    out, device = Path(config.out), choose_device(config.device)
    capture = open_capture(config.data)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(to_dict(config))))
    state, seconds = make_state(config, capture, device)
    log.info("%s: %s; %d Gaussians on %s", capture.name, _what(capture), len(state.scene.gaussians), device)
    try:
        seconds = train(stages, state, out / "checkpoint.pt", seconds)
        metrics = {
            "seconds_total": seconds_since_start(),
            "seconds_train": seconds,
            "steps": state.step,
            "gaussians": len(state.scene.gaussians),
            "device": device_name(device),
            "commit": commit(),
        }
        if config.train.evaluate:
            log.info("measuring the held-out frames")
            metrics = evaluate(stages, state.scene, capture, held_out(capture), out / "pictures") | metrics
    finally:
        stages.close()
    write_text(out / "metrics.json", json.dumps(to_json(metrics), indent=2) + "\n")
    return metrics


def make_state(config: Config, capture: Capture, device: torch.device) -> tuple[TrainState, float]:
    """A fresh state, or that of the checkpoint `train.resume`, and the seconds that it has been trained."""
    plan = BatchPlan(capture, config.seed, config.train.lidar_rays)
    generator = torch.Generator(device).manual_seed(config.seed)
    if config.train.resume is None:
        scene = make_scene(capture, config.model, config.seed, device)
        return TrainState(plan, config, scene, make_optimizer(scene, config.lr), generator, device), 0.0
    content = load_checkpoint(Path(config.train.resume), device)
    scene = scene_from_dict(content["scene"])
    if scene.tracks.ids != capture.tracks.ids or len(scene.exposure) != len(capture.cameras):
        raise CheckpointError(
            f"{config.train.resume} belongs to another capture; resume with the data.* it was made with"
        )
    optimizer = make_optimizer(scene, config.lr)
    optimizer.load_state_dict(content["optimizer"])
    generator.set_state(content["generator"].cpu())
    step, seconds = int(content["counters"]["step"]), content["counters"]["seconds"]
    return TrainState(plan, config, scene, optimizer, generator, device, step), seconds


def train(stages: Stages, state: TrainState, checkpoint: Path, seconds: float) -> float:
    """Steps until the budget is spent; saves now and then and at the end. Returns the seconds trained, earlier ones included."""
    budget, begin, saved = state.config.train, time.monotonic() - seconds, time.monotonic()
    bar = Bar(budget.steps, budget.seconds)
    while (progress := spent(budget, state.step, seconds)) < 1:
        state.progress = progress
        result = stages.step(stages, state, stages.next_batch(state.plan, state.step))
        state.step += 1
        seconds = time.monotonic() - begin
        bar.show(state, seconds, result)
        if time.monotonic() - saved > budget.checkpoint_seconds:
            save(state, checkpoint, seconds)
            saved = time.monotonic()
    bar.close()
    save(state, checkpoint, seconds)
    return seconds


def spent(budget: TrainConfig, step: int, seconds: float) -> float:
    """Share of the budget that is used up, of steps or of seconds, whichever is further."""
    pairs = ((step, budget.steps), (seconds, budget.seconds))
    return max(used / limit if limit else 1.0 for used, limit in pairs if limit is not None)


def save(state: TrainState, path: Path, seconds: float) -> None:
    counters = {"step": state.step, "seconds": seconds}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"device={name}, but torch sees no CUDA device; use device=cpu, or install a driver and a CUDA build of torch"
        )
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name} is unknown; use auto, cpu, cuda or cuda:N") from error


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


def commit() -> str | None:
    """Of the checkout that runs, with + when it has changes; None when there is none."""
    git = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None


def write_text(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _what(capture: Capture) -> str:
    return f"{len(capture.images)} images, {len(capture.sweeps)} sweeps, {len(capture.tracks)} tracks"


def summary(metrics: dict[str, object], out: str) -> str:
    """What the user sees at the end."""
    rows = [
        ("held-out PSNR", "psnr", "dB"), ("held-out SSIM", "ssim", ""), ("moving actors' PSNR", "psnr_actors", "dB"),
        ("lidar median error", "lidar_median_abs_m", "m"), ("lidar mean error", "lidar_mean_abs_m", "m"),
        ("training", "seconds_train", "s"), ("start to checkpoint", "seconds_total", "s"),
    ]  # fmt: skip
    known = {key: value for key, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
    lines = [f"  {label:20} {known[key]:8.3f} {unit}" for label, key, unit in rows if key in known]
    lines.append(f"  {'Gaussians':20} {metrics['gaussians']:8} after {metrics['steps']} steps")
    return "\n".join([*lines, f"results in {out}: metrics.json, checkpoint.pt, pictures/"])


@hydra.main(version_base="1.3", config_path=str(resource("conf")), config_name="train")
def main(composed: DictConfig) -> None:
    try:
        config = to_config(composed)
        print(summary(run(config), config.out))
    except (CaptureError, CheckpointError, ConfigError, OptionError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def cli() -> None:
    """`main`, with one sentence instead of Hydra's paragraph where the command line names what does not exist."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra then raises instead of printing and leaving with code 1
    try:
        main()
    except HydraException as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        sys.exit(2)


def _sentence(error: HydraException) -> str:
    if isinstance(error, MissingConfigException) and (error.missing_cfg_file or "").startswith("opt/"):
        return str(unknown_option(Path(error.missing_cfg_file or "").stem))
    causes = [str(e).strip().splitlines()[0].rstrip(".") for e in (error, error.__cause__) if e is not None]
    return "; ".join(causes) + ". Keys and their meaning: nurec_lite/config.py, or --cfg job"


if __name__ == "__main__":
    cli()
