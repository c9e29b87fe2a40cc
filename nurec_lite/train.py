# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.train: reconstructs a capture within a budget of steps or seconds, then measures it."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import gc
import logging
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
import torch
from omegaconf import DictConfig

from nurec_lite.backends import base_stages, begin_stages, build_stages
from nurec_lite.base.environment import choose_device, device_name, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.lock import locked
from nurec_lite.base.memory import memory_for, peak_bytes
from nurec_lite.base.paths import resource
from nurec_lite.base.phases import phases
from nurec_lite.base.place import place_of
from nurec_lite.base.progress import seconds_since_start
from nurec_lite.base.ranges import in_span, span
from nurec_lite.base.ranks import begin, own_device, present
from nurec_lite.base.version import commit
from nurec_lite.capture.checks.begun import BegunChecks, begin_checks, known_checks
from nurec_lite.capture.checks.starts import Start
from nurec_lite.capture.checks.trust import read_doubts, write_doubts
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.digest import Digest
from nurec_lite.capture.types import Capture
from nurec_lite.cli.arguments import with_budget
from nurec_lite.cli.command import command
from nurec_lite.cli.fleet import FLEET, SKIPPED, attempted, places
from nurec_lite.cli.multirun import check_named, folders, in_own_folder, one_job, overrides
from nurec_lite.cli.resume import resumed
from nurec_lite.cli.words import worded
from nurec_lite.config import Config, check_budget, to_config, to_dict, to_yaml
from nurec_lite.readers import Known, open_capture
from nurec_lite.report.tensorboard import check_tensorboard, tensorboard
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.folder import CHECKPOINT, CONFIG, DOUBTS, METRICS, clear, found_checkpoint, take_run
from nurec_lite.training.history import Row
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.training.loop import spent, train
from nurec_lite.training.memory import TRIES, OutOfMemoryError, out_of_memory, smaller
from nurec_lite.training.spread import exchanged, exchanging, spread, with_scene_of_first
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import check_same_configuration, make_state
from nurec_lite.training.state import TrainState

if TYPE_CHECKING:
    from nurec_lite.evaluation.measure import Evaluation  # what ends a run is imported when it ends

HELP = """
Reconstructs a driving capture as 3D Gaussians within a budget of seconds or steps, then measures it on the frames held out.

  python -m nurec_lite.train                                                       the bundled street, 150 s
  python -m nurec_lite.train data=kitti_raw data.root=FOLDER train.seconds=600     a KITTI drive
  python -m nurec_lite.train data=pack data.root=FILE out=runs/mine                a capture in one file
  python -m nurec_lite.train out=runs/mine train.resume=auto train.seconds=300     goes on with that run, or begins it
  python -m nurec_lite.train train.resume=runs/mine/checkpoint.pt train.steps=900  goes on from a checkpoint, in a new folder
  python -m nurec_lite.train '+opt=[workers]'                                      with an option (docs/options.md)

Leaves in the folder `out`: metrics.json, report.html, checkpoint.pt, history.csv, config.yaml and pictures/. Ctrl-C ends it after
the step under way and saves a checkpoint. A folder holds one run: a second one is refused unless train.resume=auto goes on with the
first, with its settings but for those given anew, or train.overwrite=true replaces it. `--cfg job` prints what a command line
composes, `-m` runs several one after another.
"""
log = logging.getLogger("nurec_lite")


Given = Sequence[str] | None  # arguments of a command line; None: the configuration is meant as it is


def run(
    config: Config,
    given: Given = None,
    source: Capture | None = None,  # a capture in memory, instead of the one that the configuration names
) -> dict[str, object]:
    """The whole job, in a folder that is its own: read, initialise (or resume), train, save, measure, draw. Returns what metrics.json
    holds."""
    check_tensorboard(config)
    ranks = begin(config.device)
    config = replace(config, out=ranks.share(config.out))
    if not ranks.first:
        return _begun(config, given, source)
    take_run(config.out)
    with locked(Path(config.out)):
        return _begun(config, given, source)


def _begun(config: Config, given: Given, source: Capture | None) -> dict[str, object]:
    config, content = _start(config, given)
    check_budget(config)
    with phases(config.train.timing):
        return _fitted(config, content, source)


def _start(config: Config, given: Given) -> tuple[Config, dict[str, Any] | None]:
    """The configuration of the run, and the content of the checkpoint that it goes on from."""
    path = found_checkpoint(config)
    if path is None:
        return replace(config, train=replace(config.train, resume=None)), None
    content = load_checkpoint(path, "cpu")
    if given is None:
        return replace(config, train=replace(config.train, resume=str(path))), content
    return resumed(config, path, content, given), content


