"""One segment, and what is known beside its batches: producers, retention, what a flush and a truncation still have to
do.

May import `files`.
"""
