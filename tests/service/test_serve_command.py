# SPDX-License-Identifier: Apache-2.0
"""The command serve: it listens, ends cleanly, and names in one sentence the reason if it cannot start."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
from PIL import Image
from served import BEAMS, image_request, service_of, tiny_run
from test_calls import picture, refused
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.base.errors import UserError
from nurec_lite.base.paths import PACKAGE
from nurec_lite.config import ServeConfig
from nurec_lite.serve import serve, with_runs
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.figures import Figures, FiguresServer
from nurec_lite.service.lidars import patterns
from nurec_lite.service.scenes import Scenes, described


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_folders_stand_without_a_key() -> None:
    assert with_runs(["runs/a", "port=0", "runs/b"]) == ["port=0", 'runs=["runs/a","runs/b"]']
    assert with_runs(["port=0"]) == ["port=0"]
    assert with_runs(["runs/a=1", "wrong=1"]) == ["wrong=1", 'runs=["runs/a=1"]']


def test_it_serves_until_it_is_stopped(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, said = threading.Event(), []
    monkeypatch.setattr("builtins.print", lambda text, **_: said.append(text) or stop.set())
    serve(ServeConfig(runs=[str(run)], port=0, device="cpu"), ["device=cpu"], stop)
    assert (
        re.fullmatch(r"serving on 127\.0\.0\.1:\d+, without encryption", said[0])
        and said[-1] == "stopped after 0 requests"
    )


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_addresses_of_ipv6_are_served_and_printed_in_brackets(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, said = threading.Event(), []

    def ask(text: str, **_: object) -> None:
        said.append(text)
        if text.startswith("figures on "):
            assert urlopen(text.split()[-1]).status == 200
            with Sensorsim(said[0].split()[2].rstrip(",")) as client:
                assert client.get_version().version_id
            stop.set()

    monkeypatch.setattr("builtins.print", ask)
    keys = {"runs": [str(run)], "host": "::1", "port": 0, "metrics_port": 0, "device": "cpu"}
    serve(ServeConfig(**keys), ["device=cpu"], stop)
    assert said[0].startswith("serving on [::1]:") and len(said) == 3


@pytest.mark.slow
def test_a_process_ends_by_sigterm_and_answers_what_it_began(run: Path) -> None:
    line = [sys.executable, "-m", "nurec_lite.serve", str(run), "port=0", "metrics_port=0", "device=cpu"]
    with subprocess.Popen(
        line, cwd=PACKAGE.parent, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        said = iter(process.stdout)
        port = next(found[1] for text in said if (found := re.search(r"serving on 127\.0\.0\.1:(\d+)", text)))
        figures = next(text for text in said).split()[-1]
        with Sensorsim(f"127.0.0.1:{port}") as client:
            assert client.render_rgb(image_request()).image_bytes
            assert "nurec_lite_rendered_images_total 1" in urlopen(figures).read().decode()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0 and "stopped after 1 requests" in process.stdout.read()
        with pytest.raises(URLError):
            urlopen(figures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("again", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 0)], ids=["a wish", "a signal sent twice"]
)
def test_a_second_ctrl_c_ends_it_while_it_renders(again: signal.Signals, code: int, run: Path) -> None:
    """A thread that renders cannot be interrupted, and the process crashed behind it. timeout(1) sends SIGTERM twice for one wish."""
    line = [sys.executable, "-m", "nurec_lite.serve", str(run), "port=0", "device=cpu", "stop_seconds=600"]
    pixels = 4000 if code else 400
    with subprocess.Popen(
        line, cwd=PACKAGE.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        said = iter(process.stdout)
        port = next(found[1] for text in said if (found := re.search(r"serving on 127\.0\.0\.1:(\d+)", text)))
        with Sensorsim(f"127.0.0.1:{port}") as client, ThreadPoolExecutor(1) as pool:
            assert client.render_rgb(image_request()).image_bytes
            waiting = pool.submit(client.render_rgb, image_request(resolution_h=pixels, resolution_w=pixels))
            time.sleep(0.5)
            process.send_signal(again)
            assert code == 0 or "stopping: requests in progress get 600 s" in next(said)
            process.send_signal(again)
            assert process.wait(60) == code
            assert (waiting.exception() is None) == (code == 0)
        assert code == 0 or process.stderr.read() == "error: interrupted; requests in progress were cut off\n"


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"runs": []}, "no run is named; give folders of runs"),
        ({"runs": [__file__, __file__]}, r"test_serve_command\.py is named twice; leave one of them out"),
        ({"runs": ["nowhere/run"]}, r"nowhere/run does not exist; name the folder of a run"),
        ({"tls_certificate": "a.pem"}, "tls_key is missing; give both"),
        ({"tls_key": "a.pem", "tls_certificate": "b.pem"}, r"tls_key is a\.pem, which cannot be read \(No such file"),
        ({"ego_masks": "nowhere"}, "ego_masks is nowhere, which holds no PNG"),
        ({"patterns": ["nowhere.yaml"]}, r"nowhere\.yaml"),
        ({"edits": "nowhere.yaml"}, r"nowhere\.yaml"),
        ({"host": ""}, r":0 cannot be opened \(host is empty\); choose another host or port"),
        ({"host": "256.1.1.1"}, r"256\.1\.1\.1:0 cannot be opened \(.+\); choose another host or port"),
        ({"host": "a" * 70 + ".example"}, r"example:0 cannot be opened \(.+\); choose another host"),
        ({"port": 1, "host": "192.0.2.1"}, r"192\.0\.2\.1:1 cannot be opened \(Cannot assign requested address\)"),
    ],
    ids=range(12),
)
def test_what_keeps_it_from_starting_is_a_sentence(run: Path, keys: dict[str, Any], sentence: str) -> None:
    before = threading.active_count()
    with pytest.raises(UserError, match=sentence):
        service_of(*[] if "runs" in keys else [run], **keys)
    assert threading.active_count() == before


def test_keys_are_checked_before_a_scene_is_loaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scenes, "get", lambda scenes, name: pytest.fail("a scene was loaded"))
    with pytest.raises(UserError, match="tls_key is missing"):
        service_of(run, tls_certificate="a.pem")


def test_a_camera_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("{kind: camera, name: own, width: 9, height: 6, fx: 6, mounting: {}}")
    with pytest.raises(UserError, match=r"own\.yaml describes a camera, but patterns takes lidars; leave it out"):
        patterns([str(tmp_path / "own.yaml")], tiny_capture())


def test_patterns_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    for name in ("few", "PANDAR128"):
        for file in files:
            Path(file).write_text(BEAMS.replace("few", name))
        with pytest.raises(UserError, match=rf"a\.yaml: name is '{name}', which another pattern has; give each"):
            patterns(files[: 2 if name == "few" else 1], tiny_capture())
    assert list(patterns([], tiny_capture())) == [0, 1]


def test_ports_that_are_taken_are_refused_before_a_scene_is_loaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service_of(run) as first, monkeypatch.context() as patch:
        patch.setattr(Scenes, "get", lambda scenes, name: pytest.fail("a scene was loaded"))
        with pytest.raises(UserError, match=r"cannot be opened \(Address already in use\)"):
            service_of(run, port=first.port)
        with pytest.raises(UserError, match=r"metrics_port is \d+, which cannot be opened \(Address already in use\)"):
            service_of(run, metrics_port=first.metrics_port)
    with pytest.raises(UserError, match=r"metrics_port is 50999, which cannot be opened \(port is the same\)"):
        service_of(run, port=50999, metrics_port=50999)


def test_a_reader_that_says_a_byte_now_and_then_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nurec_lite.service.figures.PATIENCE_S", 0.5)
    server = FiguresServer(Figures(), "127.0.0.1", 0, lambda: True)
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.1) as slow:
        for _ in range(100):
            with suppress(OSError):
                slow.sendall(b"G")
            with suppress(TimeoutError):
                assert slow.recv(1) == b""
                break
        else:
            pytest.fail("it is still open after 10 s")
        while threading.active_count() > before:
            time.sleep(0.01)
        assert urlopen(f"http://127.0.0.1:{server.port}/healthz").status == 200
    server.close()


def test_two_runs_of_one_name_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="are both scene 'mine'; rename one of the folders"):
        service_of(run, tiny_run(tmp_path / "mine"))
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "mine").symlink_to(run)
    for again in (run.parent / "." / run.name / ".." / run.name, tmp_path / "link" / "mine", run / "checkpoint.pt"):
        with pytest.raises(UserError, match="is named twice; leave one of them out"):
            service_of(run, again)


@pytest.mark.parametrize(
    ("lens", "distortion", "said"),
    [
        ("mei", (0.8, 0.0, 0.0, 0.0, 0.0), "a MEI lens"),
        ("fisheye", (0.0, 0.0, 0.0, 0.0, 1e-3, 0.0, 0.0, 0.0), "a fisheye lens with tangential distortion"),
    ],
)
def test_a_camera_without_a_message_leaves_the_others(
    lens: str, distortion: tuple[float, ...], said: str, run: Path
) -> None:
    with service_of(run) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        scene = service.scenes.get("mine")
        first, second = scene.capture.cameras
        scene.capture = replace(scene.capture, cameras=(replace(first, lens=lens, distortion=distortion), second))
        (listed,) = client.get_available_cameras(scene_id="mine").available_cameras
        assert listed.logical_id == second.name
        assert f"get_available_cameras has no message for {first.name} (it has {said}" in described(scene)


def test_a_run_that_breaks_while_it_is_served_is_a_sentence(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other")
    with service_of(run, other, loaded=1) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        (other / "checkpoint.pt").unlink()
        code, said = refused(lambda: client.render_rgb(image_request(scene_id="other")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and said.startswith("scene other cannot be loaded: ")
        shutil.copy(run / "checkpoint.pt", other)
        assert client.render_rgb(image_request(scene_id="other")).image_bytes


def test_edits_and_bodies_of_vehicles(run: Path, tmp_path: Path) -> None:
    """A file removes all actors; a picture of the bonnet lies over the lower half."""
    (tmp_path / "edits.yaml").write_text("remove: [actors]")
    (tmp_path / "rig").mkdir()
    body = np.zeros((4, 4, 4), np.uint8)
    body[2:] = (200, 10, 20, 255)
    Image.fromarray(body).save(tmp_path / "rig" / "camera_0.png")
    with (
        service_of(run, edits=str(tmp_path / "edits.yaml"), ego_masks=str(tmp_path / "rig")) as service,
        Sensorsim(f"127.0.0.1:{service.port}") as client,
    ):
        (mask,) = [one.ego_mask_id for one in client.get_available_ego_masks().ego_mask_metadata]
        assert (mask.camera_logical_id, mask.rig_config_id) == ("camera_0", "rig")
        named = {"track_id": tiny_scene().tracks.ids[0], "pose_pair": {"start_pose": {"quat": {"w": 1}}}}
        among = picture(client.render_rgb(image_request(dynamic_objects=[named])).image_bytes)
        found = picture(client.render_rgb(image_request(insert_ego_mask=True, ego_mask_id=mask)).image_bytes)
        other = {"camera_logical_id": "camera_1"}
        _, said = refused(lambda: client.render_rgb(image_request(insert_ego_mask=True, ego_mask_id=other)))
        assert said == "ego_mask_id names camera 'camera_1', but there are masks of camera_0; name one of these"
        plain = picture(client.render_rgb(image_request()).image_bytes)
    assert np.array_equal(among, plain), "a simulator goes on to name the actors that were removed"
    assert (found[12:] == (200, 10, 20)).all() and np.array_equal(found[:12], plain[:12])
