"""A client of Kafka for people's commands, the console and tests: any broker from Apache Kafka 0.11 to 4.x, and ours.

    async with open_client(["localhost:9092"]) as client:
        for name, topic in (await topics.list_topics(client)).items(): …

| file | what |
| --- | --- |
| `client.py` | `Client`: one request to whoever is responsible, or many split between brokers; retries |
| `approach.py`, `command_config.py`, `tokens.py`, `connections.py` | how a broker is reached: TCP, TLS, log-ins |
| `versions.py`, `view.py`, `retrying.py`, `errands.py` | the parts of that without IO |
| `offsets.py` | the offsets of partitions: earliest, latest, by time; records deleted |
| `reading.py`, `reader.py` | records from partitions: without IO, and over Fetch |
| `partitioner.py`, `batching.py`, `producer.py` | records to partitions |
| `topics.py`, `configs.py`, `log_dirs.py`, `moves.py` | administration: what brokers hold |
| `groups.py`, `lag.py`, `resets.py`, `transactions.py` | administration: who reads and writes it |
| `access/` | ACLs, SCRAM users, quotas |
| `texts/` | places, times, amounts and records as people and machines write them |

Not obvious:

- Connections are those of brokers to brokers (`network/peers.py`): one request at a time on each, so nothing piles up,
  and a request that is cancelled closes its connection. What waits long (a Fetch) goes on a *lane* of its own, a second
  connection, as brokers answer in order.
- Failures of single topics, partitions and groups are values (`Failed`), in the dictionary of results. Exceptions
  (`ClientError`) are for requests that failed as a whole.
- Nothing here reads the wall clock but through an argument, and all randomness is `Client.rng`.
- Log-ins need brokers from Apache Kafka 1.0 on, where SaslAuthenticate is.
- No second way to the broker in this process: the client speaks the protocol only, so it works with any broker.
"""
