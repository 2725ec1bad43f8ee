"""Side by side benchmark: Apache Kafka 4.3.1 and Barnabas on one machine, in alternating rounds.

`python -m compat_tests.bench` prints a table of medians with ratios and, with `--json FILE`, every single value. Both
brokers are up for the whole run (an idle one costs nothing measurable) so that each measure of a round is taken on one
broker and at once on the other; the order changes from round to round. The client programs are the same for both.
"""
