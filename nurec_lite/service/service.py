# SPDX-License-Identifier: Apache-2.0
"""The whole service: scenes, the thread that renders, the gRPC server, and the figures."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from nurec_lite.base.threads import cores
from nurec_lite.base.version import commit
from nurec_lite.config import ServeConfig
from nurec_lite.service.address import check_addresses
from nurec_lite.service.calls import Calls
from nurec_lite.service.figures import Figures, FiguresServer, resident_bytes
from nurec_lite.service.health import Health
from nurec_lite.service.images import EgoMasks
from nurec_lite.service.scenes import Scenes
from nurec_lite.service.server import Server
from nurec_lite.service.tls import credentials
from nurec_lite.service.worker import Worker

ENCODERS = 8  # threads at most that encode images


class Service:
    """`with Service(config, arguments, version) as service:` serves while the block runs. The first scene is loaded before it listens."""

    def __init__(
        self,
        config: ServeConfig,
        arguments: list[str],  # that each run's own configuration gets, such as device=cpu
        version: str,  # of this package
    ) -> None:
        self._config, self.figures, self.scenes = config, Figures(), Scenes(config, arguments)
        self._stopping, self._ending = threading.Event(), ExitStack()
        check_addresses(config)  # before a scene is loaded, as the files of keys
        credentials(config)
        with ExitStack() as stack:
            masks = EgoMasks(config.ego_masks)
            stack.callback(self.scenes.close)
            self.scenes.get(self.scenes.names()[0])
            self._worker = Worker(self.figures, config.max_waiting, self.scenes.device)
            stack.callback(self._worker.close)
            encoders = stack.enter_context(ThreadPoolExecutor(min(ENCODERS, cores()), "encoder"))
            calls = Calls(self.scenes, self._worker, masks, encoders, version, commit())
            server = Server(config, calls, self.figures, Health(self.healthy, self._stopping.is_set))
            stack.callback(server.stop, config.stop_seconds)
            self.port = server.port
            self.metrics_port = self._open_figures(stack)
            self._ending = stack.pop_all()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *error: object) -> None:
        """Answers requests in progress, then ends all threads."""
        self._stopping.set()
        self._ending.close()

    def healthy(self) -> bool:
        return not self._stopping.is_set() and not self.failed.is_set()

    @property
    def failed(self) -> threading.Event:
        """Set once the GPU fails in a way that only a new process survives."""
        return self._worker.failed

    def _open_figures(self, stack: ExitStack) -> int | None:
        self.figures.gauges |= {
            "frames_waiting": ("Frames that wait to be rendered.", self._worker.waiting),
            "scenes_loaded": ("Loaded scenes.", lambda: len(self.scenes.loaded())),
            "resident_bytes": ("Memory of the process.", resident_bytes),
            "threads": ("Threads of the process.", threading.active_count),
        }
        if self._config.metrics_port is None:
            return None
        server = FiguresServer(self.figures, self._config.host, self._config.metrics_port, self.healthy)
        stack.callback(server.close)
        return server.port
