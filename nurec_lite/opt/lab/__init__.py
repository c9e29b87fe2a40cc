# SPDX-License-Identifier: Apache-2.0
"""Options that do not pay today; their pages say why they are kept."""
