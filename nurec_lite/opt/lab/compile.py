# SPDX-License-Identifier: Apache-2.0
"""compile: the torch operators of a step go through torch.compile, which fuses many kernels into few.

Idea: activations, view directions, the sky and noise are dozens of elementwise kernels, and each reads and writes all of its tensors.
The compiler fuses them, forward and backward. Every function is taken whole: one that it could take only in parts would be an error.
A size that changes becomes a symbol, so that growing and relocation compile once more and never again.
Source: PyTorch 2 (Ansel et al. 2024).
Gain, code before and after, limits: docs/options/compile.md.
Limits: compiling takes a while at the first step, and once more after the first relocation, which torch's own cache on disk shortens the
next time; needs Triton on a GPU and a C++ compiler on a CPU. Nothing is compiled for rendering without training. Sums over all
Gaussians or rays stay torch's own: with sizes that are symbols the compiler gives them to one block, and the means of the regularisers
alone take 1.5 ms. Class exact: the same formulas, rounded in another order.
"""

import importlib.util
import logging
import time
from functools import partial

from nurec_lite.base.compiled import compiled
from nurec_lite.training import baseline
from nurec_lite.training.density import sgld_noise
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Learn, Stages, uncompiled
from nurec_lite.training.state import StepResult, TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    if stages.device == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile needs the package triton on a GPU, which comes with torch for CUDA"
    return uncompiled(stages)


def timed(inner: Learn) -> Learn:
    """Wraps `try_step`: logs the time of the first step, which compiles everything."""
    first = [True]

    def try_step(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        begin = time.perf_counter()
        result = inner(stages, state, shots)
        if first:
            first.clear()
            log.info("compile: the first step took %.1f s, nearly all of it to compile", time.perf_counter() - begin)
        return result

    return try_step


def apply(stages: Stages) -> Stages:
    noise = partial(baseline.noise, shift=compiled(sgld_noise, differentiated=False))
    planned = stages.planned("compile", compile_rest=True)
    if "noise" not in stages.changes.claims:
        planned = planned.swap("compile", noise=noise)
    if "activate" not in stages.changes.claims:
        planned = planned.swap("compile", activate=compiled(stages.render.activate))
    return planned.wrap(try_step=timed)
