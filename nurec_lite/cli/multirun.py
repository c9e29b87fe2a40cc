# SPDX-License-Identifier: Apache-2.0
"""Several runs by one command (`-m`): each has a folder and a clock of its own, and one that fails does not end the others.

Hydra's own launcher runs them one after another, and Slurm gives each its cores. A launcher that runs several at once on this machine
tells nobody how many: set OMP_NUM_THREADS to the cores over their number then.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from nurec_lite.base.errors import StoppedError, UserError
from nurec_lite.base.progress import restart_clock
from nurec_lite.cli.command import mended
from nurec_lite.config import Config

log = logging.getLogger("nurec_lite")


@contextmanager
def one_job() -> Iterator[None]:
    """Around a run that Hydra has started, alone or as one of several."""
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


def in_own_folder(config: Config) -> Config:
    """Unless `out` was given, a job of several writes into its folder of the sweep: the time in the default name is that of the first."""
    hydra = HydraConfig.get()
    given = any(override.startswith("out=") for override in hydra.overrides.task)
    return config if hydra.mode is RunMode.RUN or given else replace(config, out=hydra.runtime.output_dir)
