"""What tools and consoles ask for, answered as by Apache Kafka 4.3.1: each test runs on either broker (`--peer kafka`).
It asks by `kproto`, in versions that no stock client sends any more, too.
"""
