# SPDX-License-Identifier: Apache-2.0
"""fused_harmonics: the gradient of the colours' harmonics is never written; the update makes it on its way.

Idea: a camera sees a Gaussian from one direction, so the gradient of its 48 coefficients is an outer product of 16 numbers, the basis in
that direction, and three, the gradient of its colour. The plain way writes all 48 in the backward pass and reads them again in the
update: 192 bytes each way. Here the backward pass leaves the direction and the colour's gradient, 24 bytes, and a block of the update
makes the basis of its Gaussians once and multiplies as it goes through their coefficients in the order of memory.
Nothing else asks for these gradients, so the update follows at once, within the backward pass, on a stream of its own where side_streams
gives it one: it waits for memory while the rest of the backward pass computes.
Source: none that we know of; the gradient is that of 3DGS (Kerbl et al. 2023).
Gain, code before and after, limits: docs/options/fused_harmonics.md.
Several ranks exchange the two factors of all their images, and the update adds up the products (nurec_lite/training/exchange.py).
Limits: for steps of one image, or of 16 at most on several ranks (of degree 3; beyond, an average of gradients is smaller). Gradients
are written as without the option for several images of one process (batch), where poses need the gradient of the eye, and for renders
outside of a step; where a parameter gets both, they are added up. With an option that replaces the exchange, this one is off. On a CPU
all Gaussians go through the renderer, not only those that some tile looks at. Class exact: the same numbers, up to rounding.
"""

import logging
from dataclasses import replace
from functools import partial

from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.native.rank1_sh import DeferredShGrad, Rank1ShGrad, Update
from nurec_lite.opt.all.fused_adam import FusedAdam
from nurec_lite.training.exchange import Exchange, Factors, form_of
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import HARMONICS, IMAGES, Learn, Stages, uncompiled
from nurec_lite.training.state import StepResult, TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("fused_adam", "fused_colour")
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def handing_over(inner: Learn, handover: DeferredShGrad, exchange: Exchange | None) -> Learn:
    """Wraps `learn`: in a step with one image, or of several ranks, the gradient of harmonics goes by the handover."""

    def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        g, images = state.scene.gaussians, len(shots.images)
        if exchange is not None:
            update = after_exchange(stages, state, exchange)
            fewer_bytes = 0 < images * stages.ranks <= 1 + g.sh_rest.shape[1]  # than an average of the coefficients
            if update is None or not fewer_bytes:
                return inner(stages, state, shots)
            with handover.expect(g.sh0, g.sh_rest, update=update, views=images, all_or_none=True):
                return inner(stages, state, shots)
        if images != 1:
            return inner(stages, state, shots)
        with handover.expect(g.sh0, g.sh_rest, update=at_once(stages, state)):
            return inner(stages, state, shots)

    return learn


def at_once(stages: Stages, state: TrainState) -> Update | None:
    """The update, concurrent with the rest of the backward pass; None: it cannot be made before others."""
    update = stages.update.optimize
    if not isinstance(update, FusedAdam):
        return None
    return lambda outer: stages.streams.run(HARMONICS, partial(update.early, state), outer, state.failed)


def after_exchange(stages: Stages, state: TrainState, exchange: Exchange) -> Update | None:
    """The update with the gradients of all ranks, on a stream of its own: the backward pass and other messages go on meanwhile. A CPU has
    no streams, and updates at the end: until then a step can be left out, if a rank is lost."""
    update = stages.update.optimize
    if not isinstance(update, FusedAdam):
        return None

    def exchanged(
        form: Factors, harmonics: tuple[Tensor, Tensor], message: Tensor
    ) -> tuple[Rank1ShGrad | None, Tensor]:
        whole, failed, entries = exchange.gather(state, form, harmonics, message)
        if not message.is_cuda:
            return whole, entries
        update.early(state, whole, failed)
        return None, entries

    def begun(own: Rank1ShGrad) -> Rank1ShGrad | None:
        # the images have further work, and their next kernel would fill the GPU: the message is packed before it
        form = form_of(state, own)
        inputs = form, own, state.failed, state.image_lists
        message = stages.streams.run(IMAGES, exchange.packed, *inputs)
        whole, entries = stages.streams.run(HARMONICS, exchanged, form, own.harmonics, message)
        if stages.device == "cuda":  # CPUs keep the order of the seed
            state.entries = entries
        return whole

    return begun


def apply(stages: Stages) -> Stages:
    exchange = stages.update.reduce if isinstance(stages.update.reduce, Exchange) else None
    if exchange is None and (by := stages.changes.claims.get("reduce")) is not None:
        log.warning("fused_harmonics is off: '%s' exchanges the gradients that it would not write", by)
        return stages
    update, handover = stages.update.optimize, DeferredShGrad()
    if not isinstance(update, FusedAdam):
        raise OptionError("option 'fused_harmonics' changes the update of 'fused_adam'; name 'fused_adam' first")
    return stages.planned("fused_harmonics", rank1_sh=handover).wrap(
        learn=lambda inner: handing_over(inner, handover, exchange),
        optimize=lambda _: replace(update, handover=handover),
        reduce=lambda inner: inner,  # so that an option that replaces it must come first
    )
