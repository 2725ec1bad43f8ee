"""What the documents let people type, typed by a stranger: an empty home, a fresh directory, each block in its order.

`stranger.py` is the shell. One file for each page; what is not run there, and why, stands in the test.
"""
