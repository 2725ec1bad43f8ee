"""The checker finds what it is there to find, and nothing else."""

from __future__ import annotations

import pytest

from compat_tests.faults.eos.checker import Fate, Findings, Records, Txn, check

TXNS = [
    Txn("w", 0, 0.0, [0, 1], Fate.COMMITTED, 1.0),
    Txn("w", 1, 1.0, [0, 1], Fate.ABORTED, 2.0),
    Txn("w", 2, 2.0, [0, 0, 1], Fate.UNKNOWN),
    Txn("w", 3, 3.0, [1], Fate.COMMITTED, 4.0),
]
A, B, D = ("w", 0, 0), ("w", 0, 1), ("w", 3, 0)
U0, U1, U2 = ("w", 2, 0), ("w", 2, 1), ("w", 2, 2)


def found(findings: Findings) -> dict[str, int]:
    """How many of each kind, without those there are none of."""
    return {kind: len(texts) for kind, texts in findings.kinds.items() if texts}


@pytest.mark.parametrize("unknown", [False, True], ids=["without the unknown one", "with it"])
def test_all_is_well(unknown: bool) -> None:
    originals: Records = {
        0: [(0, A), *([(5, U0), (6, U1)] if unknown else [])],
        1: [(0, B), *([(4, U2)] if unknown else []), (9, D)],
    }
    copies = {index: [(2 * offset, value) for offset, value in records] for index, records in originals.items()}
    findings = check(TXNS, originals, copies, {"originals": {0: [(0, A)]}, "copies": {1: [(18, D)]}})
    assert findings.good, findings
    assert findings.counts["seen by the reader"] == 2
    assert findings.counts["transactions committed"] == 2


@pytest.mark.parametrize(
    ("originals", "kinds"),
    [
        ({0: [(0, A)], 1: [(0, B)]}, {"lost": 1}),
        ({0: [], 1: [(9, D)]}, {"lost": 2}),
        ({0: [(0, A), (3, ("w", 1, 0))], 1: [(0, B), (9, D)]}, {"visible": 1}),
        ({0: [(0, A), (5, U0), (6, U1)], 1: [(0, B), (9, D)]}, {"torn": 1}),
        ({0: [(0, A), (2, A)], 1: [(0, B), (9, D)]}, {"doubled": 1}),
        ({0: [(0, A)], 1: [(0, D), (9, B)]}, {"reordered": 1}),
        ({0: [(0, A), (5, U1), (6, U0)], 1: [(0, B), (4, U2), (9, D)]}, {"reordered": 1}),
        ({0: [(0, A)], 1: [(0, B), (9, D), (10, ("z", 0, 0))]}, {"phantoms": 1}),
        ({0: [(0, B)], 1: [(0, A), (9, D)]}, {"phantoms": 2}),
    ],
    ids=["lost", "all lost", "visible", "torn", "doubled", "reordered", "in it", "phantom", "elsewhere"],
)
def test_transactions(originals: Records, kinds: dict[str, int]) -> None:
    assert found(check(TXNS, originals, originals)) == kinds


@pytest.mark.parametrize(
    ("copies", "count"),
    [([B], 1), ([], 2), ([B, D, B], 1), ([D, B], 1), ([B, D, ("w", 1, 1)], 1)],
    ids=["missing", "none", "twice", "order", "of an aborted one"],
)
def test_copies(copies: list[tuple[str, int, int]], count: int) -> None:
    originals: Records = {0: [(0, A)], 1: [(0, B), (9, D)]}
    findings = check(TXNS, originals, {0: [(0, A)], 1: list(enumerate(copies))})
    assert found(findings) == {"copies": count}


def test_what_was_seen_stays() -> None:
    originals: Records = {0: [(0, A)], 1: [(0, B), (9, D)]}
    seen = {"originals": {0: [(1, A)], 1: [(9, D), (4, U2)]}, "copies": {1: [(9, B)]}}
    assert found(check(TXNS, originals, originals, seen)) == {"changed": 3}
