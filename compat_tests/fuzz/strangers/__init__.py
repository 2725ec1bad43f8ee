"""Peers that have not said who they are, on listeners where they must: whatever they send before that.

    python -m compat_tests.fuzz.strangers --inputs 1000000 --seed 7     one campaign against a broker of ours
    python -m compat_tests.fuzz.strangers half-open --count 5000        what a connection costs that says no more

`talk` (what strangers say: frames of the log-in, tokens of each mechanism, records of TLS, and damage), `storm` (many
connections that say it), `listeners` (the broker: SASL_PLAINTEXT, SASL_SSL, SSL, and PLAINTEXT for those who watch).
Looked at are the log, the process, its memory and descriptors, an honest client, log-ins that are right, and how long
answers take meanwhile. `server/tests/whole/test_strangers.py` is a short campaign among the fast tests.
"""
