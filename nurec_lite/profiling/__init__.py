# SPDX-License-Identifier: Apache-2.0
"""Times of a training step: ranges, and recordings of nsys, ncu and torch.profiler about them."""
