"""`run.py test`: what is run in which tier, beside what, and the summary at the end.

`preflight` looks what the machine offers, `fetch` fetches jars, `events` is the pytest plugin that says what was
collected and what became of it, `plan` makes steps of that, `lanes` runs them, some side by side, and `report` prints.
Which tests belong to which step is said by their markers (`slow`, `campaign`, `jvm`, `kcat`, `go`: pyproject.toml) and
by the folders they lie in; no name of a test stands here. Everything but `events` and `fetch` uses the standard library
only: it runs before anything is installed.
"""
