# SPDX-License-Identifier: Apache-2.0
"""Reader of logs of Argoverse 2's sensor data set."""
