# SPDX-License-Identifier: Apache-2.0
"""The launcher `hydra/launcher=processes`. Hydra looks for launchers in this folder alone; the work is in nurec_lite/cli/fleet.py."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher


class Processes(Launcher):
    """Starts every run of `-m` as a process, one a GPU."""

    def __init__(self, at_once: int | None) -> None:
        self._at_once, self._config = at_once, None

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from nurec_lite.cli.fleet import launched

        return launched(self._config, job_overrides, initial_job_idx, self._at_once)
