# SPDX-License-Identifier: Apache-2.0
"""Reader of nuScenes' scenes."""
