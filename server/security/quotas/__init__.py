"""Quotas: how much of a broker one user, one client id or one address may use, and the delay of those that used more.

`rates` measures (a windowed rate, a token bucket), `limits` finds a client's limit and those that share it, `shares`
keeps what is measured of each. What is measured, and what a delay does to a connection, is not known here.

Not obvious:

- Quotas are per broker, as in Apache Kafka: a client with three leaders gets three times the rate.
- The most specific limit that fits decides alone, also on who shares it: a limit of a user is one bucket for all
  clients of that user, a default limit of client ids is a bucket for each client id.
- A fresh client may take ten windows' worth at once: the window of a rate is never shorter than that.
- While there is no limit of a kind, nothing is measured for it.
"""
