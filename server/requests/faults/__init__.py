"""Faults on purpose: requests that a test suite wants answered wrongly, late, by half or not at all.

Only brokers with a control channel have this (`barnabas dev --control`); they get it as their dispatcher.

| module | what |
| --- | --- |
| `rules` | what is to go wrong, and for which requests: values and a matcher, without IO |
| `entrance` | the dispatcher of such a broker; loads all else with the first fault |
| `injector` | one request that a fault concerns: delayed, refused, cut |
| `names` | which topics, partitions, groups and transactional ids a request names, by API |
| `placing` | a request without its items that are to fail, and their errors put into the answer |
| `reads` | errors put into the answers of Fetch, Metadata, OffsetFetch and DescribeTopicPartitions |
| `stale` | Metadata from an image of before |

Not obvious:

- Without a fault that may still strike, requests pass as if this was not there, fast paths included. With one, fast
  paths are dropped after each request, so that all requests come here.
- A request is looked at once, when it arrives; a Fetch that waits already is answered as usual.
- An error stands where Apache Kafka puts it in that API and version, which is where this broker's own handlers put it
  (`Route.error_response`). What is to fail is taken out of the request before it is handled: nothing of it happens, and
  the rest of the request is served. Reads are handled as a whole, and their answers changed.
- Requests of other brokers are left alone, unless an API is named that only brokers ask; so are those of the test kit
  itself (`KIT_CLIENT_ID`).
- A connection takes no further request before one that a fault concerns is answered, also of an API that is
  pipelined: the order of its requests, and of their answers, stays.
- Log-ins (SaslHandshake, SaslAuthenticate, and ApiVersions before them) do not come here.
"""
