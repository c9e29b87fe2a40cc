# SPDX-License-Identifier: Apache-2.0
"""Messages of ncu when it cannot measure, and their remedies."""

import re

from nurec_lite.profiling.errors import ProfileError

_NO_COUNTERS = "or use tool=torch, which needs no counters"
_KNOWN = {  # a message of ncu -> its meaning and remedy
    "ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters": "the driver keeps the GPU's counters "
    "for administrators; run as root or with CAP_SYS_ADMIN (drivers from 565 on: CAP_PERFMON), start a container with "
    "--cap-add=SYS_ADMIN, or open them to all by the line 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in a file of "
    f"/etc/modprobe.d, a new initramfs and a reboot, {_NO_COUNTERS}",
    "stub libcuda": "it found no CUDA driver, or only the stub that is for linking; install NVIDIA's driver, and take the toolkit's "
    "folder lib64/stubs off LD_LIBRARY_PATH, or use tool=torch",
    "driver resource was unavailable": "something else holds the GPU's counters, often NVIDIA's monitoring; pause it by dcgmi "
    "profile --pause (and --resume afterwards), or end the other profiler, and try again",
    "(?i)(incompatible|insufficient) (cuda )?driver|driver is not compatible": "the driver and ncu do not match; install a driver "
    f"or an NVIDIA Nsight Compute as new as the other, {_NO_COUNTERS}",
    "LibraryNotLoaded": "the driver's library for counters cannot be loaded, as in sandboxed containers; run on the host or in "
    f"an ordinary container, {_NO_COUNTERS}",
    "(?i)unsupported (gpu|device)|not supported (on|for|in|by) ": "this ncu does not measure this GPU here; install an NVIDIA Nsight "
    "Compute with this GPU in its ncu --list-chips (older GPUs need an older one; under WSL the Windows driver must allow counters), "
    f"{_NO_COUNTERS}",
    "(?i)confidential computing|protected memory": "the GPU runs in a protected mode, where nothing can be measured; leave that "
    f"mode, {_NO_COUNTERS}",
    "(?i)failed to find metric": "this GPU or this ncu does not have that counter; install a newer NVIDIA Nsight Compute, or use "
    "a GPU from Volta on",
    "(?i)option '--section \\S+' did not match|unrecogni[sz]ed option|invalid option": "this ncu does not know what is asked of "
    "it; install another NVIDIA Nsight Compute, 2022.3 or newer",
    "Failed to (save|write) .*report|Unable to write to file": "it cannot write its report; free some space or choose another "
    "folder by out=FOLDER",
}  # fmt: skip


def explained(
    output: str,
    alone: bool = False,  # the profiled process did not begin, so that all lines are ncu's
) -> ProfileError | None:
    """The first error, else warning, of ncu that is known, and its meaning. Lines of the profiled process do not begin with ==."""
    lines = [line for line in output.splitlines() if alone or line.startswith("==")]
    for line in sorted(lines, key=lambda line: not line.startswith("==ERROR==")):
        for pattern, meaning in _KNOWN.items():
            if re.search(pattern, line):
                said = re.sub(r"^==\w+==\s*", "", line).strip()
                return ProfileError(f"ncu says '{said[:160]}': {meaning}")
    return None
