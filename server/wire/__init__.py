"""`barnabas wire`: what clients and brokers say to each other, explained, recorded, and said again to another broker.

| module | what |
| --- | --- |
| `frames` | bytes of one direction → frames; what is not Kafka is passed on as it is |
| `conversation` | one connection without IO: frames in, events out; who was answered, when, in what order |
| `shown` | a message as JSON, with errors by name, and secrets hidden |
| `batches` | what is in a field of records, and what is wrong with it |
| `addresses` | the advertised addresses in answers, and other ones in their place |
| `tape` | the file of a recording, line by line |
| `replaying` | a recorded request made valid for another broker; two answers compared |
| `tap` | listens, connects, passes bytes on, prints: all that needs trio |
| `replay` | sends a recording to a broker: the same |

May import `client` (how a broker is reached) and below. It knows the protocol from `kproto` alone, so it works between
any client and any broker.

Not obvious:

- The tap passes on the bytes that it got. Only answers with advertised addresses are encoded anew, and only if an
  address changes. What it cannot read it says, and passes on.
- An event is a dictionary that is printed as one line of JSON.
- Secrets are neither shown nor recorded: SaslAuthenticate is counted, not kept. Everything else is: a recording holds
  all records that were sent while it was made.
"""
