# SPDX-License-Identifier: Apache-2.0
"""Tables that data sets store in Apache Arrow's formats, feather and parquet."""
