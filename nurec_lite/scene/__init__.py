# SPDX-License-Identifier: Apache-2.0
"""Gaussians of the background and of every actor, in one flat store."""
