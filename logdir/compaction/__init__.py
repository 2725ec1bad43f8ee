"""Compaction: what is decided (`plan`) and one run of it (`run`), which reads segments and writes new ones.

May import `files`. How a result takes the place of the old segments: `logdir/logs/compacted.py`.
"""
