# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.serve: cameras and lidars of trained scenes for a simulator, over gRPC."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import logging
import os
import sys
from dataclasses import fields
from importlib import import_module
from threading import Event
from typing import NoReturn

from nurec_lite import __version__
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.key_values import quoted
from nurec_lite.base.progress import StopWish
from nurec_lite.base.service_keys import ServiceKeys
from nurec_lite.base.texts import host_and_port
from nurec_lite.bounds import leaves
from nurec_lite.cli.arguments import is_path, key_of
from nurec_lite.cli.command import command, composed
from nurec_lite.config import ServeConfig

HELP = """
Serves trained scenes to a simulator: SensorsimService over gRPC, as AlpaSim and NuRec call it (docs/service.md). RUN is the folder of a
run; its name is the scene_id.

  python -m nurec_lite.serve runs/mine                                    on 127.0.0.1:50051
  python -m nurec_lite.serve runs/a runs/b loaded=1                       two scenes, one loaded at a time
  python -m nurec_lite.serve runs/mine edits=edits.yaml                   actors edited by a file (docs/editing.md)
  python -m nurec_lite.serve runs/mine patterns=beams32.yaml              a lidar of your own (docs/sensors.md), lidar_type 100
  python -m nurec_lite.serve runs/mine host=0.0.0.0 tls_certificate=server.pem tls_key=key.pem

Ctrl-C or SIGTERM ends it: requests in progress are answered first, unless Ctrl-C comes again.
Needs the packages grpcio and protobuf (extra `serve`).
"""
_KEYS = {field.name for field in fields(ServiceKeys)}
LOOK_S = 0.2  # seconds between two looks whether it should end
log = logging.getLogger("nurec_lite")


def with_runs(
    arguments: list[str],
) -> list[str]:  # KEY=VALUE each
    """The arguments that stand without a key are folders of runs."""
    keys = {key.split(".")[0] for key, _ in leaves(ServeConfig)} | {"opt"}
    folders = [quoted(argument) for argument in arguments if is_path(argument, keys)]
    keyed = [argument for argument in arguments if not is_path(argument, keys)]
    return [*keyed, f"runs=[{','.join(folders)}]"] if folders else keyed


def serve(
    config: ServeConfig,
    arguments: list[str],  # that each run's own configuration gets, such as device=cpu
    stop: Event,  # ends it, as Ctrl-C does
) -> None:
    """Serves until it is stopped; UserError if the GPU fails."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # our sentence names a port that is taken
    for module, package in (("grpc", "grpcio"), ("google.protobuf", "protobuf")):
        _check_package(module, package)
    from nurec_lite.service.service import Service

    service = Service(config, arguments, __version__)
    with StopWish(_leave) as wish, service:
        _print_addresses(config, service.port, service.metrics_port)
        while not (stop.wait(LOOK_S) or service.failed.is_set() or wish.asked):
            pass
        if wish.asked:
            log.info("stopping: requests in progress get %g s; Ctrl-C cuts them off", config.stop_seconds)
    print(f"stopped after {service.figures.requests()} requests", flush=True)
    if service.failed.is_set():
        raise UserError(
            "the GPU failed, so that no further request could be answered; see the log, and start the service again"
        )


def _leave() -> NoReturn:
    """Ends the process while threads still render: none of them can be interrupted, and none writes a file."""
    print("error: interrupted; requests in progress were cut off", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(2)


def _print_addresses(config: ServeConfig, port: int, metrics_port: int | None) -> None:
    how = "without encryption" if config.tls_certificate is None else "with TLS"
    print(f"serving on {host_and_port(config.host, port)}, {how}", flush=True)
    if metrics_port is not None:
        print(f"figures on http://{host_and_port(config.host, metrics_port)}/metrics", flush=True)


def _check_package(module: str, package: str) -> None:
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"serve needs the package {package}, which is not installed; run pip install {package}"
        ) from error


def work(arguments: list[str]) -> None:
    given = with_runs(arguments)
    config: ServeConfig = composed("serve", given)
    serve(config, [argument for argument in given if key_of(argument) not in _KEYS], Event())


if __name__ == "__main__":
    command("serve", HELP, work)
