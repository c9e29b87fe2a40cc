# SPDX-License-Identifier: Apache-2.0
"""Kernels that the first scene and the first step need, loaded by threads while the configuration is composed and the capture is read.

CUDA loads each of torch's kernels when it is first used, without Python's lock, and the libraries of linear algebra, too: together they
take longer than the scene itself. One thread makes a tiny scene of the bundled street. Another one loads the libraries and the largest
kernels while the first one reads the street, as the loads of several threads take turns. A third one loads kernels of a step while the
first scene waits for decoded frames.
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
FEW = DataConfig(frames=[0, 2], split="half")  # "interp" wants more moments
TINY = ModelConfig(points=1000, raised_points=100, far_points=100, sh_degree=3)  # only the background is thinned
ROWS = 10_000  # vectors of a product, as many as points of a sweep
FEW_ROWS = 1000  # points of an actor: torch sorts few numbers by kernels of their own
log = logging.getLogger(__name__)


_begun: list[Thread] = []
_later: list[Thread] = []


def begin_first_scene(
    command: Sequence[str],  # words of the command line
) -> None:
    """Does nothing for a command that uses no GPU."""
    ordinal = ordinal_of(command)
    if ordinal is None or not torch.cuda.is_available():
        return
    device = choose_device(f"cuda:{ordinal}")  # sets the number of threads, which pools of this thread would keep
    for work in (make_tiny_scene, load_largest):
        thread = Thread(target=work, args=(device,), name="early scene")
        _begun.append(thread)
        thread.start()
    _later.append(Thread(target=load_step, args=(device,), name="early step"))


def end_first_scene() -> None:
    """Waits for the threads: everything that they still load is needed next. Then it begins the thread for kernels of a step."""
    while _begun:
        _begun.pop().join()
    while _later:
        _later.pop().start()


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


def load_largest(device: torch.device) -> None:
    """Loads the libraries and kernels with the longest loads. A failure costs time alone: the run loads them itself."""
    try:
        multiply(device)
        run_operators(device)
    except Exception:
        log.debug("no library was loaded early", exc_info=True)


def multiply(device: torch.device) -> None:
    """Loads the library of linear algebra by products as a scene has them."""
    for dtype in (torch.float32, torch.float64):
        vectors = torch.ones(ROWS, 3, dtype=dtype, device=device)
        torch.mm(vectors, vectors[:3])


def run_operators(device: torch.device) -> None:
    """Runs operators of a scene, in about its order, that take 10 ms and more to load on one H200."""
    numbers = torch.zeros(ROWS, dtype=torch.int64, device=device)
    xyz = torch.ones(ROWS, 3, dtype=torch.float64, device=device)
    inside = ((xyz > 0) & (xyz == 1)).all(-1)
    floors = (-xyz).abs().sqrt().floor().clamp(min=0)
    numbers.scatter_add(0, numbers, numbers).scatter_reduce(0, numbers, numbers, "amax")
    floors[numbers].sum(0), xyz.amin(0), xyz.amax(0), numbers.max(), inside.sum(), torch.nonzero(inside)
    for some in (numbers, numbers[:FEW_ROWS]):
        some.sort(stable=True)
    torch.atan2(xyz.float(), xyz.float()), xyz.argmax(-1)


def load_step(device: torch.device) -> None:
    """Loads kernels that a step of the training needs, and a scene does not. A failure costs time alone."""
    try:
        values, numbers = torch.ones(ROWS, 3, device=device), torch.zeros(ROWS, dtype=torch.int64, device=device)
        torch.zeros_like(values).index_add(0, numbers, values)
        torch.linalg.vector_norm(values, dim=-1), values.pow(2), values.mean(), values.mean(0)
        values.exp(), values.sigmoid(), torch.dot(values[:, 0], values[:, 1])
        times = torch.arange(4.0, dtype=torch.float64, device=device)
        torch.searchsorted(times, times), torch.nn.functional.mse_loss(values, values)
        torch.minimum(times[0], times[-1])  # an odd address: the kernel for such is the one that a step uses
    except Exception:
        log.debug("no kernel of a step was loaded early", exc_info=True)


def tiny_scene(device: torch.device) -> Scene:
    return make_scene(open_capture(FEW), TINY, 0, device)
