"""Authentication, access control and quotas, as values and machines.

Other rooms use `principals` and `session`; each subject has a folder of its own. May import `config`, `settings` and
`runtime`.

Not obvious:

- Nothing here has a clock, a task or a socket: time is an argument, messages go in and out as bytes
  (`server/tests/test_layers.py`). Connections, the metadata store and the log of denials are driven from above.
- A `Session` belongs to a connection and is replaced as a whole when its peer authenticates (again).
- Without an authorizer there is none: `None`, not one that allows everything. So requests pay nothing for checks that
  always pass.
"""
