# SPDX-License-Identifier: Apache-2.0
"""The end of a run: figures of the held-out frames, findings, and the files that show them."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nurec_lite.base.environment import device_name, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.memory import peak_bytes
from nurec_lite.base.progress import seconds_since_start
from nurec_lite.base.ranges import span
from nurec_lite.base.version import commit
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.config import Config
from nurec_lite.evaluation import findings, measure
from nurec_lite.evaluation.ahead import DecodedAhead
from nurec_lite.evaluation.drawing import Drawing
from nurec_lite.evaluation.measure import Evaluation
from nurec_lite.evaluation.results import left_scene, pace
from nurec_lite.report.content import Report
from nurec_lite.report.page import write_results
from nurec_lite.report.settings import commands_after_train
from nurec_lite.training.folder import CHECKPOINT
from nurec_lite.training.memory import out_of_memory
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

log = logging.getLogger("nurec_lite")


class Results(NamedTuple):
    """Figures and sentences of a run, before its files are written."""

    metrics: dict[str, object]  # without findings
    findings: list[str]  # sentences
    evaluation: Evaluation | None
    problem: UserError | None  # why an evaluation that was asked for is absent
    drawing: Drawing  # its pictures


def prepare(config: Config, device: torch.device) -> None:
    """Finds versions and the list of commands, which the results do not change, so that the end of a run need not."""
    environment(device)
    commands_after_train(config)


def counters(state: TrainState) -> dict[str, object]:
    """The figures of training that metrics.json holds. A run that went on from a checkpoint has no seconds of its whole."""
    whole = {} if state.config.train.resume is not None else {"seconds_total": seconds_since_start()}
    return {
        **whole,
        "seconds_train": state.seconds,
        "steps": state.step,
        "gaussians": len(state.scene.gaussians),
        "device": device_name(state.device),
        "commit": commit(),
        **pace(state.laps, peak_bytes(state.device)),
        **left_scene(state.gone),
    }


def results(
    stages: Stages,
    state: TrainState,
    metrics: dict[str, object],  # known so far
    doubts: list[Verdict],  # of the checks before training
    scalars: Callable[[int, dict[str, Any]], None],  # takes the step and held-out metrics
    left_out: LeftOut,
    ahead: DecodedAhead,  # the held-out frames, which are being decoded
) -> Results:
    """Measures the scene on the held-out frames if `train.evaluate`, and searches for oddities of the capture."""
    with span("measure"), Drawing(Path(state.config.out) / "pictures", left_out) as drawing:
        evaluation, problem = _measured(stages, state, left_out, ahead, drawing)
    if evaluation is not None:
        metrics = evaluation.metrics | metrics
        left_out.tried("Writing scalars for TensorBoard", partial(scalars, state.step, evaluation.metrics))
    with span("findings"):
        found = _found(state, evaluation, doubts, left_out)
    return Results(metrics, found, evaluation, problem, drawing)


def _measured(
    stages: Stages, state: TrainState, left_out: LeftOut, ahead: DecodedAhead, drawing: Drawing
) -> tuple[Evaluation | None, UserError | None]:
    """The measurement, or why there is none that was asked for."""
    if not state.config.train.evaluate:
        return None, None
    log.info("measuring the held-out frames")
    capture = state.plan.capture
    try:
        seconds = state.config.measure.seconds
        return measure.evaluate(
            stages, state.scene, capture, measure.held_out(capture), drawing, True, left_out, seconds, ahead
        ), None
    except UserError as error:
        return None, error
    except Exception as error:
        if out_of_memory(error):
            return None, UserError("there is not enough memory to measure the held-out frames")
        return None, UserError(left_out.add("Measuring the held-out frames", error).removesuffix("."))


def _found(state: TrainState, evaluation: Evaluation | None, doubts: list[Verdict], left_out: LeftOut) -> list[str]:
    capture, scene, config = state.plan.capture, state.scene, state.config
    work = partial(findings.findings, capture, scene, config, state.step, evaluation, left_out, doubts)
    found = left_out.tried("The search for oddities of the capture", work) or []
    return [*(verdict.text for verdict in doubts), *found]


def write(results: Results, state: TrainState, left_out: LeftOut) -> None:
    """Writes all files that can be written, then raises the first error: the checkpoint is saved already."""
    out, problem = Path(state.config.out), results.problem
    try:
        write_results(out, _report(results, state, left_out), results.drawing)
    except UserError as error:
        problem = problem or error
    if problem is not None:
        raise UserError(
            f"{problem}; {out / CHECKPOINT} is saved, and python -m nurec_lite.evaluate measures it"
        ) from problem


def _report(results: Results, state: TrainState, left_out: LeftOut) -> Report:
    config, metrics = state.config, results.metrics | {"findings": results.findings}
    commands = left_out.tried("The list of commands", partial(commands_after_train, config)) or []
    return Report(
        state.plan.capture.name, config, metrics, results.evaluation, state.history.rows, environment(state.device),
        commands, left_out,
    )  # fmt: skip
