"""Every kind of fault reaches every client: as the error that it names, or as what such a fault is to that client; and
when it is over, all goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.harness.brokers import Broker, start_barnabas
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.injected.clients import Client, Failed, Java, KafkaPython, Librdkafka, Patience
from compat_tests.subjects.injected.control import Control, Fault

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

WITHIN_S = 120
CLIENTS = [
    pytest.param("java", marks=pytest.mark.jvm, id="java"),
    pytest.param("librdkafka", id="librdkafka"),
    pytest.param("kafka-python", id="kafka-python"),
]


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = start_barnabas(tmp_path_factory.mktemp("injected"), more=["--control"])
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def control(controlled: Broker) -> Control:
    def urls() -> list[str]:
        lines = controlled.log_tail().splitlines(keepends=True)
        return [line.strip() for line in lines if line.startswith("control=") and line.endswith("\n")]

    wait_until(urls, "the address", WITHIN_S)
    (url,) = urls()
    return Control(url.removeprefix("control="))


@pytest.fixture(scope="module", params=CLIENTS)
def client(
    request: pytest.FixtureRequest, controlled: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    made: Client
    if request.param == "java":
        made = Java(controlled.bootstrap, tmp_path_factory.mktemp("java") / "log")
    else:
        made = {"librdkafka": Librdkafka, "kafka-python": KafkaPython}[request.param](controlled.bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(client: Client, unique: Callable[[str], str]) -> str:
    """A topic that exists."""
    name = unique("faulted")
    assert client.produce(name, 10) == 0
    return name


def failure(act: Callable[[], object]) -> str:
    """The name of the error that this ends with."""
    with pytest.raises(Failed) as caught:
        act()
    print(caught.value)
    return caught.value.name


def is_never_given_up(client: Client, fault: Fault, topic: str) -> bool:
    """Whether a message that may take a moment only was sent again and again meanwhile."""
    before = fault.hits
    assert failure(lambda: client.produce(topic, 0, Patience.SHORT_FOR_ALL)) == "_MSG_TIMED_OUT"
    return fault.hits > before + 1


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
        "MESSAGE_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "KAFKA_STORAGE_ERROR",  # a full disk
        "INVALID_RECORD",
        "POLICY_VIOLATION",
    ],
)
def test_an_error_of_produce(client: Client, control: Control, topic: str, name: str) -> None:
    with control.fault(api="Produce", topic=topic, error=name) as fault:
        # librdkafka looks for another leader as long as the message may take, however few retries it has.
        if isinstance(client, Librdkafka) and name == "NOT_LEADER_OR_FOLLOWER":
            wait_until(lambda: is_never_given_up(client, fault, topic), "one message twice in its time", WITHIN_S)
        else:
            assert failure(lambda: client.produce(topic, 0)) == name
            assert fault.hits == 1
    assert client.produce(topic, 0) == 1


@pytest.mark.parametrize("name", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR"])
def test_retries_get_over_it(client: Client, control: Control, topic: str, name: str) -> None:
    with control.fault(api="Produce", topic=topic, error=name, times=2) as fault:
        assert client.produce(topic, 10) == 1
        assert fault.hits == 2


def test_another_leader_is_looked_for(client: Client, control: Control, topic: str) -> None:
    usual = []  # a slow machine makes clients ask more often
    for _ in range(3):
        with control.counted("Metadata") as metadata:
            client.produce(topic, 10)
            usual.append(metadata.seen)
    # kafka-python asks for metadata beside its retries, and is done before if there are few of them.
    fault = {"api": "Produce", "topic": topic, "error": "NOT_LEADER_OR_FOLLOWER", "times": 8}
    with control.fault(**fault), control.counted("Metadata") as metadata:
        assert client.produce(topic, 10) == 4
        assert metadata.seen > min(usual)


def test_an_error_of_fetch(client: Client, control: Control, topic: str) -> None:
    with control.fault(api="Fetch", topic=topic, error="TOPIC_AUTHORIZATION_FAILED") as fault:
        assert failure(lambda: client.consume(topic)) == "TOPIC_AUTHORIZATION_FAILED"
        assert fault.hits >= 1
    assert client.consume(topic) == 0


def test_consumers_get_over_a_new_leader(client: Client, control: Control, topic: str) -> None:
    with control.fault(api="Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert client.consume(topic) == 0
        assert fault.hits == 2


def test_an_error_of_metadata(client: Client, control: Control, topic: str) -> None:
    apis = ["Metadata", "DescribeTopicPartitions"]
    with control.fault(api=apis, topic=topic, error="TOPIC_AUTHORIZATION_FAILED") as fault:
        assert failure(lambda: client.describe(topic)) == "TOPIC_AUTHORIZATION_FAILED"
        assert fault.hits >= 1
    assert client.describe(topic) == 1


def test_stale_metadata(client: Client, control: Control, unique: Callable[[str], str]) -> None:
    name = unique("late")
    stale = {"api": ["Metadata", "DescribeTopicPartitions"], "stale": True}
    with control.fault(**stale, client_id="other"), control.fault(**stale, nth=100):
        assert client.produce(name, 10) == 0  # neither strikes: another client, the hundredth
    other = unique("later")
    with control.fault(**stale) as fault:
        assert failure(lambda: client.describe(other)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert client.describe(name) == 1
        assert fault.hits >= 2


# -- groups ----------------------------------------------------------------------------------------------------------


def test_an_error_of_a_group(client: Client, control: Control, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    with control.fault(api="JoinGroup", group=group, error="GROUP_AUTHORIZATION_FAILED") as fault:
        assert failure(lambda: client.join(topic, group)) == "GROUP_AUTHORIZATION_FAILED"
        assert fault.hits >= 1
    assert client.join(topic, group) == 0


LATE_S = 2


def looks_after_a_refusal(client: Client, control: Control, topic: str, group: str) -> bool:
    """Fails unless the commit looks for the coordinator after its refusal. False: this test itself stood still, so that
    it cannot know.
    """
    # Late, so that the lookups before it can be told from those after it: on a slow machine librdkafka looks several
    # times while it waits for the first answer.
    late = {"times": 1, "delay_ms": LATE_S * 1000}
    with (
        ThreadPoolExecutor(1) as pool,
        control.fault(api="OffsetCommit", group=group, error="NOT_COORDINATOR", **late) as fault,
        control.counted("FindCoordinator") as lookups,
    ):
        not_yet = time.monotonic()
        commit = pool.submit(client.commit, topic, group)

        def is_struck() -> bool:
            nonlocal not_yet
            asked = time.monotonic()
            if fault.hits == 1:
                return True
            not_yet = asked
            return False

        wait_until(is_struck, "the commit", WITHIN_S)
        before = lookups.seen
        is_known = time.monotonic() < not_yet + LATE_S
        assert commit.result() == 1
        assert fault.hits == 1
        assert lookups.seen > before or not is_known
        return is_known


def test_the_coordinator_moves_before_a_commit(
    client: Client, control: Control, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    assert client.commit(topic, group) == 1
    while not looks_after_a_refusal(client, control, topic, group):
        pass


def test_the_coordinator_moves_under_a_member(
    client: Client, control: Control, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with control.fault(api=["JoinGroup", "SyncGroup"], group=group, error="NOT_COORDINATOR", times=2) as fault:
        assert client.join(topic, group) == 0
        assert fault.hits == 2


# -- time and connections --------------------------------------------------------------------------------------------

TOO_LATE = {
    "Java": {"REQUEST_TIMED_OUT"},
    "Librdkafka": {"_MSG_TIMED_OUT", "_TIMED_OUT"},
    "KafkaPython": {"REQUEST_TIMED_OUT", "KafkaTimeoutError"},
}
BROKEN = {
    "Java": {"NETWORK_EXCEPTION"},
    "Librdkafka": {"_TRANSPORT"},
    "KafkaPython": {"KafkaConnectionError", "NETWORK_EXCEPTION"},
}


def test_a_delay(client: Client, control: Control, topic: str) -> None:
    # For so long that the client, too, may stand still before it looks whether the answer has come.
    with control.fault(api="Produce", topic=topic, delay_ms=30_000, times=1) as fault:
        assert (
            failure(lambda: client.produce(topic, 0, Patience.SHORT_FOR_AN_ANSWER)) in TOO_LATE[type(client).__name__]
        )
        wait_until(lambda: fault.hits == 1, "the request", WITHIN_S)


@pytest.mark.parametrize("what", [{"drop": "request"}, {"drop": "answer"}, {"half": True}], ids=str)
def test_a_connection_that_breaks(client: Client, control: Control, topic: str, what: dict[str, object]) -> None:
    with control.fault(api="Produce", topic=topic, times=1, **what) as fault:
        assert failure(lambda: client.produce(topic, 0)) in BROKEN[type(client).__name__]
        assert fault.hits == 1
    written = what != {"drop": "request"}
    assert client.produce(topic, 0) == 1 + written


@pytest.mark.parametrize("what", [{"drop": "request"}, {"drop": "answer"}, {"half": True}], ids=str)
def test_an_idempotent_producer_writes_once(
    client: Client, control: Control, topic: str, what: dict[str, object]
) -> None:
    with control.fault(api="Produce", topic=topic, times=2, **what) as fault:
        client.idempotent(topic)
        assert fault.hits == 2
    assert client.produce(topic, 0) == 2


@pytest.mark.parametrize("what", [{"drop": "request"}, {"half": True}], ids=str)
def test_a_consumer_connects_again(client: Client, control: Control, topic: str, what: dict[str, object]) -> None:
    with control.fault(api="Fetch", topic=topic, times=2, **what) as fault:
        assert client.consume(topic) == 0
        assert fault.hits == 2
