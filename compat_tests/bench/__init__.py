"""Side by side benchmark: Apache Kafka 4.3.1 and Barnabas on one machine, in alternating rounds.

`python -m compat_tests.bench --help` says how it is used, docs/performance.md what it has found. `rows` lists what is
measured, `measures` does it, with the clients of `loads`; `runs` takes the rounds and `machine` watches for noise;
`results` and `report` make tables of them, `page` and `plots` what docs/performance.md shows.

Both brokers are up while a place is measured (an idle one costs nothing measurable), so that each row is taken on one
broker and at once on the other. The client programs are the same for both, and so is each byte that they send.
"""
