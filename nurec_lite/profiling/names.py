# SPDX-License-Identifier: Apache-2.0
"""Names of kernels for people. Whole names, which identify, stay in summary.json and kernels.json."""

import re

_SPACES = re.compile(r"\b(at_cuda_detail|at|native|c10|cuda|std|detail|CUB_\w+)::")
_OWN = re.compile(r"\bnurec::(?:cuda::)?")  # which ncu leaves out where all kernels that it measured have it
_ANONYMOUS = re.compile(r"(\(anonymous namespace\)|<?\bunnamed>)::")  # ncu's CSV loses a bracket
_CASTS = re.compile(r"\((?:bool|int|long|unsigned int|unsigned long|unsigned long long)\)(?=-?\d)")


def short_name(
    name: str,  # such as void blend<3>(Params, int)
) -> str:  # blend<3>
    """Name without result, arguments, our own and anonymous namespaces; template arguments stay."""
    plain = _OWN.sub("", _ANONYMOUS.sub("", name.strip()))
    depth, end = 0, len(plain)
    for k, letter in enumerate(plain):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not plain[:k].endswith("operator"):
            end = k
            break
    return plain[:end].removeprefix("void ").strip() or name


def readable(
    name: str,
    longest: int = 80,  # letters
) -> str:
    """Name also without common namespaces and the types of constants, cut if it is too long."""
    text = _CASTS.sub("", _SPACES.sub("", short_name(name)))
    return text if len(text) <= longest else text[: longest - 1] + "…"
