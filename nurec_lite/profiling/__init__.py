# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training step goes: ranges, and what nsys, ncu and torch.profiler say about them."""
