"""What a broker costs when there is much of something: curves over partitions and connections, and what others feel
while something large goes on.

    python -m compat_tests.scale partitions    # 1,000 to 10,000: memory, start, Metadata, idle CPU, stop, …
    python -m compat_tests.scale connections   # 100 to 5,000: memory, idle CPU, what one client feels
    python -m compat_tests.scale tails         # p99.9 of Produce and end to end beside each scenario

One broker at a time, ours unless `--peer kafka` says otherwise; `--small` shows that everything runs. The first two are
there to find what is worse than linear: the last column says how much more one partition or connection costs when there
are many. docs/performance.md explains the values.
"""
