"""What clients do in the benchmark: the records and requests they send, and the programs that send them.

`values` makes the records, `exchanges` and `frames` raw requests; each is made once and is the same for every broker.
`src` holds the Java clients, which live in one JVM (`java_client`). The rest are programs of librdkafka
(confluent-kafka), each a process that prints one line of JSON.
"""
