# SPDX-License-Identifier: Apache-2.0
"""The rig's path, estimated from what its sensors measured: sweeps of the lidar, and velocities where there are any."""
