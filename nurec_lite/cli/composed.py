# SPDX-License-Identifier: Apache-2.0
"""A configuration by its name and arguments, within a command of Hydra and outside."""

from collections.abc import Sequence
from contextlib import nullcontext

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from nurec_lite.base.paths import resource
from nurec_lite.config import Config, to_config


def composed_config(
    name: str,  # of a file in conf/
    given: Sequence[str],
) -> Config:
    """Configuration of the arguments; within nurec_lite.train Hydra is set up already."""
    begun = GlobalHydra.instance().is_initialized()
    with nullcontext() if begun else initialize_config_dir(str(resource("conf")), version_base="1.3"):
        return to_config(compose(name, overrides=list(given)))
