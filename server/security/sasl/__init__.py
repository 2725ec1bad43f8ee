"""SASL without IO: what is said on a connection until it is known who speaks.

`authenticator` is the server's end of one connection: frames go in, frames and verdicts come out. It holds one
`Exchange` of the mechanism that the client chose: `plain`, `scram`, `oauthbearer`. `client` is the other end, for
connections to other brokers. Beside them what an exchange asks: `users` (SCRAM credentials by name), `jwt` and `jwks`
(who has signed a token).

Not obvious:

- An exchange raises `Refused` with a reason, which is for the broker's log. The message to the peer is `Refused.said`,
  mostly none: it must not learn whether there is such a user.
- Secrets are compared in constant time, and no value here shows one in its repr.
- Source: RFC 4616 (PLAIN), 5802 and 7677 (SCRAM), 7628 (OAUTHBEARER), KIP-43, 152 and 368.
"""

from __future__ import annotations

from typing import Final

HANDSHAKE_VERSIONS: Final = (0, 1)
AUTHENTICATE_VERSIONS: Final = (0, 2)
