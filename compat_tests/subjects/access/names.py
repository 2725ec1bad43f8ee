"""The names that a cell speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from compat_tests.subjects.access.acls import CLUSTER_NAME, Kind


class Token(NamedTuple):
    """A delegation token: its id, and its secret."""

    token_id: str
    hmac: bytes


NO_TOKEN = Token("no token", b"no token")


@dataclass(frozen=True)
class Names:
    """`mine`: what the scenario's ACLs name. `other`: what is there and nobody is permitted, but by `*`. `none`: what
    is not there. broker_id: of the broker that is asked.
    """

    stem: str
    broker_id: int
    topic_id: bytes = bytes(16)
    other_id: bytes = bytes(16)
    token: Token = NO_TOKEN
    other_token: Token = NO_TOKEN

    @property
    def topic(self) -> str:
        return f"{self.stem}-topic"

    @property
    def group(self) -> str:
        return f"{self.stem}-group"

    @property
    def transaction(self) -> str:
        return f"{self.stem}-transaction"

    @property
    def owner(self) -> str:
        """The user whose the token is."""
        return f"{self.stem}-owner"

    @property
    def other_topic(self) -> str:
        return f"other-{self.stem.partition('-')[0]}-topic"

    @property
    def other_group(self) -> str:
        return f"other-{self.stem.partition('-')[0]}-group"

    @property
    def other_transaction(self) -> str:
        return f"other-{self.stem.partition('-')[0]}-transaction"

    @property
    def no_topic(self) -> str:
        return f"none-{self.stem}-topic"

    @property
    def no_id(self) -> bytes:
        return (b"none" + self.stem.encode())[:16].ljust(16, b"\1")

    @property
    def no_group(self) -> str:
        return f"none-{self.stem}-group"

    @property
    def no_transaction(self) -> str:
        return f"none-{self.stem}-transaction"

    def of(self, kind: Kind) -> str:
        """The resource that ACLs are about."""
        if kind is Kind.CLUSTER:
            return CLUSTER_NAME
        return {
            Kind.TOPIC: self.topic,
            Kind.GROUP: self.group,
            Kind.TRANSACTIONAL_ID: self.transaction,
            Kind.DELEGATION_TOKEN: self.token.token_id,
            Kind.USER: f"User:{self.owner}",
        }[kind]

    def prefix(self, kind: Kind) -> str:
        """The beginning of its name, which no other's begins with."""
        if kind is Kind.DELEGATION_TOKEN:
            return self.token.token_id[:-1]
        return {Kind.CLUSTER: CLUSTER_NAME, Kind.USER: f"User:{self.stem}-"}.get(kind, f"{self.stem}-")

    def roles(self) -> dict[str | bytes, str]:
        """What answers may name, by the part it plays."""
        return {
            self.topic: "mine",
            self.group: "mine",
            self.transaction: "mine",
            self.topic_id: "mine",
            self.token.token_id: "mine",
            self.other_topic: "other",
            self.other_group: "other",
            self.other_transaction: "other",
            self.other_id: "other",
            self.other_token.token_id: "other",
            self.no_topic: "none",
            self.no_group: "none",
            self.no_transaction: "none",
            self.no_id: "none",
            str(self.broker_id): "broker",
        }
