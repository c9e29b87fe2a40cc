# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.train: reconstructs a capture within a budget of steps or seconds, then measures it."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import gc
import logging
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
import torch
from omegaconf import DictConfig

from nurec_lite.backends import base_stages, begin_stages, build_stages, check_stages
from nurec_lite.base.aside import Aside
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.fork_server import end_forks
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.lock import locked
from nurec_lite.base.memory import memory_for
from nurec_lite.base.paths import resource
from nurec_lite.base.phases import phases
from nurec_lite.base.place import place_of
from nurec_lite.base.progress import seconds_since_start
from nurec_lite.base.ranges import in_span, span
from nurec_lite.base.ranks import begin, own_device, present
from nurec_lite.capture.checks.begun import BegunChecks, begin_checker, begin_checks, known_checks
from nurec_lite.capture.checks.doubts import read_doubts
from nurec_lite.capture.decoders import begin_decoders
from nurec_lite.capture.digest import Digest
from nurec_lite.capture.odometry.apart import begin_poses, end_poses
from nurec_lite.capture.tracking.source import begin_search, end_search
from nurec_lite.capture.types import Capture
from nurec_lite.cli.accept import accept, begins_unchecked
from nurec_lite.cli.arguments import with_budget
from nurec_lite.cli.cluster import lost_jobs_fail
from nurec_lite.cli.command import command
from nurec_lite.cli.early_scene import begin_first_scene, end_first_scene
from nurec_lite.cli.fleet import FLEET, SKIPPED, attempted, places
from nurec_lite.cli.multirun import (
    check_named,
    composed_once,
    folders,
    in_own_folder,
    one_job,
    overrides,
)
from nurec_lite.cli.resume import resumed
from nurec_lite.cli.words import hydra_arguments
from nurec_lite.config import Config, check_budget, to_config, to_dict
from nurec_lite.evaluation.ahead import held_out_ahead
from nurec_lite.readers import Known, open_capture
from nurec_lite.report.tensorboard import check_tensorboard, tensorboard
from nurec_lite.scene.moments import begin_decoding, end_decoding
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.folder import CHECKPOINT, DOUBTS, METRICS, found_checkpoint, take_run
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.training.loop import spent, train
from nurec_lite.training.memory import TRIES, OutOfMemoryError, out_of_memory, smaller
from nurec_lite.training.spread import exchanged, exchanging, spread, with_scene_of_first
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import check_same_configuration, make_state
from nurec_lite.training.state import TrainState

if TYPE_CHECKING:
    from nurec_lite.report.results import Results  # imported at the end of a run

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
    """The whole job, in a folder that is its own: read, initialise (or resume), train, save, measure, draw. Returns the content of
    metrics.json."""
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
            said, gaussians, of_this_run = str(error), error.gaussians, error.gaussians is not None
            if present().size > 1:
                break
        content = None  # the scene of the run that failed is freed
        gc.unfreeze()
        gc.collect()
        torch.cuda.empty_cache()
        if of_this_run and checkpoint.exists():
            config = replace(config, train=replace(config.train, resume=str(checkpoint), overwrite=False))
        begin = config.train.resume
        content = None if begin is None else load_checkpoint(Path(begin), "cpu")
        config, less = smaller(config, gaussians, resumed=begin is not None)
        log.warning("%s; tried again from %s with %s", said, begin or "the start", less)
    tried = "" if present().size > 1 else ", and less of them did not help"
    raise UserError(
        f"{said}{tried}; give smaller model.*, density.cap and train.lidar_rays, or a larger data.downscale"
    )


def _run(config: Config, content: dict[str, Any] | None, source: Capture | None) -> dict[str, object]:
    device, left_out = choose_device(own_device(config.device)), LeftOut()
    check_stages(config.ops, device, config.render, config.opt)
    with ExitStack() as ends:

        def check(capture: Capture) -> None:
            begun.append(_checks(capture, config, content, apart=source is None))
            ends.callback(begun[0].close)
            if content is None:
                begin_decoding(capture.with_split(config.data.split), device)
                ends.callback(end_decoding)

        begun: list[BegunChecks] = []
        capture = _opened(config, content, source, device, check)
        checks, digest = begun[0], _same_capture(capture, config, content)
        with checks.first(), span("stages"):
            stages = _stages(config, device)
        ends.callback(left_out.tried, "Closing the options", stages.close)
        with checks.first():
            with span("kernels of the first scene"):
                end_first_scene()
            with span("first scene"):
                state = _made(stages, config, capture, device, content, digest)
            unchecked = begins_unchecked(state)
            if not unchecked:
                accept(state, checks)
        state = _shared(state)
        if unchecked:
            state.accept, state.checked = partial(accept, state, checks), checks.ended
        _say(state)
        results = _trained(stages, state, checks, left_out)
    if results is None:
        return {}
    from nurec_lite.report.results import write

    with span("report"):
        write(results, state, left_out)
    return results.metrics | {"findings": [*results.findings, *left_out.sentences]}


def _opened(
    config: Config,
    content: dict[str, Any] | None,
    source: Capture | None,
    device: torch.device,
    check: Callable[[Capture], None],
) -> Capture:
    """The capture. The device and the kernels get ready while its frames are listed."""
    with memory_for("the list of the capture's frames", "read fewer, as in data.frames=[0,20]"):
        known = Known() if content is None else known_of(content)
        begin = in_span("device and kernels", partial(begin_stages, config.ops, device, config.render, config.opt))
        with span("capture"):
            capture = open_capture(config.data, known=known, meanwhile=begin, source=source, check=check)
    end_poses()
    end_search()
    if gc.get_freeze_count():  # a command's: its capture stays, and no collection searches it again
        gc.freeze()
    return capture