def _fitted(config: Config, content: dict[str, Any] | None, source: Capture | None) -> dict[str, object]:
    """Trains with less of everything, from the last checkpoint on, while there is not enough memory."""
    checkpoint = Path(config.out) / CHECKPOINT
    for _ in range(TRIES):
        try:
            return _run(config, content, source)
        except OutOfMemoryError as error:
            said, gaussians = str(error), error.gaussians
            if present().size > 1:
                break
        content = None  # the scene of the run that failed is freed
        gc.collect()
        torch.cuda.empty_cache()
        if checkpoint.exists():
            config = replace(config, train=replace(config.train, resume=str(checkpoint), overwrite=False))
            content = load_checkpoint(checkpoint, "cpu")
        begin = config.train.resume
        config, less = smaller(config, gaussians, resumed=begin is not None)
        log.warning("%s; tried again from %s with %s", said, begin or "the start", less)
    tried = "" if present().size > 1 else ", and less of them did not help"
    raise UserError(
        f"{said}{tried}; give smaller model.*, density.cap and train.lidar_rays, or a larger data.downscale"
    )


def _run(config: Config, content: dict[str, Any] | None, source: Capture | None) -> dict[str, object]:
    out, device, ranks = Path(config.out), choose_device(own_device(config.device)), present()
    with memory_for("the list of the capture's frames", "read fewer, as in data.frames=[0,20]"):
        known = Known() if content is None else known_of(content)
        begin = in_span("device and kernels", partial(begin_stages, config.ops, device, config.render, config.opt))
        with span("capture"):
            capture = open_capture(config.data, known=known, meanwhile=begin, source=source)
    digest = _same_capture(capture, config, content)
    checks = _checks(capture, config, content)
    with checks.first(), span("stages"):
        base = base_stages(config.ops, device, config.render)  # compiles kernels
        stages = spread(build_stages(config.opt, exchanging(base, ranks)), ranks)
    left_out = LeftOut()
    try:
        with checks.first():
            with span("first scene"):
                state = _made(stages, config, capture, device, content, digest, checks.starts)
                if ranks.size > 1 and content is None:
                    state = with_scene_of_first(state, ranks)
            with span("checks"):
                doubts = checks.doubts()
        said = capture.name, _what(capture), len(state.scene.gaussians), device, seconds_since_start()
        log.info("%s: %s; %d Gaussians on %s, %.1f s after the start", *said)
        if ranks.first:
            _own(config, doubts)
        with tensorboard(config, state.history) as scalars:
            if config.train.resume is None or spent(config.train, state.step, state.seconds) < 1:
                with span("training and checkpoint"):
                    train(stages, state, out / CHECKPOINT)
            metrics = _counters(state) | exchanged(stages)
            if ranks.size > 1:
                stages.close()  # NCCL waits for the end of all recorded steps that hold its messages
            ranks.leave()
            if not ranks.first:
                return {}
            with span("measure"):
                evaluation, problem = _measured(stages, state, left_out) if config.train.evaluate else (None, None)
            if evaluation is not None:
                metrics = evaluation.metrics | metrics
                write_scalars = partial(scalars, state.step, evaluation.metrics)
                left_out.tried("Writing scalars for TensorBoard", write_scalars)
            with span("findings"):
                metrics["findings"] = found = _found(capture, state, evaluation, doubts, left_out)
    finally:
        left_out.tried("Closing the options", stages.close)
    with span("report"):
        _write(config, capture, evaluation, metrics, state.history.rows, device, problem, left_out)
    return metrics | {"findings": [*found, *left_out.sentences]}


def _same_capture(capture: Capture, config: Config, content: dict[str, Any] | None) -> Digest | None:
    """The digest of a capture that is the checkpoint's; None for a run that begins."""
    if content is None or config.train.resume is None:
        return None
    path = Path(config.train.resume)
    check_same_configuration(path, content, config)
    return check_known_capture(path, content, capture, config.data, exact=True)


def _checks(capture: Capture, config: Config, content: dict[str, Any] | None) -> BegunChecks:
    """A run that goes on with the same capture has its doubts from its folder, and corrections of cameras from its checkpoint. One rank
    compares sensors for all."""
    if not present().first:
        return known_checks([])
    resume, data = config.train.resume, to_dict(config)["data"]
    known = {} if content is None else content["config"]["data"]
    if resume is not None and all(data[key] == value for key, value in known.items() if key in data):
        return known_checks(read_doubts(Path(resume).parent / DOUBTS))
    return begin_checks(capture, config.data.root or capture.name, config.data.trust)


def _made(
    stages: Stages,
    config: Config,
    capture: Capture,
    device: torch.device,
    content: dict[str, Any] | None,
    digest: Digest | None,
    starts: Callable[[], dict[str, Start]],
) -> TrainState:
    try:
        return make_state(config, capture, device, content, stages.feed.frames, digest, starts)
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            raise OutOfMemoryError(0, None) from error
        raise


def _own(config: Config, doubts: list[Verdict]) -> None:
    """Makes the folder this run's, now that it can begin. One that goes on there keeps what it has until there is more."""
    out = Path(config.out)
    if config.train.overwrite:
        clear(out)
    write_doubts(out / DOUBTS, doubts)
    if not (out / CHECKPOINT).exists():
        write_text(out / CONFIG, to_yaml(config))


