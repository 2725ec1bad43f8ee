"""Error codes against kafka-python's table, and the two codec errors' place in the world."""

from barnabas.kproto import DecodeError, EncodeError, ErrorCode, KafkaError
from barnabas.kproto.tests.kafka_python import error_names


def test_codes_are_those_of_kafka() -> None:
    theirs = error_names()
    # It has words of its own for these, and errors of its own without a number.
    del theirs[None]
    own = {-1: "UNKNOWN", 0: "NO_ERROR", 6: "NOT_LEADER_FOR_PARTITION", 10: "MESSAGE_SIZE_TOO_LARGE"}
    own |= {17: "INVALID_TOPIC", 39: "INVALID_REPLICATION_ASSIGNMENT"}
    assert {number: theirs.pop(number) for number in own} == own
    assert len(theirs) > 100
    ours = {code.value: code.name for code in ErrorCode}
    assert {number: ours.get(number) for number in theirs} == theirs
    assert list(ours) == list(range(-1, 134))


def test_kafka_error() -> None:
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert (error.code, error.message, str(error)) == (41, None, "NOT_CONTROLLER")
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "no such key")) == "INVALID_CONFIG: no such key"


def test_whose_fault_it_is() -> None:
    assert not issubclass(DecodeError, EncodeError | KafkaError)
    assert not issubclass(EncodeError, KafkaError)


def test_a_peers_number_is_a_code_or_unknown() -> None:
    assert ErrorCode.of(41) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode.of(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
