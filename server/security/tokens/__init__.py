"""Delegation tokens (KIP-48, KIP-373): who logged in by other means is given an id and a secret, which others log in
with in his name by SCRAM, until the token expires.

`model` is a token, `rules` what becomes of one that is asked for, renewed or expired, `known` all that this broker
knows, with what SCRAM asks of it, `settings` what the settings say.

Not obvious:

- The secret (HMAC) is made of the id and of `delegation.token.secret.key`, which all brokers of a cluster share. It is
  stored nowhere, and shown by no repr and in no line of the log.
- Its base64 text is the password of the log-in. What SCRAM keeps of that is made when a token is first used.
- An expired token stays until the controller removes it; log-ins with it are rejected. Apache Kafka accepts them, and
  closes the connection at its next request.
"""
