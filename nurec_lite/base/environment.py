# SPDX-License-Identifier: Apache-2.0
"""The machine of a run."""

import os
import platform
from functools import cache

import torch

from nurec_lite.base.bytecode import compiled_anew
from nurec_lite.base.control_groups import cores_allowed, memory_left
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.threads import cores
from nurec_lite.base.version import UNKNOWN, answer, commit

HOST_THREADS = 8  # of the host with a GPU: decoding a batch gains little from more (benchmarks/LOG.md)


def choose_device(name: str) -> torch.device:
    """The device of that name. With a GPU the host only decodes and copies, in operators of some 100 000 numbers that would each wake a
    thread a core: it gets HOST_THREADS at most."""
    device = _device(name)
    keep_to_cores(HOST_THREADS if device.type == "cuda" else None)
    return device


def keep_to_cores(most: int | None = None) -> None:
    """Gives torch no more threads than that, nor than the cores of a container, unless OMP_NUM_THREADS is set."""
    limits = [n for n in (most, None if cores_allowed() is None else cores()) if n is not None]
    if limits and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(min(torch.get_num_threads(), *limits))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"device={name}, but torch sees no CUDA device; use device=cpu, or install a driver and a CUDA build of torch"
        )
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name} is unknown; use auto, cpu, cuda or cuda:N") from error


def free_memory(device: torch.device) -> int:
    """Free bytes of the GPU, with those that torch keeps for later. Or free bytes of the host, where the file cache counts as used; in a
    container no more than it may take."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    free, left = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), memory_left()
    return free if left is None else min(free, left)


def device_name(device: torch.device) -> str:
    if device.type != "cuda":
        threads = torch.get_num_threads()
        return f"cpu, {threads} thread{'s' * (threads != 1)}"
    try:
        return torch.cuda.get_device_name(device)
    except (RuntimeError, AssertionError):  # of a driver that has failed
        return UNKNOWN


def environment(device: torch.device) -> dict[str, str]:
    """Hardware and versions that figures depend on, for reports."""
    found = {
        "device": device_name(device),
        "cores": str(cores()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
    }
    if compiled_anew() is not None:
        found["bytecode"] = "not kept, so each start takes longer"
    return found | ({"cuda": str(torch.version.cuda), "driver": driver()} if device.type == "cuda" else {})


@cache  # the program takes a tenth of a second
def driver() -> str:
    """Version of the GPU's driver, as nvidia-smi says it."""
    said = answer(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return next(iter((said or "").split()), UNKNOWN)
