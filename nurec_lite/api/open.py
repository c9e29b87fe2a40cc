# SPDX-License-Identifier: Apache-2.0
"""`load`, `train` and `read`: a trained scene from its files, by training, and the capture alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from hydra.core.global_hydra import GlobalHydra

from nurec_lite.api.inputs import file_from
from nurec_lite.api.keys import Options, arguments_of, group, options
from nurec_lite.api.scene import TrainedScene
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.progress import restart_clock
from nurec_lite.base.texts import type_of
from nurec_lite.capture.types import Capture
from nurec_lite.cli.arguments import check_files, check_groups
from nurec_lite.cli.command import configuration, in_our_words
from nurec_lite.cli.reconstruction import opened
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.train import run
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.folder import CHECKPOINT

File = str | PathLike[str]
_READ: WeakKeyDictionary[Capture, list[str]] = WeakKeyDictionary()  # arguments that each capture was read by


def load(
    run: File, *, device: str = "auto", opt: Options = (), capture: Capture | None = None, **keys: Any
) -> TrainedScene:
    """A trained scene, from the folder of its run or from a checkpoint.

    Args:
        run: folder that `train` wrote, or a checkpoint in it.
        device: auto, cpu, cuda or cuda:N.
        opt: options in place of those of the run, as `train` takes them.
        capture: the `Capture` that was trained on, if it was in memory. Otherwise the capture is read from where training read it.
        **keys: keys of `python -m nurec_lite.render`, sections as mappings: load(RUN, data={"root": "elsewhere/drive.pack"}).
    """
    if not isinstance(capture, Capture | None):
        raise ConfigError(f"capture is {type_of(capture)}, but must be a Capture; name a pack by data={{'root': FILE}}")
    path = file_from(run, "run")
    path = path / CHECKPOINT if os.path.isdir(path) else path
    arguments = [*options(opt), *arguments_of({"checkpoint": path, "device": device, **keys})]
    with _apart("render"):
        check_groups(arguments)
        content = load_checkpoint(path, "cpu")
        config = configuration("render", arguments, content)
        if capture is None:
            _check_source(path, config)
            check_files(path, config.data, arguments)
        return TrainedScene(opened(config, content, arguments, capture), path.parent)


def train(
    capture: Capture | File | None = None,
    *,
    out: File | None = None,
    recipe: str | None = None,
    size: str | None = None,
    opt: Options = (),
    steps: int | None = None,
    seconds: float | None = None,
    **keys: Any,
) -> TrainedScene:
    """Trains as `python -m nurec_lite.train` does, and returns the scene.

    Args:
        capture: a pack, the result of `read`, or a `Capture` made in Python; None: the bundled street.
        out: folder of the results; None: a new one in runs/.
        recipe: a choice of +recipe=..., such as "realtime".
        size: a choice of +size=..., such as "large".
        opt: options, as in opt="all", opt=["fused_interp", "no_sync"] or opt={"batch": {"images": 4}}.
        steps: the budget in steps; with both budgets, the first that is reached ends the run.
        seconds: the budget in seconds.
        **keys: keys of training, sections as mappings: train(seed=1, model={"points": 20000}, train={"resume": "auto"}).
    """
    budget = {name: value for name, value in (("steps", steps), ("seconds", seconds)) if value is not None}
    source, about = _source(capture)
    if source is not None and any(argument.startswith("data.root=") for argument in arguments_of(keys)):
        raise ConfigError("data holds a root, but the capture is in memory; give one of them")
    named = {} if out is None else {"out": file_from(out, "out")}
    own = [*arguments_of(named), *group("size", size), *group("recipe", recipe), *options(opt)]
    arguments = [*about, *own, *arguments_of(keys), *arguments_of({"train": budget})]
    restart_clock()
    with _apart("train"):
        check_groups(arguments)
        config: Config = configuration("train", arguments)
        if config.train.resume == "auto" and out is None:
            raise ConfigError("train.resume=auto goes on with the run in `out`; name its folder by out=FOLDER")
        run(config, arguments, source)
    return load(config.out, device=config.device, capture=source)


def read(kind: str = "bundled", root: File | None = None, **keys: Any) -> Capture:
    """The capture that a command line names, as training uses it: with its poses and tracks, and split.

    Args:
        kind: as in data=KIND, such as bundled, pack or kitti_raw.
        root: file or folder.
        **keys: keys of `data`, sections as mappings: read("kitti_raw", FOLDER, downscale=2, frames=[0, 20], tracks={"source": "none"}).
    """
    place = {} if root is None else {"root": file_from(root, "root")}
    arguments = [f"data={kind}", *arguments_of({"data": {**place, **keys}})]
    with _apart("train"):
        check_groups(arguments)
        capture = open_capture(configuration("train", arguments).data)
    _READ[capture] = arguments
    return capture


@contextmanager
def _apart(verb: str) -> Iterator[None]:
    """Raises ConfigError where Hydra refuses a value. If a program uses Hydra itself, its configuration is set aside meanwhile."""
    theirs, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with in_our_words(verb):
            yield
    finally:
        GlobalHydra.instance().hydra = theirs


def _source(capture: Capture | File | None) -> tuple[Capture | None, list[str]]:
    """The capture, if it is in memory alone, and the arguments that name it."""
    if capture is None:
        return None, []
    if isinstance(capture, Capture):
        known = _READ.get(capture)
        return (None, known) if known else (capture, ["data=pack", *arguments_of({"data": {"name": capture.name}})])
    if isinstance(capture, str | PathLike):
        path = file_from(capture, "capture")
        if os.path.isdir(path):
            raise ConfigError(f"{path} is a folder; read it first, as in train(read('kitti_raw', {str(path)!r}))")
        return None, ["data=pack", *arguments_of({"data": {"root": path}})]
    raise ConfigError(f"capture is {type_of(capture)}, but must be a pack's path or a Capture")


def _check_source(path: Path, config: Config) -> None:
    if config.data.kind == "pack" and config.data.root is None:
        raise UserError(
            f"{path} was trained on a capture in memory; give it, as in load(RUN, capture=CAPTURE), or name a pack of it by "
            "data={'root': FILE}"
        )
