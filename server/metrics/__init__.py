"""Metrics over HTTP: what Prometheus scrapes, and whether the broker is alive and ready.

Only a broker with `metrics.listener` loads this room. Others pay for two integers that partitions count.

| module | what |
| --- | --- |
| `meter` | the requests of clients: counted and timed where all of them pass; `error_codes`: what they are answered |
| `histogram` | durations by powers of two, their quantiles |
| `page` | what one scrape says: families of series, in the text formats of Prometheus and OpenMetrics |
| `scrape` | makes a page, in turns with all other work, from `sources` |
| `…_series` | the series by subject: `broker`, `client` (what clients push), `group`, `partition`, … |
| `group_lag` | how far groups are behind, in records and in seconds; `foreign_ends`: where other brokers lead |
| `loop_watch`, `timed_disk` | how late the loop is; how long syncs take |
| `health` | ready, or why not |
| `service` | all of these for one broker, over `barnabas.server.httpd` |

May import `requests` and below; only `broker` imports it.

Not obvious:

- Names are those that Apache Kafka's have by the rules of jmx_exporter that most dashboards are made for, so that these
  work here. What Apache Kafka does not have is called `barnabas_…`, or as kafka_exporter calls it.
- A gauge costs nothing until it is scraped: it is read from the broker's own values then. What has to be counted on the
  way is counted by `meter`, which is given a whole round at once, and by integers on `Partition`.
- A scrape is a generator (`barnabas.server.runtime.turns`): partitions and groups may come and go between two turns, so
  collectors look at copies of tables. Samples of one family may be of different moments.
- The number of series is bounded: what is over `metrics.partitions.max`, `metrics.groups.max` and `metrics.clients.max`
  is left out, or counted together as `other`, and a metric says how much that is.
"""
