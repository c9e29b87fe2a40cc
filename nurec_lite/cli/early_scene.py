# SPDX-License-Identifier: Apache-2.0
"""Kernels that the first scene needs, loaded by a thread while the configuration is composed and the capture is read.

CUDA loads each of torch's kernels when it is first used, without Python's lock, and the libraries of linear algebra, too: together they
take longer than the scene itself. The thread makes a tiny scene of the bundled street.
"""

import logging
import sys
from collections.abc import Sequence
from threading import Thread

import torch

from nurec_lite.base.early_device import ordinal_of
from nurec_lite.base.environment import choose_device
from nurec_lite.base.ranges import inside
from nurec_lite.config import DataConfig, ModelConfig
from nurec_lite.readers import open_capture
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.scene import Scene

SWITCH = 2e-4  # seconds until a busy thread lends Python's lock: operators wait for it one by one
FEW = DataConfig(frames=[0, 4], split="half")  # "interp" wants more moments
TINY = ModelConfig(points=1000, raised_points=100, far_points=100, actor_points=100, sh_degree=3)
log = logging.getLogger(__name__)


_begun: list[Thread] = []


def begin_first_scene(
    command: Sequence[str],  # words of the command line
) -> None:
    """Does nothing for a command that uses no GPU."""
    ordinal = ordinal_of(command)
    if ordinal is None or not torch.cuda.is_available():
        return
    device = choose_device(f"cuda:{ordinal}")  # sets the number of threads, which pools of this thread would keep
    thread = Thread(target=make_tiny_scene, args=(device,), name="early scene")
    _begun.append(thread)
    thread.start()


def end_first_scene() -> None:
    """Waits for the thread. Everything that it still loads is needed next."""
    while _begun:
        _begun.pop().join()


def make_tiny_scene(device: torch.device) -> None:
    """Makes a scene of the bundled street. A failure costs time alone: the run loads the kernels itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        with inside("early/scene"):
            tiny_scene(device)
    except Exception:
        log.debug("no kernels were loaded early", exc_info=True)
    finally:
        sys.setswitchinterval(before)


def tiny_scene(device: torch.device) -> Scene:
    return make_scene(open_capture(FEW), TINY, 0, device)
