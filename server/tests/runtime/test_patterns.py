"""Clients' regular expressions: what matches, what is refused, what stays."""

from __future__ import annotations

import gc
import logging
import sys

import pytest
import re2

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.coordinators import group_patterns
from barnabas.server.runtime import patterns
from barnabas.server.runtime.patterns import compile_pattern


def test_all_of_a_text_has_to_match() -> None:
    is_match = compile_pattern("a|b+")
    assert [text for text in ("a", "bb", "ab", "") if is_match(text)] == ["a", "bb"]


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        compile_pattern("(")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_expression_outlives_its_use() -> None:
    kind = type(re2.compile("any"))
    re2.purge()

    def kept() -> int:
        return sum(type(one) is kind for one in gc.get_objects())

    before = kept()
    is_match = compile_pattern("[a-z]{1,50}")
    assert is_match("abc")
    assert kept() == before + 1
    del is_match
    assert kept() == before


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation without google-re2."""
    monkeypatch.setitem(sys.modules, "re2", None)
    monkeypatch.setattr(patterns, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_re2")
def test_without_the_library_every_expression_is_refused_by_its_name() -> None:
    with pytest.raises(KafkaError, match="package google-re2 is not installed") as refused:
        compile_pattern("a")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    why = group_patterns.why_invalid("a.*")
    assert why == (
        "SubscribedTopicRegex `a.*` cannot be used: this broker matches no regular expressions, as the Python package "
        "google-re2 is not installed there."
    )
    assert group_patterns.matches(["a.*"], ["ab"]) == {"a.*": frozenset()}


@pytest.mark.usefixtures("without_re2")
def test_without_the_library_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas.broker"):
        patterns.say_if_unsupported()
    (line,) = caplog.messages
    assert "INVALID_REGULAR_EXPRESSION" in line
    assert "google-re2 is not installed" in line


def test_with_the_library_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas.broker"):
        patterns.say_if_unsupported()
    assert caplog.messages == []
