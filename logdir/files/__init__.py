"""The operating system's files and what stands in them: disk calls, names, checkpoints, indexes, formats.

Imports no other room. `disk` is the one seam to the operating system, and `memory_disk` takes its place in tests.
"""
