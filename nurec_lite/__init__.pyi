# SPDX-License-Identifier: Apache-2.0
from nurec_lite.api.open import load as load
from nurec_lite.api.open import read as read
from nurec_lite.api.open import train as train
from nurec_lite.api.renders import CameraRender as CameraRender
from nurec_lite.api.renders import LidarRender as LidarRender
from nurec_lite.api.scene import TrainedScene as TrainedScene
from nurec_lite.base.errors import ConfigError as ConfigError
from nurec_lite.base.errors import UserError as UserError
from nurec_lite.capture.types import Capture as Capture
from nurec_lite.capture.types import CaptureError as CaptureError
from nurec_lite.geometry.camera import Camera as Camera
from nurec_lite.geometry.lidar import Lidar as Lidar
from nurec_lite.geometry.tracks import Tracks as Tracks
from nurec_lite.output.sensors import NovelSensor as NovelSensor

__version__: str
