# SPDX-License-Identifier: Apache-2.0
"""The viewer of `python -m nurec_lite.view`: pictures of a scene by our own renderer, drawn for each browser that asks.

`opened` holds the run, `painter` renders requests, `worker` orders them, `session` is one browser's state; `overlay` and `panel` are its
display in viser, and `server` guards viser's pages.
"""
