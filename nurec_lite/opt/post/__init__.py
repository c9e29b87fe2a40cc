# SPDX-License-Identifier: Apache-2.0
"""Options of NVIDIA's post on NuRec: changes that its profile led to."""
