"""The delegation tokens of the cluster: read from the store before this broker serves, kept up to date, and changed.

Any broker changes them: it writes the token and a notice in one commit, and applies it itself; others read it again
when they see the notice. An unreadable token is ignored. The controller removes expired ones. Source:
`DelegationTokenManagerZk.scala`, `KafkaController.scala` (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import BadNode, NoSuchNode, Store, StoreError, StoreFailed
from barnabas.replication.tree import token_nodes
from barnabas.replication.tree.token_nodes import StoredToken, TooManyChanges
from barnabas.server.cluster.change_notices import ChangeNotices, follow
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.security.principals import Principal
from barnabas.server.security.tokens.known import KnownTokens
from barnabas.server.security.tokens.model import DelegationToken
from barnabas.server.security.tokens.rules import expired
from barnabas.server.security.tokens.settings import TokenSettings

log = logging.getLogger("barnabas.security")


class StoredTokens:
    """`known`: the tokens in force on this broker. wall_ms(): milliseconds since the epoch. new_id(): an unguessable
    text for a token.
    """

    def __init__(
        self,
        store: Store,
        known: KnownTokens,
        settings: TokenSettings,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.known = known
        self._store = store
        self._rules = settings.rules
        self._check_interval_s = settings.check_interval_s
        self._wall_ms = wall_ms
        self._new_id = new_id
        decode = token_nodes.decode_change
        self._notices = ChangeNotices(store, token_nodes.CHANGES, decode, wall_ms, self._reload, self._unreadable)
        self._lock = trio.Lock()  # a value read must not be applied after one written later

    async def load(self) -> None:
        """Read all tokens of the store. Raises StoreError."""
        await token_nodes.make_token_roots(self._store)
        await self._notices.skip()
        await self._read_all()
        log.info("loaded %d delegation tokens", len(self.known))

    async def run(self) -> None:
        """Follow the store until cancelled."""
        await follow(self._store, [self._notices], self._read_all, "the delegation tokens")

    async def sweep(self, member: ClusterMember) -> None:
        """While this broker is the controller, remove expired tokens, now and after each
        `delegation.token.expiry.check.interval.ms`.
        """
        while True:
            await member.image_until(lambda image: member.is_active)
            try:
                await self.remove_expired()
            except StoreFailed:
                raise
            except StoreError as error:
                log.warning("cannot remove expired delegation tokens: %s", error)
            await trio.sleep(self._check_interval_s)

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """A new token. max_lifetime_ms: 0 or less: the longest allowed. Raises KafkaError: INVALID_PRINCIPAL_TYPE, and
        UNKNOWN_SERVER_ERROR when the store rejects it.
        """
        token = self._rules.issued(self._new_id(), owner, requester, renewers, max_lifetime_ms, self._wall_ms())
        async with self._lock:
            try:
                await token_nodes.create_token(self._store, _stored(token))
            except StoreError as error:
                raise _not_taken(token.token_id, error) from None
            self.known.put(token)
        log.info("delegation token %s for %s, requested by %s", token.token_id, owner, requester)
        return token

    async def renew(self, caller: Principal, secret: bytes, period_ms: int) -> int:
        """Set the expiry of a token to `period_ms` from now, within its lifetime; 0 or less: the default period.
        Returns it, in ms since the epoch. Raises KafkaError: DELEGATION_TOKEN_NOT_FOUND, and as `TokenRules.renewed`,
        `create`.
        """
        now_ms = self._wall_ms()
        after = await self._change(secret, lambda token: self._rules.renewed(token, caller, period_ms, now_ms))
        assert after is not None
        log.info("delegation token %s of %s renewed", after.token_id, after.owner)
        return after.expiry_ms

    async def expire(self, caller: Principal, secret: bytes, period_ms: int) -> int:
        """Set the expiry of a token to `period_ms` from now; below 0: remove it. Returns and raises as `renew`."""
        now_ms = self._wall_ms()
        after = await self._change(secret, lambda token: expired(token, caller, period_ms, now_ms))
        if after is None:
            return now_ms
        log.info("delegation token %s of %s expires at %d", after.token_id, after.owner, after.expiry_ms)
        return after.expiry_ms

    async def remove_expired(self) -> None:
        """Remove all expired tokens. Raises StoreError."""
        now_ms = self._wall_ms()
        for token in self.known:
            if not token.is_expired(now_ms):
                continue
            async with self._lock:
                try:
                    await self._edit(token.token_id, lambda now: None if now.is_expired(now_ms) else now)
                except NoSuchNode:
                    pass  # another broker has removed it
                except (BadNode, TooManyChanges) as error:
                    log.error("cannot remove an expired delegation token: %s", error)

    async def _change(
        self, secret: bytes, edit: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken | None:
        token = self.known.with_hmac(secret)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        async with self._lock:
            try:
                return await self._edit(token.token_id, edit)
            except NoSuchNode:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            except (StoreError, BadNode, TooManyChanges) as error:
                raise _not_taken(token.token_id, error) from None

    async def _edit(
        self, token_id: str, edit: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken | None:
        """Change a token in the store, and apply it here. Raises NoSuchNode: the token does not exist any more."""

        def edit_stored(stored: StoredToken) -> StoredToken | None:
            after = edit(_token(stored))
            return None if after is None else _stored(after)

        try:
            stored = await token_nodes.update_token(self._store, token_id, edit_stored)
        except NoSuchNode:
            self.known.drop(token_id)
            raise
        if stored is None:
            self.known.drop(token_id)
            log.info("delegation token %s was removed", token_id)
            return None
        token = _token(stored)
        self.known.put(token)
        return token

    async def _read_all(self) -> None:
        async with self._lock:
            tokens = await token_nodes.read_all_tokens(self._store, self._unreadable)
            present = {stored.token_id for stored in tokens}
            for token in self.known:
                if token.token_id not in present:
                    self.known.drop(token.token_id)
            for stored in tokens:
                self.known.put(_token(stored))

    async def _reload(self, token_id: str) -> None:
        async with self._lock:
            stored: StoredToken | None = None
            try:
                stored = await token_nodes.read_token(self._store, token_id)
            except BadNode as error:
                self._unreadable(error)
            if stored is None:
                self.known.drop(token_id)
            else:
                self.known.put(_token(stored))

    @staticmethod
    def _unreadable(error: BadNode) -> None:
        log.error("cannot read a delegation token, rejecting log-ins with it: %s", error)


def _not_taken(token_id: str, error: Exception) -> KafkaError:
    log.error("cannot change delegation token %s: %s", token_id, error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata store did not take the change.")


def _stored(token: DelegationToken) -> StoredToken:
    return StoredToken(
        token.token_id,
        str(token.owner),
        str(token.requester),
        tuple(map(str, token.renewers)),
        token.issue_ms,
        token.max_ms,
        token.expiry_ms,
    )


def _token(stored: StoredToken) -> DelegationToken:
    return DelegationToken(
        stored.token_id,
        Principal.parse(stored.owner),
        Principal.parse(stored.requester),
        tuple(map(Principal.parse, stored.renewers)),
        stored.issue_ms,
        stored.max_ms,
        stored.expiry_ms,
    )
