# SPDX-License-Identifier: Apache-2.0
"""A CPU's stand-in for the recorder of CUDA graphs: it does the work again at every launch, and a step's report stands where the first
launch left it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from nurec_lite.opt.all import cuda_graph
from nurec_lite.training import relocation_graph
from nurec_lite.training.state import StepResult


class Again:
    """Stands in for Recording."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._made: StepResult | None = None

    def launch(self) -> Any:
        found = self._work()
        if not isinstance(found, StepResult):
            return found
        self._made = self._made or found
        self._made.figures.values.copy_(found.figures.values)
        if found.report is not None and self._made.report is not None:
            self._made.report.copy_(found.report)
        return self._made


class StandIn:
    """Stands in for Recorder."""

    def __init__(self, device: torch.device) -> None: ...

    def record(self, work: Callable[[], Any], generators: Sequence[torch.Generator]) -> Again:
        return Again(work)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the stand-in into the modules that record. No finding counts: on a CPU everything is the host's, so nothing is unsafe."""
    for module in (cuda_graph, relocation_graph):
        monkeypatch.setattr(module, "Recorder", StandIn)
    monkeypatch.setattr(cuda_graph, "unavailable", lambda stages: None)
    monkeypatch.setattr(
        "nurec_lite.base.capture_safety.Findings.__torch_dispatch__", lambda s, f, t, a=(), k=None: f(*a, **(k or {}))
    )
