"""The commands that ask any Kafka: `barnabas topic`, `produce`, `consume`, `group`. What they ask with is
`barnabas.server.client`.
"""
