# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.evaluate: measures a checkpoint on the frames of any split."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
from dataclasses import replace
from functools import partial
from typing import Any

from nurec_lite.base.environment import device_name, environment
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.lock import locked
from nurec_lite.base.version import commit
from nurec_lite.capture.checks.trust import doubts_about
from nurec_lite.capture.types import Capture
from nurec_lite.cli.command import command
from nurec_lite.cli.reconstruction import Reconstruction, open_reconstruction
from nurec_lite.cli.results import name_arguments, result_folder
from nurec_lite.evaluation.drawing import Drawing
from nurec_lite.evaluation.findings import findings
from nurec_lite.evaluation.measure import Evaluation, Frames, evaluate, frames_of
from nurec_lite.evaluation.results import left_scene, table
from nurec_lite.evaluation.trained import trained_on
from nurec_lite.readers import read_capture
from nurec_lite.report.content import Report
from nurec_lite.report.page import write_results
from nurec_lite.report.settings import commands_after_evaluate

HELP = """
Measures a checkpoint on frames of its capture: images by PSNR and SSIM, also inside the boxes of moving actors; lidar sweeps by range,
intensity, ray drop and Chamfer distance.

  python -m nurec_lite.evaluate checkpoint=runs/mine/checkpoint.pt                    the frames held out from training
  python -m nurec_lite.evaluate checkpoint=runs/mine/checkpoint.pt subset=train       those it was trained on
  python -m nurec_lite.evaluate checkpoint=runs/mine/checkpoint.pt data.split=side    the last camera, if training left it out
  python -m nurec_lite.evaluate checkpoint=runs/mine/checkpoint.pt data.root=FOLDER   a capture that lies elsewhere now

Leaves metrics.json, frames.csv (figures of each frame), report.html and pictures/ in the folder `out`, which is
evaluate-SPLIT-SUBSET-stepN next to the checkpoint unless given; other arguments become part of the name. Which frames were
trained on is a matter of the split that training used: measuring another split mixes both, and says which frames were trained on.
"""
_SAME = frozenset(
    {"checkpoint", "out", "device", "subset", "data.split"}
)  # arguments that a folder's name need not tell


def measure(run: Reconstruction, drawing: Drawing, left_out: LeftOut) -> tuple[dict[str, Any], Evaluation]:
    """The content of metrics.json, and further input of a report."""
    config = run.config
    frames = frames_of(run.capture, config.subset)
    trained = left_out.tried("The search for frames that were trained on", partial(_trained_on, run, frames)) or {}
    seconds = config.measure.seconds
    evaluation = evaluate(run.stages, run.scene, run.capture, frames, drawing, True, left_out, seconds)
    counters = {
        "gaussians": len(run.scene.gaussians),
        "steps": int(run.counters["step"]),
        "seconds_train": run.counters["seconds"],
        "device": device_name(run.device),
        "commit": commit(),
        "split": config.data.split,
        "subset": config.subset,
        "checkpoint": config.checkpoint,
    }
    counters |= left_scene(int(run.counters.get("gone", 0)))
    checks = partial(doubts_about, run.capture, config.data.root or run.capture.name, trust=True)
    doubts = left_out.tried("The checks of the capture", checks) or []
    search = partial(findings, run.capture, run.scene, config, counters["steps"], evaluation, left_out, doubts)
    found = left_out.tried("The search for oddities of the capture", search) or []
    counters["findings"] = [*(verdict.text for verdict in doubts), *found]
    return evaluation.metrics | counters | trained, evaluation


def _trained_on(run: Reconstruction, frames: Frames) -> dict[str, str]:
    return trained_on(run.capture, frames, run.trained["data"], _frames_of_the_run(run)) or {}


def _frames_of_the_run(run: Reconstruction) -> Capture:
    given = {key: run.trained["data"].get(key) for key in ("frames", "seconds", "cameras", "lidars", "without")}
    if given == {key: getattr(run.config.data, key) for key in given}:
        return run.capture
    return read_capture(replace(run.config.data, **given), run.scene.origin, run.known)


def work(arguments: list[str]) -> None:
    run = open_reconstruction("evaluate", arguments)
    config = run.config
    name, apart = f"evaluate-{config.data.split}-{config.subset}", name_arguments(arguments, _SAME)
    out = result_folder(config, config.checkpoint, name, run.counters, apart)
    left_out = LeftOut()
    with locked(out):  # a folder that cannot be written is told before minutes of measuring
        try:
            with Drawing(out / "pictures", left_out) as drawing:
                metrics, evaluation = measure(run, drawing, left_out)
        finally:
            left_out.tried("Closing the options", run.stages.close)
        commands = left_out.tried("The list of commands", partial(commands_after_evaluate, config, arguments)) or []
        where = environment(run.device)
        report = Report(run.capture.name, config, metrics, evaluation, run.history, where, commands, left_out)
        write_results(out, report, drawing)
    shown = partial(table, metrics | {"findings": report.findings})
    figures = left_out.tried("The table of figures", shown) or ""
    print(f"{figures}\nresults in {out}: metrics.json, frames.csv, report.html, pictures/")


if __name__ == "__main__":
    command("evaluate", HELP, work)
