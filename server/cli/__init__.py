"""The command line: `barnabas serve`, `dev`, `cluster`, `config`, `log`, and for any Kafka `topic`, `consume`, ….

Not obvious: modules are imported where a command needs them, as `--help` and `log` must not wait for a broker's parts.
"""
