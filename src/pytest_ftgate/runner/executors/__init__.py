"""The executors inside the measured process: each starts its workers, releases them together and joins them.

One file per executor; start at `making.make_workers`.
"""
