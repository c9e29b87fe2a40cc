# SPDX-License-Identifier: Apache-2.0
"""The rig's path, estimated from the sweeps of the lidar, and from velocities where there are any."""
