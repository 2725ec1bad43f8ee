"""The command line: `barnabas serve`, `dev`, `config`, `log`.

Not obvious: modules are imported where a command needs them, as `--help` and `log` must not wait for a broker's parts.
"""
