"""A peer that sends anything: requests made from the protocol's schemas, with values that mean something, and damage.

    python -m compat_tests.fuzz --seconds 600 --seed 7               our broker, started for it
    python -m compat_tests.fuzz --seconds 600 --bootstrap HOST:PORT   one that runs (log and process are not watched)
    python -m compat_tests.fuzz --seconds 600 --cluster              three and ZooKeeper, beside an acks=all load
    python -m compat_tests.fuzz replay FILE                          what a finding has kept, or a file of the corpus

What is sent: `schema_writer` (bytes from a schema), `values` (what a field of that name may hold), `pools` (what the
peer knows to exist, learnt from answers), `batches` (records), `damage` (bytes), `grammar` (whole requests). How:
`attack` (many connections, pipelined, closed in the middle). What is looked at: `watch` (log, process),
`memory` (what of it comes back), `probe` (stalls), `honest` (a client that behaves). `recording` is the format of what
is replayed, `corpus/` the packets of past findings, which `server/tests/whole/test_fuzz_corpus.py` sends to a broker
with the fast tests. `strangers/` attacks listeners where peers must say who they are.

The one part of `compat_tests` that imports of ours: `kproto`, whose schemas are the grammar.
"""
