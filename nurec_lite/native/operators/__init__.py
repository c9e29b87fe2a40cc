# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*, a file each: arguments, gradient, registration."""
