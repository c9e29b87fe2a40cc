# SPDX-License-Identifier: Apache-2.0
"""A checkpoint knows its capture: kinds of other captures are refused, some differences are warnings, and none is seen where none is."""

import logging
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from other_captures import LIKE, OTHER, first_image, frames
from strangers import save
from tiny_capture import Loaded, tiny_capture, tiny_config, tiny_state

from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config, DataConfig, ModelConfig, PosesChoice, TracksChoice
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import open_capture
from nurec_lite.training.capture_record import check_record, digest_from, record_of
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.known_capture import check_known_capture, fresh_digest
from nurec_lite.training.start import check_same_configuration, make_state


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("known") / "checkpoint.pt"
    save(tiny_state(), path)
    return load_checkpoint(path, "cpu")


def said(content: dict[str, Any], capture: Capture, caplog: pytest.LogCaptureFixture, **keys: Any) -> list[str]:
    """The lines that are logged for a capture that is taken."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="nurec_lite"):
        exact = keys.pop("exact", False)
        check_known_capture(Path("run/checkpoint.pt"), content, capture, DataConfig(**keys), exact=exact)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("case", OTHER)
def test_another_capture_is_refused(content: dict[str, Any], case: str, exact: bool) -> None:
    change, pattern = OTHER[case]
    with pytest.raises(CheckpointError) as found:
        check_known_capture(Path("run/checkpoint.pt"), content, change(tiny_capture()), DataConfig(), exact=exact)
    sentence = str(found.value)
    assert re.search(rf"^run/checkpoint\.pt was made from another capture: .*({pattern})", sentence), sentence
    assert re.search(r"; (give|restore) ", sentence) and len(sentence) < 500 and sentence.isprintable()


@pytest.mark.parametrize("case", LIKE)
def test_what_can_be_measured_is_one_line(content: dict[str, Any], case: str, caplog: pytest.LogCaptureFixture) -> None:
    change, pattern = LIKE[case]
    (line,) = said(content, change(tiny_capture()), caplog)
    assert re.search(rf"differs from the capture that run/checkpoint\.pt was made from: .*{pattern}", line), line


def test_the_same_capture_is_silent(content: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert said(content, tiny_capture(), caplog) == []
    assert said(content, tiny_capture(), caplog, exact=True) == []


@pytest.mark.parametrize(("kind", "quality"), [("png", 95), ("jpeg", 95), ("jpeg", 50)])
def test_so_is_a_pack_of_it(
    content: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, quality: int
) -> None:
    """Images are encoded anew, ranges and angles are rounded, and the file lies elsewhere."""
    write_pack(tiny_capture(), tmp_path / "a.pack", image_format=kind, quality=quality)
    assert said(content, read_pack(tmp_path / "a.pack"), caplog, exact=True) == []


def test_chosen_frames_are_one_line(content: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    part = replace(
        tiny_capture(), images=tuple(f for f in tiny_capture().images if 3 <= f.index < 7), sweeps=tiny_capture().sweeps[3:7], split=None
    )  # fmt: skip
    (line,) = said(content, part, caplog, frames=[3, 7])
    assert "camera_0, camera_1, lidar have 4 frames, 3 to 6, but had 10 frames, 0 to 9, 4 of them the same" in line
    with pytest.raises(CheckpointError, match=r"give 'data\.frames=\[3,7\]' to take this part alone"):
        said(content, part, caplog)
    with pytest.raises(CheckpointError, match=r"had 10 frames, 0 to 9.*; restore its capture"):
        said(content, part, caplog, frames=[3, 7], exact=True)


def test_single_frames_that_were_left_out_are_asked_for(
    content: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """No data.frames gives such a part."""
    some = tuple(f for f in tiny_capture().images if (f.sensor, f.index) not in {("camera_0", 4), ("camera_0", 7)})
    part = replace(tiny_capture(), images=some, split=None)
    without = content | {"capture": record_of(fresh_digest(part.with_split("interp")))}
    with pytest.raises(CheckpointError, match=r"; give 'data\.without=\[camera_0/4,camera_0/7\]'$"):
        said(without, tiny_capture(), caplog)
    with pytest.raises(CheckpointError, match=r"had 10 frames, 0 to 9, 8 of them the same; restore its capture"):
        said(content, part, caplog)
    (line,) = said(content, part, caplog, without=["camera_0/4", "camera_0/7"])
    assert "camera_0 has 8 frames, 0 to 9, but had 10 frames" in line


@pytest.mark.parametrize("factor", [2, 3])
def test_smaller_images_that_are_asked_for_are_one_line(
    content: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, factor: int
) -> None:
    write_pack(tiny_capture(), tmp_path / "a.pack", image_format="png")
    small = read_pack(tmp_path / "a.pack", downscale=factor)
    (line,) = said(content, small, caplog, downscale=factor)
    assert line.endswith(f"images are reduced by {factor}, but were by 1")
    with pytest.raises(CheckpointError, match=r"camera camera_0 has \d+x\d+ pixels, but had 40x24"):
        said(content, small, caplog)  # the pack itself holds smaller images


def test_a_delay_that_is_asked_for_is_one_line(content: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    earlier = frames(lambda f: replace(f, time_start=f.time_start - 0.002, time_end=f.time_end - 0.002), "camera_0")
    (line,) = said(content, earlier(tiny_capture()), caplog, image_delay=0.0095)
    assert "frame 0 of camera_0 (and 9 more) is of" in line


def test_an_older_checkpoint_is_taken_with_a_line(content: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    older = {key: value for key, value in content.items() if key != "capture"}
    (line,) = said(older, first_image(tiny_capture()), caplog)
    assert line.endswith("was written by an older version: whether the capture is the same is not known")


def test_names_of_files_and_signs_stay_on_one_line(content: dict[str, Any]) -> None:
    odd = replace(tiny_capture(), images=tiny_capture().images[:-1], split=None)
    stored = content["config"] | {"data": content["config"]["data"] | {"kind": "pack", "root": "a b=$HOME.pack"}}
    with pytest.raises(
        CheckpointError, match=r"it was made with data=pack 'data\.root=\"a b=\$HOME\.pack\"': give that"
    ):
        capture = replace(odd, cameras=tuple(replace(c, cx=c.cx + 1) for c in odd.cameras))
        check_known_capture(Path("x.pt"), content | {"config": stored}, capture, DataConfig())


def test_images_of_python_that_no_file_holds_are_looked_at(content: dict[str, Any]) -> None:
    black = frames(lambda f: replace(f, load=Loaded(torch.zeros(24, 40, 3, dtype=torch.uint8))), "camera_1")(
        tiny_capture()
    )
    with pytest.raises(CheckpointError, match=r"image \d of camera_1 shows something else than it did"):
        check_known_capture(Path("x.pt"), content, black, DataConfig())


def test_a_pack_of_a_real_drive_is_the_same(kitti_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Images as JPEG, reduced already, and sweeps rounded to 2 mm."""
    data = {"kind": "kitti_raw", "root": str(kitti_root), "downscale": 4, "frames": [0, 6]}
    of_drive = {"poses": PosesChoice(source="capture"), "tracks": TracksChoice(source="capture")}
    capture = open_capture(DataConfig(**data, **of_drive))
    write_pack(capture, tmp_path / "a.pack")
    scene = {"origin": capture.origin, "tracks": {f.name: getattr(capture.tracks, f.name) for f in fields(Tracks)}}
    content = {"capture": record_of(fresh_digest(capture)), "config": {"data": data}, "scene": scene}
    packed = read_pack(tmp_path / "a.pack")
    assert said(content, packed, caplog, kind="pack", root=str(tmp_path / "a.pack"), exact=True) == []
    other = replace(packed, images=tuple(replace(f, load=packed.images[-1].load) for f in packed.images))
    with pytest.raises(CheckpointError, match=r"image 0 of image_02 shows something else than it did"):
        said(content, other, caplog, kind="pack")


