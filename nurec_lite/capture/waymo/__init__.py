# SPDX-License-Identifier: Apache-2.0
"""Reader of segments of the Waymo Open Dataset, version 2."""
