# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's command line profilers: where they lie, which version they are, and how they are run."""

import re
import shutil
import subprocess
from pathlib import Path

from nurec_lite.profiling.errors import ProfileError

PLACES = {  # patterns of absolute paths, in this order after PATH
    "nsys": (
        "/usr/local/cuda*/bin/nsys",
        "/usr/local/cuda*/nsight-systems-*/bin/nsys",
        "/opt/nvidia/nsight-systems*/*/bin/nsys",
        "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    ),
    "ncu": (
        "/usr/local/cuda*/bin/ncu",
        "/usr/local/cuda*/nsight-compute-*/ncu",
        "/opt/nvidia/nsight-compute/*/ncu",
    ),
}
OLDEST = {"nsys": (2022, 4), "ncu": (2022, 3)}  # the first that know sm_90
PRODUCT = {"nsys": "NVIDIA Nsight Systems", "ncu": "NVIDIA Nsight Compute"}
_WITHOUT = {"nsys": "use tool=torch, which needs no other program", "ncu": "use tool=torch, which has no counters"}


def find_tool(
    name: str,  # nsys or ncu
) -> Path:
    """The program on PATH, else the newest one where NVIDIA's packages usually put it."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    for place in PLACES[name]:
        paths = [p for p in Path("/").glob(place.lstrip("/")) if shutil.which(str(p))]
        if paths:
            return max(paths, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p))])
    raise ProfileError(
        f"{name} is neither on PATH nor in {' or '.join(PLACES[name])}; install {PRODUCT[name]} "
        f"(package {PRODUCT[name].lower().replace(' ', '-')}, or the CUDA toolkit) or put its folder on PATH, "
        f"or {_WITHOUT[name]}"
    )


def tool_version(path: Path) -> tuple[int, ...]:
    """Version numbers from `--version`, such as (2025, 3, 1, 90)."""
    try:
        ended = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{path} cannot be run ({error}); install it again or put another one on PATH") from error
    found = re.search(r"version (\d+(?:\.\d+)+)", ended.stdout + ended.stderr, re.IGNORECASE)
    if found is None:
        lines = (ended.stdout + ended.stderr).strip().splitlines() or ["nothing"]
        raise ProfileError(
            f"{path} --version says '{lines[0]}' and no version; install it again or put another on PATH"
        )
    return tuple(int(part) for part in found[1].split("."))


def version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_version(
    name: str,  # nsys or ncu
    path: Path,
) -> tuple[int, ...]:  # the version
    """Returns the version of a program; ProfileError if it is too old for this package."""
    version = tool_version(path)
    if version < OLDEST[name]:
        raise ProfileError(
            f"{path} is version {version_text(version)}, but {version_text(OLDEST[name])} or newer is needed; "
            f"install a newer {PRODUCT[name]} or put one on PATH, or {_WITHOUT[name]}"
        )
    return version
