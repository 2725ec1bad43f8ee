"""A delegation token, without its secret. Times are of the wall clock, in ms since the epoch."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from barnabas.server.security.principals import Principal


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Who logs in with it is `owner`; `requester` had it made, and may see it; `renewers` may renew it beside the
    owner. It ends at `expiry_ms`, which can be moved, but not beyond `max_ms`.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether it has come to its end."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """Whether it is the owner or a renewer, who move its end."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principals: Set[Principal]) -> bool:
        """Whether one of these owns it, may renew it, or had it made."""
        return self.owner in principals or self.requester in principals or not principals.isdisjoint(self.renewers)
