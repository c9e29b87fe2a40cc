# SPDX-License-Identifier: Apache-2.0
"""Processes that train one scene together: their agreements, their messages, and the end of all when one of them ends.

`present()` is a `Ranks` of one process, unless `begin` has found others. Numbers of the host go
through gloo, tensors of a GPU through NCCL.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from nurec_lite.base.alive import alive, started
from nurec_lite.base.early_device import separate_streams
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.place import Place, place_of
from nurec_lite.base.texts import printable

T = TypeVar("T")
MEET = timedelta(seconds=300)  # for all ranks to come
LOOK = 0.5  # seconds between two looks at the other ranks
GRACE = 2.0  # seconds for a rank that has lost another one to end by itself
END = 2  # exit status
BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # torchrun is the parent of ranks with this variable
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"  # torchrun keeps its store when it restarts ranks, with addresses of those that have ended
_CAUSE, _PRINTED = "end/cause", "end/printed"  # in the store


class RankError(UserError):
    """Another rank has ended, so that this one cannot go on."""


class Ranks:
    """One process alone. Nothing is exchanged."""

    place = Place()
    remedy: Callable[[], str] = staticmethod(lambda: "start them again")  # how to go on after the end of a rank

    @property
    def size(self) -> int:
        return self.place.size

    @property
    def first(self) -> bool:
        """Whether this is the one rank that prints and writes."""
        return self.place.first

    @property
    def orphaned(self) -> bool:
        """Whether torchrun was killed: nobody could stop this rank any more."""
        return False

    def agree(self, *values: float) -> tuple[float, ...]:
        """The largest of the values that the ranks give, one by one."""
        return values

    def share(self, value: T) -> T:
        """The value that the first rank gives."""
        return value

    def await_connection(self) -> None:
        """Waits until the GPUs are connected, before the first message: all ranks send theirs in one order."""

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Writes the tensors of the first rank into those of the others."""

    def ended(self) -> str | None:
        """Says which rank has ended, and why if it said so; None if none has."""
        return None

    def fail(self, sentence: str | None) -> None:
        """Ends this process, and so all of them, with one sentence: this one, or that of another rank which has ended before."""

    @contextmanager
    def with_others(self) -> Iterator[None]:
        """Raises RankError in place of torch's errors in the block if another rank is gone."""
        yield

    def leave(self) -> None:
        """Ends the work of all ranks in good order; the first rank goes on alone."""


