# SPDX-License-Identifier: Apache-2.0
"""The place of this process among those that train together (ranks), as torchrun writes it into the environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from nurec_lite.base.errors import ConfigError

_NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # of numbers
_MEETING = ("MASTER_ADDR", "MASTER_PORT")  # of the store where all ranks meet
START = "torchrun --nproc-per-node={} -m nurec_lite.train"


@dataclass(frozen=True)
class Place:
    """Rank among `size` ranks, and among the `local_size` ranks of this host."""

    rank: int = 0
    size: int = 1
    local: int = 0
    local_size: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the one rank that prints and writes."""
        return self.rank == 0


def place_of(environ: Mapping[str, str] = os.environ) -> Place:
    """The place; a process without WORLD_SIZE is alone. ConfigError if the environment names a part of a place only."""
    if environ.get("WORLD_SIZE", "1") == "1":
        return Place()
    size = environ["WORLD_SIZE"]
    missing = [name for name in (*_NAMES[:3], *_MEETING) if not environ.get(name)]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE={size} asks for several ranks, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; "
            f"start them by {START.format(size)} ..., or unset WORLD_SIZE"
        )
    numbers = [environ.get(name, size) for name in _NAMES]
    if not all(number.isdecimal() for number in numbers):
        raise ConfigError(
            f"{', '.join(_NAMES)} are {', '.join(numbers)}, but must be whole numbers; start ranks by torchrun"
        )
    size_, rank, local, local_size = map(int, numbers)
    if not rank < size_ or not local < local_size <= size_:
        raise ConfigError(
            f"RANK={rank} and LOCAL_RANK={local} are no places among WORLD_SIZE={size_} ranks, LOCAL_WORLD_SIZE={local_size} of "
            "them on this host; start ranks by torchrun"
        )
    return Place(rank, size_, local, local_size)


def prints() -> bool:
    """Whether this process prints: rank 0, and every process without a clear place, so that its error is seen."""
    try:
        return place_of().first
    except ConfigError:
        return os.environ.get("RANK", "0") == "0"


def hush() -> None:
    """Drops the output of all ranks but the first. Traces of defects, on stderr, stay."""
    if not prints():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
