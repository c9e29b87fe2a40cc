# SPDX-License-Identifier: Apache-2.0
"""What a report is made from."""

from dataclasses import dataclass
from typing import Any

from nurec_lite.config import Config
from nurec_lite.evaluation.measure import Evaluation
from nurec_lite.report.settings import Command
from nurec_lite.training.history import Row

_SUBSETS = {"test": "held-out frames", "train": "training frames", "all": "all frames"}


@dataclass(frozen=True)
class Report:
    """Equal contents make equal pages."""

    capture: str  # its name
    config: Config
    metrics: dict[str, Any]  # as in metrics.json
    evaluation: Evaluation | None  # None: nothing was measured
    history: list[Row]
    environment: dict[str, str]
    commands: list[Command]

    @property
    def measured(self) -> str:
        """Which frames were measured."""
        if "trained_on" in self.metrics:
            return f"frames ({self.metrics['trained_on']} of them trained on)"
        return _SUBSETS[getattr(self.config, "subset", "test")]