class Together(Ranks):
    """This rank among the others."""

    def __init__(self, place: Place, store: Any) -> None:
        self.place, self._store = place, store
        self._parent = os.getppid() if BY_TORCHRUN in os.environ else None
        self._left = threading.Event()
        self._peers: dict[int, tuple[int, int]] = {}  # process and its start, of each other rank on this host
        self._connecting = threading.Thread(target=_connect, daemon=True)

    @property
    def orphaned(self) -> bool:
        return self._parent is not None and os.getppid() != self._parent

    def watch(self) -> None:
        """Begins to look whether the others run."""
        me = (self.place.rank, socket.gethostname(), os.getpid(), started(os.getpid()) or 0)
        found = self._gathered(me)
        self._peers = {rank: (pid, start) for rank, host, pid, start in found if host == me[1] and rank != me[0]}
        threading.Thread(target=self._look, daemon=True).start()

    def connect(self) -> None:
        """Begins to connect the GPUs, which takes NCCL a second, while this rank reads its capture."""
        self._connecting.start()

    def await_connection(self) -> None:
        if self._connecting.ident is not None:
            self._connecting.join()

    def _gathered(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.size
        with self._exchanging():
            torch.distributed.all_gather_object(found, value)
        return found

    def agree(self, *values: float) -> tuple[float, ...]:
        known = torch.tensor(values, dtype=torch.float64)
        with self._exchanging():
            torch.distributed.all_reduce(known, torch.distributed.ReduceOp.MAX)
        return tuple(known.tolist())

    def share(self, value: T) -> T:
        held: list[Any] = [value]
        with self._exchanging():
            torch.distributed.broadcast_object_list(held, 0, device=torch.device("cpu"))
        return held[0]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        with self._exchanging():
            works = [torch.distributed.broadcast(tensor, 0, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()

    @contextmanager
    def with_others(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if (why := self._awaited_end()) is None:
                raise
            raise RankError(why) from error

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Block for an exchange alone; RankError if it fails, since other ranks are the cause."""
        try:
            yield
        except RuntimeError as error:
            raise RankError(self._awaited_end() or f"ranks lost each other ({str(error).splitlines()[0]})") from error

    def _awaited_end(self) -> str | None:
        """Returns the result of `ended`, after a moment where needed: a connection may break before its process has ended."""
        deadline = time.monotonic() + GRACE
        while (why := self.ended()) is None and time.monotonic() < deadline:
            time.sleep(LOOK / 10)
        return why

    def ended(self) -> str | None:
        with suppress(RuntimeError):  # the store ends with torchrun, or with the rank that has it
            if self._store.check([_CAUSE]):
                return str(self._store.get(_CAUSE).decode())
        lost = next((rank for rank, process in self._peers.items() if not alive(*process)), None)
        return None if lost is None else self._caused(f"rank {lost} of {self.size} ended unexpectedly")

    def _caused(self, why: str) -> str:
        """The first cause that a rank has seen."""
        with suppress(RuntimeError):
            return str(self._store.compare_set(_CAUSE, "", why).decode())
        return why

    def _look(self) -> None:
        """Ends this process, from a thread, where the main thread waits for a rank that is gone."""
        while not self._left.wait(LOOK):
            if self.ended() is not None and not self._left.wait(GRACE):
                self.fail(None)

    def fail(self, sentence: str | None) -> None:
        why = self.ended() or self._caused(f"rank {self.place.rank} of {self.size} ended: {sentence}")
        # without torchrun there is no store, and ranks that stop do not know of one another's wish
        if sentence is None or not (self.orphaned or why in sentence or sentence in why):
            sentence = f"{why}; {self.remedy()}"
        if self._prints():
            print(f"error: {printable(sentence)}", file=sys.stderr, flush=True)
        os._exit(END)

    def _prints(self) -> bool:
        """Whether this rank is the first to ask; without the store, whether no rank before it runs."""
        with suppress(RuntimeError):
            return bool(self._store.add(_PRINTED, 1) == 1)
        return not any(alive(*self._peers[rank]) for rank in range(self.place.rank) if rank in self._peers)

    def leave(self) -> None:
        self.agree(0.0)
        self._left.set()
        torch.distributed.destroy_process_group()
        _present[0] = Ranks() if self.first else _Follower(self.place)


class _Follower(Ranks):
    """A rank that has done its part."""

    def __init__(self, place: Place) -> None:
        self.place = Place(place.rank, 1, place.local, 1)


def _connect() -> None:
    """Sends one number from this GPU to all. An error comes again with the first message, and is told there."""
    with suppress(RuntimeError):
        torch.distributed.all_reduce(torch.zeros(1, device="cuda"))


_present: list[Ranks] = [Ranks()]


def present() -> Ranks:
    """The ranks that train together with this process."""
    return _present[0]


def own_device(
    device: str,  # as the configuration names it
) -> str:
    """The device of this rank: each takes a GPU of its own. ConfigError where there are too few."""
    place = place_of()
    if place.size == 1 or device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return device
    if device not in ("auto", "cuda"):
        raise ConfigError(
            f"device={device} names one device for {place.size} ranks; leave it out, and each rank takes its own GPU"
        )
    if torch.cuda.device_count() < place.local_size:
        raise ConfigError(
            f"{place.local_size} ranks on a host with {torch.cuda.device_count()} GPUs; start a rank a GPU, or give device=cpu"
        )
    return f"cuda:{place.local}"


def begin(device: str) -> Ranks:
    """Meets the other ranks that the environment names. A process alone meets nobody."""
    place = place_of()
    if place.size == 1 or present().size > 1:
        return present()
    with_gpus = own_device(device).startswith("cuda")
    _check_backend(with_gpus)
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")  # ranks record their graphs at different times
    if with_gpus:
        separate_streams()
        torch.cuda.set_device(place.local)
    met = Together(place, _meet(place, "cpu:gloo,cuda:nccl" if with_gpus else "gloo"))
    met.watch()
    if with_gpus:
        met.connect()
    _present[0] = met
    return met


def _check_backend(with_gpus: bool) -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise ConfigError(
            "this torch has no torch.distributed with gloo, and ranks need it to agree; install torch from its own index"
        )
    if with_gpus and not torch.distributed.is_nccl_available():
        raise ConfigError(
            "this torch has no NCCL, and GPUs need it to exchange gradients; install torch for CUDA, or give device=cpu"
        )


def _meet(place: Place, backend: str) -> Any:
    """The store of all ranks, once they are there."""
    begin = time.monotonic()
    try:
        store, rank, size = next(iter(torch.distributed.rendezvous("env://", place.rank, place.size, timeout=MEET)))
        store.set_timeout(MEET)
        store = torch.distributed.PrefixStore(f"attempt/{os.environ.get(ATTEMPT, '0')}", store)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        seconds = round(time.monotonic() - begin)
        raise ConfigError(
            f"rank {place.rank} did not meet the other {place.size - 1} at {where} within {seconds} s; start all ranks by torchrun, "
            "with the same --rdzv-endpoint on all hosts"
        ) from error
    return store
