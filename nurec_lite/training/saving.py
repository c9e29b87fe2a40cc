# SPDX-License-Identifier: Apache-2.0
"""Writes the state of a run: the checkpoint, its history and its configuration."""

from pathlib import Path

from nurec_lite.config import to_yaml
from nurec_lite.training.checkpoint import save_checkpoint
from nurec_lite.training.folder import CONFIG, HISTORY, measured
from nurec_lite.training.state import TrainState


def write_checkpoint(state: TrainState, path: Path) -> None:
    """Writes the checkpoint of any state. Nothing that belongs to another checkpoint stays."""
    counters = {"step": state.step, "seconds": state.seconds, "edge": state.watch.edge, "gone": state.gone}
    counters |= {} if state.most is None else {"most_gaussians": state.most}
    texts = {path.with_name(HISTORY): state.history.to_csv(), path.with_name(CONFIG): to_yaml(state.config)}
    content = state.scene, state.optimizer, state.generator, state.config, counters, state.history.rows
    save_checkpoint(path, *content, texts, measured(path.parent), state.digest)
