# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step, averaged over the ranks that train together, in few messages that overlap with other work.

Idea: all ranks hold all Gaussians, and each renders its share of the step's views. Most numbers of a Gaussian are harmonics, and their
gradient is a sum of products of two factors, one a view: with fused_harmonics ranks gather the factors of all views, 6 numbers a
Gaussian and view instead of 48 a Gaussian, and every rank multiplies them in its update. This message goes during the backward pass, and
the update of harmonics follows it while the message of all other gradients goes. Without fused_harmonics the gradients of harmonics are a
message of their own; a hook sends it as soon as autograd has finished them. Each message has the flag that a list overflowed. Every rank
makes the same update. In a step without sweeps only regularisers differentiate the lidar's numbers, to the same gradients on all ranks:
these stay out of messages.
The first message also says how long the lists of each image are, for nurec_lite/training/partners.py.
On a long drive most Gaussians are out of all views. Before a step renders, ranks join the flags of the blocks that their views may see
(nurec_lite/native/operators/visible_blocks.py), and both messages hold the rows of these blocks alone. One of the two factors, a direction
of view, then goes for moving Gaussians alone: ranks make those of static ones from the eyes.
Source: overlapping buckets of PyTorch DDP (Li et al. 2020); gathered factors: none that we know of.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.base.ranks import RankError, Ranks
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.block_messages import BlockMessage
from nurec_lite.training.factor_messages import BlockFactors, WholeFactors
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Learn, Stages
from nurec_lite.training.state import ListUse, StepResult, TrainState
from nurec_lite.training.whole_messages import EarlyMessage, Message

Factors = WholeFactors | BlockFactors
HARMONICS = ("sh0", "sh_rest")  # parameters of the first message
LIDAR = "lidar_logits"  # their gradients without sweeps are those of regularisers


class Exchange:
    """Replaces `reduce` of the baseline."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._parameters: list[Tensor] = []  # of the messages
        self._harmonics: EarlyMessage | None = None
        self._others: Message | None = None
        self._of_gaussians: list[Tensor] = []  # those of the parameters with a row a Gaussian
        self._equal = 0  # last parameters of the second message with equal gradients on all ranks, without sweeps
        self._sweeps = True  # of the present step
        self._gathered = 0  # bytes of its first message
        self._bytes: dict[bool, int] = {}  # of the last step with sweeps and without, which the host ran or recorded

    def around(self, inner: Learn) -> Learn:
        """Wraps `learn`: notes whether a step has sweeps."""

        def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
            self._sweeps = bool(shots.sweeps)
            return inner(stages, state, shots)

        return learn

    def __call__(self, state: TrainState) -> None:
        self._prepare(state)
        with span("exchange"), self._or_undone(state):
            state.failed = self._exchanged(state)

    @contextmanager
    def _or_undone(self, state: TrainState) -> Iterator[None]:
        """Raises RankError where another rank is lost; nothing is updated yet."""
        try:
            with self._ranks.with_others():
                yield
        except RankError:
            state.optimizer.zero_grad(set_to_none=True)
            state.consistent = True
            raise

    def _prepare(self, state: TrainState) -> None:
        """Makes messages for the present parameters."""
        named = {group["name"]: group["params"][0] for group in state.optimizer.param_groups}
        if self._others is not None and _same(self._parameters, named.values()):
            return
        self.close()
        self._parameters, share = list(named.values()), 1 / self._ranks.size
        self._harmonics = EarlyMessage([p for name, p in named.items() if name in HARMONICS], share)
        others = sorted((name for name in named if name not in HARMONICS), key=lambda name: name == LIDAR)
        self._others = Message([named[name] for name in others], share)
        self._equal = int(LIDAR in named)
        self._of_gaussians = [p for name, p in named.items() if name in Gaussians.trained()]

    def _exchanged(self, state: TrainState) -> Tensor | None:
        assert self._harmonics is not None
        early = self._harmonics
        if early.work is None and early.wanted:
            early.send(None)
        others = self._sent(state)
        sent = others.sent.nbytes + (early.sent.nbytes if early.work is not None else 0)
        self._bytes[self._sweeps] = self._gathered + 2 * (self._ranks.size - 1) * sent // self._ranks.size
        self._gathered = 0
        if early.work is not None:
            early.receive(None)
        return others.receive(state.failed)

    def _sent(self, state: TrainState) -> Message | BlockMessage:
        """Sends the second message and returns it."""
        assert self._others is not None
        count = len(self._others.parameters) - (0 if self._sweeps else self._equal)
        if state.visible_blocks is None:
            self._others.send(state.failed, count)
            return self._others
        parameters = self._others.parameters[:count], self._of_gaussians
        message = BlockMessage(*parameters, state.visible_blocks, state.blocks_sent)
        message.send(1 / self._ranks.size, state.failed)
        return message

    def join(
        self,
        state: TrainState,
        flags: Tensor,  # [...] uint8 of blocks
    ) -> None:
        """Raises the flags that any rank has raised."""
        with span("exchange"), self._or_undone(state):
            torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX, async_op=True).wait()

    def packed(self, form: Factors, own: Rank1ShGrad, failed: Tensor | None, lists: Sequence[ListUse]) -> Tensor:
        """The message of `gather`."""
        return form.pack(own, 1 / self._ranks.size, failed, entries_of(lists, own.colours.device))

    def gather(
        self,
        state: TrainState,
        form: Factors,
        harmonics: tuple[Tensor, Tensor],  # the parameters
        message: Tensor,  # of this rank
    ) -> tuple[Rank1ShGrad, Tensor, Tensor]:
        """The gradient of harmonics over the views of all ranks; [] not 0 if the step of any failed; and `entries`."""
        found = message.new_empty(self._ranks.size, *message.shape)
        with span("exchange", within=BACKWARD), self._or_undone(state):
            torch.distributed.all_gather_into_tensor(
                found.flatten(0, 1), message, async_op=True
            ).wait()  # on the stream of all messages
        self._gathered = (self._ranks.size - 1) * message.nbytes
        received = form.unpack(found)
        whole = Rank1ShGrad(harmonics, received.directions, received.colours)
        return whole, received.failed, received.entries

    @property
    def bytes_a_step(self) -> int:
        """Bytes that a rank sends in a step, as messages go around a ring, and as many that it receives: of steps with sweeps, if there are
        any, since they send more."""
        return max(self._bytes.values(), default=0)

    def close(self) -> None:
        if self._harmonics is not None:
            self._harmonics.close()
        self._harmonics = self._others = None


def form_of(state: TrainState, own: Rank1ShGrad) -> Factors:
    """The form of this step's message."""
    if state.visible_blocks is None:
        return WholeFactors()
    means = state.scene.gaussians.means.detach()
    return BlockFactors(means, len(own.directions), state.visible_blocks, state.blocks_sent, state.directions_sent)


def entries_of(lists: Sequence[ListUse], device: torch.device) -> Tensor:
    """Returns the entries [len(lists)] int64 that the lists need."""
    full = [
        torch.full((1,), listed.capacity, device=device) if listed.needed is None else listed.needed for listed in lists
    ]
    return full[0] if len(full) == 1 else torch.cat(full)


def _same(some: list[Tensor], others: Iterable[Tensor]) -> bool:
    return {id(p) for p in some} == {id(p) for p in others}
