# SPDX-License-Identifier: Apache-2.0
"""Options of NVIDIA's post on NuRec: what its profile found and mended."""
