# SPDX-License-Identifier: Apache-2.0
"""The GPU's context, made by a thread while torch is imported: both take a second, and neither needs the other.

torch uses the primary context of a device, which CUDA makes once for a process.
"""

import ctypes
import os
from collections.abc import Sequence
from threading import Thread

VERBS = ("train", "evaluate", "render")  # that compute on a GPU in their own process
LIBRARY = "libcuda.so.1"


def begin_device(
    command: Sequence[str],  # words of the command line
) -> Thread | None:  # None: the command asks for no GPU
    ordinal = ordinal_of(command)
    if ordinal is None:
        return None
    if os.environ.get("WORLD_SIZE", "1") != "1":
        separate_streams()
    thread = Thread(target=_make_context, args=(ordinal,), name="early device")  # an exit meanwhile would crash
    thread.start()
    return thread


def separate_streams() -> None:
    """Gives streams of a rank queues of their own, before CUDA makes the context. CUDA has 8 queues by default, and a rank has more
    streams. Copies of frames then wait for steps in the same queue, 30 ms each (benchmarks/LOG.md). The user's own value stays."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def ordinal_of(
    command: Sequence[str],  # words of the command line
) -> int | None:  # None: it asks for no GPU
    """Number of the device that the command will use."""
    if not any(word == f"nurec_lite.{verb}" for word in command for verb in VERBS) or {"--help", "-h"} & set(command):
        return None
    named = [word.removeprefix("device=") for word in command if word.startswith("device=")]
    kind, _, number = (named[-1] if named else "auto").partition(":")
    if kind not in ("auto", "cuda"):
        return None
    return int(number) if number.isdecimal() else int(os.environ.get("LOCAL_RANK", "0"))


def _make_context(ordinal: int) -> None:
    """Does nothing without a driver or a device: torch then names the missing part."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0:
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
