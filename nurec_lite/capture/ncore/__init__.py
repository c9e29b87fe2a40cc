# SPDX-License-Identifier: Apache-2.0
"""Reader and writer of NCore v4 (https://github.com/NVIDIA/ncore), NVIDIA's format of driving captures."""
