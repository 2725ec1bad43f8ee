"""TLS: what a listener's settings become, the bytes of one connection, and who a certificate is.

`channel` is one end of one connection, without IO; `names` writes the subject of a certificate as text, and `mapping`
makes the name of a principal of it.

Not obvious:

- A channel takes ciphertext and gives plaintext, and the other way round; it never holds more than it was given in one
  call, so the caller decides how much memory a connection has.
- Names are RFC 2253 as Java writes them, since that is what access control lists of Apache Kafka's clusters hold.
"""