def test_a_run_from_python_compares_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save(tiny_state(), path)
    config = tiny_config()
    config = replace(config, train=replace(config.train, resume=str(path)))
    state = make_state(config, tiny_capture(), torch.device("cpu"))
    assert state.digest is not None and state.digest.frames["lidar"].looks.shape == (2, 7)
    with pytest.raises(CheckpointError, match="another capture: lidar lidar has clockwise=false, but had true"):
        make_state(config, OTHER["a lidar that turns the other way"][0](tiny_capture()), torch.device("cpu"))


@pytest.mark.parametrize(
    ("data", "files"), [({}, True), ({"kind": "pack", "root": "a.pack"}, True), ({"kind": "pack", "root": None}, False)]
)
def test_the_remedy_for_a_capture_in_memory_is_another_one(
    content: dict[str, Any], data: dict[str, Any], files: bool
) -> None:
    other, content = OTHER["a lidar that turns the other way"][0](tiny_capture()), content | {"config": {"data": data}}
    with pytest.raises(CheckpointError, match="; give the capture that was trained on") as found:
        check_known_capture(Path("run/checkpoint.pt"), content, other, DataConfig(), memory=True)
    assert str(found.value).endswith("read its files") == files


def test_a_pack_of_a_drive_may_hold_smaller_images(content: dict[str, Any]) -> None:
    """The digest alone tells which images it holds."""
    stored = content | {
        "config": content["config"] | {"data": {"kind": "kitti_raw", "downscale": 2, "date": "2030_01_02"}}
    }
    packed = replace(Config(), data=DataConfig(kind="pack"), model=ModelConfig(**content["config"]["model"]))
    check_same_configuration(Path("x.pt"), stored, packed)
    with pytest.raises(
        CheckpointError, match=r"made with data\.downscale=2, but this run has 1; give data\.downscale=2"
    ):
        check_same_configuration(Path("x.pt"), {k: v for k, v in stored.items() if k != "capture"}, packed)
    with pytest.raises(CheckpointError, match=r"made with data\.downscale=2, but this run has 1"):
        check_same_configuration(Path("x.pt"), stored, replace(packed, data=DataConfig(kind="kitti_raw")))


def test_cameras_of_older_checkpoints_are_pinholes(content: dict[str, Any]) -> None:
    record = content["capture"]
    older = record | {"cameras": [{k: v for k, v in c.items() if k != "lens"} for c in record["cameras"]]}
    check_record(older)
    assert {camera.lens for camera in digest_from(older).cameras} == {"pinhole"}


def test_another_lens_is_another_capture(content: dict[str, Any]) -> None:
    first, *others = tiny_capture().cameras
    other = replace(tiny_capture(), cameras=(replace(first, lens="fisheye", distortion=(0.1, 0.0, 0.0, 0.0)), *others))
    with pytest.raises(CheckpointError, match="a fisheye lens, but had a pinhole lens"):
        check_known_capture(Path("x.pt"), content, other, DataConfig())
