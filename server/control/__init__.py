"""The control channel of a broker for tests: a JSON API over HTTP, for loopback alone (`barnabas dev --control`).

A test suite does through it what no Kafka client can ask for: faults (`barnabas.server.requests.faults`) and others.
`barnabas.Broker` uses it; programs in other languages find it by the line `control=http://…` of `barnabas dev`.
docs/testing.md describes it for users. A broker that serves (`barnabas serve`) has none.

| module | what |
| --- | --- |
| `listener` | the address, bound when the broker starts; loads all else when the first client connects |
| `service` | who may ask, and from a request to a route and back |
| `routing`, `fields` | a route, and the fields of a request's body: read, checked, refused |
| `controlled` | what a route may use |
| `routes` | the list of all routes, from the files `…_routes` |

A route is a function `async (controlled, call) -> JSON value` in the file of its subject, in the tuple `ROUTES` at its
end; `routes.py` names the files. It raises `Refusal` for what the caller did wrong.

May import `requests` and below; only `broker` imports it.

Not obvious:

- A web page that somebody has open can send requests to loopback. So requests with a header Origin are refused,
  and bodies that do not say that they are JSON; and a Host that is no loopback name, as a page has after DNS rebinding.
- Whoever may connect to loopback of this machine may do all that is here: it is for tests.
- Idle connections, and slow ones, are closed by trio's clock as all others (`barnabas.server.httpd`).
"""
