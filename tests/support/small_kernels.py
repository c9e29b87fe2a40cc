# SPDX-License-Identifier: Apache-2.0
"""A stand-in for kernels/ of two files, which compile in a moment; and programs that stand in for compilers."""

import ctypes
import shutil
import stat
from pathlib import Path

ANSWER = 'extern "C" int nurec_answer() { return ANSWER_OF_HEADER; }\n'
COMPILER = shutil.which("g++") or ""


def small_kernels(folder: Path) -> Path:
    root = folder / "kernels"
    for name, text in {
        "first/one_cpu.cpp": '#include "one.h"\n' + ANSWER,
        "first/one.h": "#define ANSWER_OF_HEADER 42\n",
        "first/torch_two.cpp": "int two() { return 2; }\n",
        "first/torch_two_devices.cpp": "#ifdef NUREC_CUDA\n#error only where nvcc is\n#endif\n",
        "second/three.cu": "#error only where nvcc is\n",
        "math/four.cuh": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).nurec_answer()


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
