# SPDX-License-Identifier: Apache-2.0
"""The programs that compile kernels: ninja, the C++ compiler that CXX names, nvcc, and the compiler for it that CUDAHOSTCXX names."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from nurec_lite.base.errors import UserError


class BuildError(UserError):
    """The kernels cannot be compiled here; the message names the missing part."""


@dataclass(frozen=True)
class Toolchain:
    ninja: str
    compiler: tuple[str, ...]  # words of its command line, such as (/usr/bin/ccache, /usr/bin/g++, -m64)
    nvcc: str | None  # None: kernels for the CPU alone
    architecture: str  # compute capability of the GPU that is there, such as 90; empty without
    host: tuple[str, ...] = ()  # compiler that nvcc calls, with its flags

    @property
    def cuda_home(self) -> Path:
        assert self.nvcc is not None
        return Path(self.nvcc).resolve().parents[1]

    @property
    def cuda_lib(self) -> Path:
        """The toolkit's static libraries; wheels have them in lib, a system's toolkit in lib64."""
        return self.cuda_home / ("lib" if (self.cuda_home / "lib/libcudart_static.a").is_file() else "lib64")


def find_tools(architecture: str) -> Toolchain:
    """Finds the tools; the environment's own ninja first, which exists even if the environment was not activated."""
    own = Path(sys.executable).parent / "ninja"
    ninja = str(own) if own.is_file() else shutil.which("ninja")
    if ninja is None:
        raise BuildError("ninja, which compiles the kernels, is missing: pip install ninja, or run with ops=reference")
    compiler = _command(_variable("CXX") or "g++")
    if not architecture:
        return Toolchain(ninja, compiler, None, architecture)
    host = _command(_variable("CUDAHOSTCXX")) if _variable("CUDAHOSTCXX") else compiler
    return Toolchain(ninja, compiler, _find_nvcc(), architecture, host[_programs(host) - 1 :])


def _variable(name: str) -> str:
    """A variable of the environment; an empty one counts as not set."""
    return os.environ.get(name, "").strip()


def _command(
    given: str,  # a path, or words for a shell: launchers such as ccache, the compiler, its flags
) -> tuple[str, ...]:  # words, programs by their paths
    try:
        words = [given] if shutil.which(given) else shlex.split(given)
    except ValueError:  # unclosed quotes
        words = [given]
    count = _programs(words)
    for n, word in enumerate(words[:count]):
        path = shutil.which(word)
        if path is None and "=" not in word:  # as env takes them
            spaces = f"; put quotes around a path with spaces in {given}" if " " in given else ""
            raise BuildError(
                f"the C++ compiler {word} is missing{spaces}: install g++ 11 or newer (apt-get install g++), "
                "or run with ops=reference"
            )
        words[n] = path or word
    return tuple(words)


def _programs(words: Sequence[str]) -> int:
    """Number of words before the flags; the last of these is the compiler."""
    return max(1, next((n for n, word in enumerate(words) if word.startswith("-")), len(words)))


def _find_nvcc() -> str:
    """Path of nvcc: by CUDA_HOME or CUDA_PATH, else of pip's wheels, else of the system's toolkit; BuildError without one."""
    named = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    homes = (*named, *_wheels(), Path("/usr/local/cuda"))
    nvcc = next((str(home / "bin/nvcc") for home in homes if (home / "bin/nvcc").is_file()), shutil.which("nvcc"))
    if nvcc is None:
        cuda = torch.version.cuda
        raise BuildError(
            "nvcc, which compiles the kernels for the GPU, is missing: "
            f"pip install 'nvidia-cuda-nvcc=={cuda}.*' 'nvidia-cuda-cccl=={cuda}.*', or install the CUDA toolkit {cuda} "
            "and set CUDA_HOME, or run with device=cpu or ops=reference"
        )
    return nvcc


def _wheels() -> list[Path]:
    """Toolkit folders of the wheels nvidia-cuda-nvcc, -nvvm, -crt, -cccl and -runtime of torch's CUDA."""
    spec = find_spec("nvidia")
    major = str(torch.version.cuda).partition(".")[0]
    return [Path(place) / f"cu{major}" for place in (spec and spec.submodule_search_locations) or ()]


def host_flags(tools: Toolchain) -> list[str]:
    """nvcc's flags for the host compiler."""
    compiler, *flags = tools.host
    return ["-ccbin", compiler, *(f"-Xcompiler={flag}" for flag in flags)]