def _write(
    config: Config, capture: Capture, evaluation: "Evaluation | None", metrics: dict[str, object], rows: list[Row],
    device: torch.device, problem: UserError | None, left_out: LeftOut,
) -> None:  # fmt: skip
    """Writes all files that can be written, then raises the first error: the checkpoint is saved already."""
    from nurec_lite.evaluation.measure import save_pictures
    from nurec_lite.report.content import Report
    from nurec_lite.report.page import write_results
    from nurec_lite.report.settings import commands_after_train

    out = Path(config.out)
    commands = left_out.tried("The list of commands", partial(commands_after_train, config)) or []
    report = Report(capture.name, config, metrics, evaluation, rows, environment(device), commands, left_out)
    try:
        if evaluation is None:
            write_results(out, report)
        else:
            write_results(out, report, lambda: save_pictures(out / "pictures", evaluation, left_out))
    except UserError as error:
        problem = problem or error
    if problem is not None:
        raise UserError(
            f"{problem}; {out / CHECKPOINT} is saved, and python -m nurec_lite.evaluate measures it"
        ) from problem


def _counters(state: TrainState) -> dict[str, object]:
    from nurec_lite.evaluation.results import left_scene, pace

    return {
        "seconds_total": seconds_since_start(),
        "seconds_train": state.seconds,
        "steps": state.step,
        "gaussians": len(state.scene.gaussians),
        "device": device_name(state.device),
        "commit": commit(),
        **pace(state.laps, peak_bytes(state.device)),
        **left_scene(state.gone),
    }


def _measured(stages: Stages, state: TrainState, left_out: LeftOut) -> tuple["Evaluation | None", UserError | None]:
    """The measurement, or why there is none."""
    from nurec_lite.evaluation.measure import evaluate, held_out

    log.info("measuring the held-out frames")
    capture = state.plan.capture
    try:
        seconds = state.config.measure.seconds
        return evaluate(stages, state.scene, capture, held_out(capture), None, True, left_out, seconds), None
    except UserError as error:
        return None, error
    except Exception as error:
        if out_of_memory(error):
            return None, UserError("there is not enough memory to measure the held-out frames")
        return None, UserError(left_out.add("Measuring the held-out frames", error).removesuffix("."))


def _found(
    capture: Capture, state: TrainState, evaluation: "Evaluation | None", doubts: list[Verdict], left_out: LeftOut
) -> list[str]:
    from nurec_lite.evaluation.findings import findings

    work = partial(findings, capture, state.scene, state.config, state.step, evaluation, left_out, doubts)
    found = left_out.tried("The search for what is odd about the capture", work) or []
    return [*(verdict.text for verdict in doubts), *found]


def _what(capture: Capture) -> str:
    return f"{len(capture.images)} images, {len(capture.sweeps)} sweeps, {len(capture.tracks)} tracks"


@hydra.main(version_base="1.3", config_path=str(resource("conf")), config_name="train")
def main(composed: DictConfig) -> str | None:
    """Returns the state of a drive of a fleet that was not done here."""
    with one_job():
        config = in_own_folder(to_config(composed))
        check_named(config)
        if config.out not in (given.removeprefix("out=") for given in overrides()):  # else the first line said it
            log.info("results go to %s", config.out)
        metrics = attempted(config, partial(run, given=overrides()))
        if metrics is None:
            return SKIPPED
        if not place_of().first:
            return None
        from nurec_lite.evaluation.results import table

        names = sorted(p.name for p in Path(config.out).iterdir() if not p.name.startswith("."))
        figures = LeftOut().tried("The table of figures", partial(table, metrics)) or ""
        print(f"{figures}\nresults in {config.out}: {', '.join(names)}")
    return None


def work(arguments: list[str]) -> None:
    sys.argv[1:] = with_budget(worded("train", arguments))  # which Hydra reads
    folders.clear()
    places.clear()
    try:
        main()
    finally:
        failed = _tabulate(places[-1]) if places else None
        if not places:
            _compare(dict.fromkeys(folders))
    if failed:
        raise UserError(failed)


def _tabulate(place: Path) -> str | None:
    """Prints and writes the tables of a fleet. Returns a sentence about drives that failed."""
    from nurec_lite.report.fleet import MARKDOWN, write_tables

    found = LeftOut().tried("The tables of the fleet", lambda: write_tables(place))
    if found is None:
        return None
    print(f"\n{found.text}\n\ntables: {place / FLEET}")
    if not found.failed:
        return None
    return f"{found.failed} of {found.drives} drives failed; {place / FLEET / MARKDOWN} says why, and the same command tries them again"


def _compare(folders: Iterable[str]) -> None:
    """Prints the table of several runs by one command, if two or more of them have finished."""
    finished = [folder for folder in folders if (Path(folder) / METRICS).is_file()]
    if len(finished) < 2:
        return
    from nurec_lite.report.comparison.rows import markdown
    from nurec_lite.report.comparison.runs import read_runs

    table = LeftOut().tried("The table of the runs", lambda: markdown(read_runs(finished)))
    if table is not None:
        print(f"\n{table}\n\npictures and curves: {shlex.join(['python', '-m', 'nurec_lite.compare', *finished])}")


if __name__ == "__main__":
    command("train", HELP, work)
