# SPDX-License-Identifier: Apache-2.0
"""Options, on three shelves: post, all and lab. Each is a module with `apply(stages, **parameters) -> Stages`, which
`nurec_lite.backends` calls once, before the loop.

A module also states `CLASS` (exact: same numbers up to rounding; close: within a stated tolerance; quality: changes training),
`REQUIRES` (options that must be given too) and `unavailable(stages)` (why it cannot run here, on these
stages of the baseline, or None). Nothing else imports this folder.
"""
