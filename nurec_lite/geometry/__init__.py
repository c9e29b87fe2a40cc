# SPDX-License-Identifier: Apache-2.0
"""Rigid motion, tracks and sensor models; imports nothing of the layers above."""
