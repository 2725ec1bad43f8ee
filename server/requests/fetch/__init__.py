"""What a Fetch does beside its handler.

| module | what |
| --- | --- |
| `access` | who may |
| `scope` | what a request is about: its targets, and its session |
| `sessions`, `targets` | what is remembered of a client; one partition in a request |
| `fetching` | the loop over the partitions, the wait, the answer |
| `readers` | who reads for whom; `reader` is what the loop asks, `consumers` and `followers` are those who do it |
| `large` | the same loop in turns, for fetches of very many partitions |
| `old_clients` | versions 0 to 3, whose records are converted |
"""
