# SPDX-License-Identifier: Apache-2.0
"""Ranks in processes that are forked, so that nothing is imported twice."""

import gc
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CONTEXT: Any = multiprocessing.get_context("fork")
LONGEST = 90  # seconds


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def surroundings(rank: int, size: int, port: int, attempt: int = 0) -> dict[str, str]:
    """Variables of the environment that torchrun writes."""
    places = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    places["TORCHELASTIC_RESTART_COUNT"] = attempt
    return {
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **{name: str(value) for name, value in places.items()},
    }


def _child(work: Callable[[int], Any], rank: int, size: int, port: int, attempt: int, results: Any, said: Path) -> None:
    os.environ.update(surroundings(rank, size, port, attempt))
    gc.freeze()  # a store of ranks that failed before would wait here for its thread, which no fork has
    torch.set_num_threads(1)
    torch.cuda.is_available = lambda: False  # CUDA cannot be used in a process that is forked from one with a GPU
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)  # not those of pytest
    code = 0
    try:
        results.send(work(rank))
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _received(receiver: Any) -> Any:
    """The result of a rank; None of one that ends without any."""
    try:
        return receiver.recv() if receiver.poll(LONGEST) else None
    except EOFError:
        return None


def _store(port: int) -> Any:
    """The store of all attempts, as torchrun has it."""
    return torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)


class Started:
    """Ranks under way."""

    def __init__(
        self,
        size: int,
        work: Callable[[int], Any],
        said: Path,
        before: "Started | None" = None,  # ranks that have ended, and that these ones replace as by torchrun --max-restarts
    ) -> None:
        self.said, self.port = said, before.port if before else free_port()
        self.attempt = before.attempt + 1 if before else 0
        pipes = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
        self.receivers = [receiver for receiver, _ in pipes]
        self.processes = [
            CONTEXT.Process(target=_child, args=(work, rank, size, self.port, self.attempt, sender, said))
            for rank, (_, sender) in enumerate(pipes)
        ]
        for process, (_, sender) in zip(self.processes, pipes, strict=True):
            process.start()
            sender.close()
        self.store = before.store if before else _store(self.port)

    def codes(self) -> list[int]:
        """Waits for all."""
        deadline = time.monotonic() + LONGEST
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        alive = [process for process in self.processes if process.is_alive()]
        for process in alive:
            process.kill()
        assert not alive, f"ranks do not end:\n{self.said.read_text()}"
        return [process.exitcode for process in self.processes]

    def results(self) -> list[Any]:
        """Results of each rank."""
        found = [_received(receiver) for receiver in self.receivers]
        assert self.codes() == [0] * len(found), self.said.read_text()
        return found
