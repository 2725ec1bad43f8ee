"""What librdkafka itself writes when it numbers anew, with a broker that is made to refuse: it is understood."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

import barnabas
from compat_tests.faults.cluster.load import logged
from compat_tests.faults.cluster.renumbering import renumbered


def test_several_batches_are_on_their_way(tmp_path: Path) -> None:
    """The second of five is refused, as by a broker that is not yet leader; those behind it are out of order."""
    log = tmp_path / "clients.log"
    with barnabas.Broker() as broker:
        broker.create_topic("doubled")
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "max.in.flight": 5,
                "batch.num.messages": 1,
                "retry.backoff.ms": 50,
                **logged("load-1", log),
            }
        )
        producer.produce("doubled", b"knows the partition")
        producer.flush()
        with (
            broker.faults.produce(error="NOT_LEADER_OR_FOLLOWER", nth=2, times=1) as refused,
            broker.faults.produce(delay_s=0.5, times=1),  # until the others are there
        ):
            for number in range(8):
                producer.produce("doubled", b"%d" % number)
            assert producer.flush(60) == 0
            assert refused.hits == 1
    found = renumbered(log)
    assert found.excused == {1}, found.lines
    assert len([line for line in found.lines if "(OUT_OF_ORDER_SEQUENCE_NUMBER, " in line]) >= 2
