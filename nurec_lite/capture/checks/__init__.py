# SPDX-License-Identifier: Apache-2.0
"""Checks that compare a drive's data with its sensors, before training and for every reader."""
