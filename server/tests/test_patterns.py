"""Clients' regular expressions: what matches, what is refused, what stays."""

from __future__ import annotations

import gc

import pytest
import re2

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.patterns import compile_pattern


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
