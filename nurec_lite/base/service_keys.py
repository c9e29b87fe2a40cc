# SPDX-License-Identifier: Apache-2.0
"""Keys of `serve`; config.py adds those that all commands have."""

from dataclasses import dataclass, field


@dataclass
class ServiceKeys:
    runs: list[str] = field(default_factory=list)  # folders of the runs; they stand on the command line without a key
    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0: all of the machine's
    port: int = 50051  # 0: a free one
    metrics_port: int | None = None  # port of the figures for Prometheus, over HTTP; 0: a free one; null: none
    tls_certificate: str | None = None  # PEM file of the server's certificate; null: no encryption
    tls_key: str | None = None  # PEM file of its key
    tls_clients: str | None = None  # PEM file of the authority for clients' certificates; null: any client may call
    loaded: int = 100  # scenes that stay loaded; with more runs the least recently used is unloaded
    unlisted: str = "absent"  # moving actors that a request does not name: absent, or recorded, where they were driven
    unknown: str = "skipped"  # objects of a request that no track has the id of: skipped, or refused
    edits: str | None = None  # YAML file: actors removed, moved, on other paths, copied (docs/editing.md)
    patterns: list[str] = field(default_factory=list)  # YAML files of lidars, which are lidar_type 100, 101, ...
    ego_masks: str | None = None  # folder of CAMERA.png: pictures of the vehicle's body
    max_message_mb: int = 64  # largest request or reply, in MiB
    max_pixels: int = 20_000_000  # largest image
    max_requests: int = 64  # requests at a time; more are refused
    max_waiting: int = 256  # frames that wait to be rendered; more are refused
    stop_seconds: float = 10.0  # time that requests in progress get when the service ends
