"""Metrics that clients push (KIP-714): who pushes which, how often, and what they said last.

| module | what |
| --- | --- |
| `telemetry` | all of it for one broker: what handlers and scrapes use |
| `subscribers` | what subscriptions come to for one client, and the id of that |
| `instances` | the machine of GetTelemetrySubscriptions and PushTelemetry, by client instance |
| `otlp` | the reader of what is pushed: OpenTelemetry's MetricsData in protobuf |
| `pushed` | the last values, for `/metrics` |

May import `config` (the settings of subscriptions) and below. No IO; time is an argument.

Not obvious:

- A broker has a `Telemetry` only with `metrics.listener`, and only then do clients learn that they may push: Apache
  Kafka advertises the two APIs only with a plug-in that takes what is pushed. Without subscriptions clients ask every
  five minutes and push nothing.
- `otlp` and `pushed` are loaded by the first push.
- Java clients are asked for differences (delta temporality), as Apache Kafka asks: counters are added up here, by the
  broker that was pushed to. The sum over brokers is the client's.
- What is pushed is a stranger's word: names, labels and numbers are bounded, and no pushed name can be one of the
  broker's own (`pushed`).
"""
