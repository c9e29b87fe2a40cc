# SPDX-License-Identifier: Apache-2.0
"""Checks hold what a drive says of itself against what its sensors saw, before training and for every reader."""
