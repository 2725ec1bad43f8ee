"""What the machine does beside the measured work (`noise`), how fast it is just now (`probe`), what the kernel counts
for a process (`processes`), and the state of the page cache that a log is written into (`page_cache`).
"""