def _stages(config: Config, device: torch.device) -> Stages:
    base = base_stages(config.ops, device, config.render)  # compiles kernels
    return spread(build_stages(config.opt, exchanging(base, present())), present())


def _same_capture(capture: Capture, config: Config, content: dict[str, Any] | None) -> Digest | None:
    """The digest of a capture that is the checkpoint's; None for a run that begins."""
    if content is None or config.train.resume is None:
        return None
    path = Path(config.train.resume)
    check_same_configuration(path, content, config)
    return check_known_capture(path, content, capture, config.data, exact=True)


def _checks(capture: Capture, config: Config, content: dict[str, Any] | None, apart: bool) -> BegunChecks:
    """Begins the checks; one rank compares sensors for all. A run that continues with the same capture takes its doubts from its folder,
    and corrections of cameras from its checkpoint."""
    if not present().first:
        return known_checks([])
    resume, data = config.train.resume, to_dict(config)["data"]
    known = {} if content is None else content["config"]["data"]
    if resume is not None and all(data[key] == value for key, value in known.items() if key in data):
        return known_checks(read_doubts(Path(resume).parent / DOUBTS))
    return begin_checks(capture, config.data.root or capture.name, config.data.trust, apart)


def _made(
    stages: Stages,
    config: Config,
    capture: Capture,
    device: torch.device,
    content: dict[str, Any] | None,
    digest: Digest | None,
) -> TrainState:
    """The state before the first step."""
    try:
        begin = partial(stages.feed.begin_frames, stages)
        return make_state(config, capture, device, content, stages.feed.frames, digest, begin)
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            raise OutOfMemoryError(0, None) from error
        raise


def _shared(state: TrainState) -> TrainState:
    """The state, on all ranks the same."""
    present().await_connection()
    anew = state.config.train.resume is None
    return with_scene_of_first(state, present()) if present().size > 1 and anew else state


def _say(state: TrainState) -> None:
    capture = state.plan.capture
    said = capture.name, _what(capture), len(state.scene.gaussians), state.device, seconds_since_start()
    log.info("%s: %s; %d Gaussians on %s, %.1f s after the start", *said)


def _trained(stages: Stages, state: TrainState, checks: BegunChecks, left_out: LeftOut) -> "Results | None":
    """Trains, and measures on the first rank. The others return None."""
    config = state.config
    ahead = held_out_ahead(state.plan.capture, state.device)
    with tensorboard(config, state.history) as scalars, ahead, ExitStack() as aside:

        def stepped() -> None:
            """Begins the next works on other cores, while the checkpoint is written."""
            if config.train.evaluate and present().first:
                ahead.begin()
                aside.enter_context(Aside(partial(_prepare, config, state.device)))

        if config.train.resume is None or spent(config.train, state.step, state.seconds) < 1:
            with span("training and checkpoint"), checks.first():
                train(stages, state, Path(config.out) / CHECKPOINT, stepped)
        from nurec_lite.report.results import counters, results

        metrics = counters(state) | exchanged(stages)
        if not _still_first(stages):
            return None
        return results(stages, state, metrics, checks.doubts(), scalars, left_out, ahead)


def _prepare(config: Config, device: torch.device) -> None:
    from nurec_lite.report.results import prepare

    prepare(config, device)


def _still_first(stages: Stages) -> bool:
    """Ends the work of several ranks. Returns whether this is the rank that goes on alone."""
    if present().size > 1:
        stages.close()  # NCCL waits for the end of all recorded steps that hold its messages
    present().leave()
    return present().first


def _what(capture: Capture) -> str:
    return f"{len(capture.images)} images, {len(capture.sweeps)} sweeps, {len(capture.tracks)} tracks"


@hydra.main(version_base="1.3", config_path=str(resource("conf")), config_name="train")
def main(composed: DictConfig) -> str | None:
    """Returns the state of a drive of a fleet that was not done here."""
    with one_job():
        config = in_own_folder(to_config(composed))
        check_named(config)
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
    sys.argv[1:] = with_budget(hydra_arguments("train", arguments))  # which Hydra reads
    folders.clear()
    places.clear()
    _begin_early(arguments)
    try:
        with composed_once(arguments), lost_jobs_fail(arguments):
            main()
    finally:
        end_forks()
        failed = _tabulate(places[-1]) if places else None
        if not places:
            _compare(dict.fromkeys(folders))
    if failed:
        raise UserError(failed)


def _begin_early(arguments: list[str]) -> None:
    """Starts processes while this one is small, and then the first thread that computes."""
    if any(argument.startswith("-") for argument in arguments):
        return
    anew = not any(argument.startswith("train.resume=") for argument in arguments) and place_of().first
    if anew:
        begin_poses()
        begin_search()
        begin_checker()
    begin_decoders(sys.orig_argv)
    if anew:
        begin_first_scene(sys.orig_argv)


def _tabulate(place: Path) -> str | None:
    """Prints and writes the tables of a fleet. Returns a sentence about drives that failed."""
    from nurec_lite.report.fleet import MARKDOWN, write_tables

    found = LeftOut().tried("The tables of the fleet", lambda: write_tables(place))
    if found is None:
        return None
    print(f"\n{found.text}\n\ntables: {place / FLEET}")
    if not found.failed:
        return None
    said = f"{found.failed} of {found.drives} drive{'s' * (found.drives != 1)} failed"
    return f"{said}; {place / FLEET / MARKDOWN} says why, and the same command tries them again"


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
