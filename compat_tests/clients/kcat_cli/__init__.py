"""kcat (librdkafka of the distribution, years older than confluent-kafka's): each case is a few runs of the program."""
