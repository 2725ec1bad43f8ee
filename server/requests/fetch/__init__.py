"""What a Fetch does beside its handler.

| module | what |
| --- | --- |
| `access` | authorization |
| `scope` | what a request is about: its targets, and its session |
| `sessions`, `targets` | incremental fetch sessions; one partition in a request |
| `fetching` | the loop over the partitions, the wait, the answer |
| `readers` | chooses the reader; `reader` is its interface, `consumers` and `followers` implement it |
| `large` | the same loop in turns, for fetches of very many partitions |
| `old_clients` | versions 0 to 3, whose records are converted |
"""
