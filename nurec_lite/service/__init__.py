# SPDX-License-Identifier: Apache-2.0
"""A simulator's sensors over gRPC: SensorsimService, as AlpaSim and NuRec call it (docs/service.md)."""
