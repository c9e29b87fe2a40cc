# SPDX-License-Identifier: Apache-2.0
"""The input of a report."""

from dataclasses import dataclass, field
from typing import Any

from nurec_lite.base.left_out import LeftOut
from nurec_lite.config import Config
from nurec_lite.evaluation.measure import Evaluation
from nurec_lite.report.settings import Command
from nurec_lite.training.history import Row

_SUBSETS = {"test": "held-out frames", "train": "training frames", "all": "all frames"}


@dataclass(frozen=True)
class Report:
    """Contents of a report; equal contents make equal pages."""

    capture: str  # its name
    config: Config
    metrics: dict[str, Any]  # as in metrics.json
    evaluation: Evaluation | None  # None: nothing was measured
    history: list[Row]
    environment: dict[str, str]
    commands: list[Command]
    left_out: LeftOut = field(default_factory=LeftOut, compare=False)  # parts that failed

    @property
    def findings(self) -> list[str]:
        """Sentences about the capture, and about parts of the result that failed."""
        return [*self.metrics.get("findings", ()), *self.left_out.sentences]

    @property
    def measured(self) -> str:
        """Words that name the measured frames."""
        if "trained_on" in self.metrics:
            return f"frames ({self.metrics['trained_on']} of them trained on)"
        return _SUBSETS[getattr(self.config, "subset", "test")]
