# SPDX-License-Identifier: Apache-2.0
"""Several runs by one command (`-m`): each has a folder and a clock of its own, and one that fails does not end the others.

Hydra's own launcher runs them one after another, and Slurm gives each its cores. A launcher that runs several at once on this machine
does not tell their number: set OMP_NUM_THREADS to the cores over their number then.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from nurec_lite.base.errors import ConfigError, StoppedError, UserError
from nurec_lite.base.memory import restart_peak
from nurec_lite.base.progress import restart_clock
from nurec_lite.cli.command import mended
from nurec_lite.config import Config

log = logging.getLogger("nurec_lite")
folders: list[str] = []  # of the jobs that this process has begun, in their order


@contextmanager
def one_job() -> Iterator[None]:
    """Block around a run that Hydra has started, alone or as one of several."""
    if HydraConfig.get().mode is RunMode.RUN:
        with mended("train"):  # here already: Hydra would announce the error in its own words
            yield
        return
    try:
        yield
    except StoppedError:  # Ctrl-C ends all of them, not this one alone
        with mended("train"):
            raise
    except UserError as error:  # Hydra goes on with the next job and raises the first error at the end
        log.error("job %s failed: %s", HydraConfig.get().job.num, error)
        raise
    finally:
        restart_clock()
        restart_peak()


def in_own_folder(config: Config) -> Config:
    """The configuration of a job of several with a folder of its own: of the sweep, or of the one `out` that was given for all of them,
    unless that names it by an interpolation, such as ${hydra:job.num}."""
    hydra = HydraConfig.get()
    if hydra.mode is RunMode.RUN:
        return config
    given = [override for override in overrides() if override.startswith("out=")]
    if not given:
        config = replace(config, out=hydra.runtime.output_dir)
    elif "${" not in given[-1]:
        config = replace(config, out=f"{config.out}/{hydra.job.num}")
    folders.append(config.out)
    return config


def overrides() -> list[str]:
    """Arguments of this run as they were given, without Hydra's own."""
    given = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    assert isinstance(given, list)
    return given


def is_new_folder() -> bool:
    """Whether a command chose the folder of this run, as none was given, or one for several runs."""
    return HydraConfig.initialized() and not _is_named()


def _is_named() -> bool:
    return HydraConfig.get().mode is RunMode.RUN and any(override.startswith("out=") for override in overrides())


def check_named(config: Config) -> None:
    """Raises ConfigError where a run cannot be continued because its folder is new each time."""
    several = HydraConfig.get().mode is not RunMode.RUN
    if config.train.resume == "auto" and not several and not _is_named():
        raise ConfigError("train.resume=auto goes on with the run in `out`; name its folder by out=FOLDER")


@contextmanager
def composed_once(
    arguments: Sequence[str],  # of the command line
) -> Iterator[None]:
    """Block with one composition. Hydra composes the configuration twice, at first only for `hydra.mode`; in the block it does that only
    if an argument may set the mode."""
    if any(argument.startswith("-") or "hydra" in argument for argument in arguments):
        yield
        return
    get_mode = Hydra.get_mode
    Hydra.get_mode = lambda *given, **named: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = get_mode  # type: ignore[method-assign]
