"""The quotas of clients in force on this broker: read from the store before it serves, kept up to date, and changed.

Any broker changes them, as any broker may serve the client. Host names with a limit of connections are resolved when it
is set; as in Apache Kafka, not again when their addresses change.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator, Mapping

from barnabas.replication import CLIENT_CONFIG, DEFAULT_ENTITY, IP_CONFIG, USER_CONFIG
from barnabas.replication.tree.client_nodes import user_clients, user_of_clients
from barnabas.server.cluster.config_writes import write_entity
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.network.addresses import addresses_of
from barnabas.server.runtime.wakeup import Wakeup
from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey, limits_of
from barnabas.server.security.quotas.limits import DEFAULT, Entity
from barnabas.server.security.quotas.rates import Window
from barnabas.server.security.quotas.shares import ConnectionRates, MutationQuota, RateQuota

log = logging.getLogger("barnabas.quotas")


class ClientQuotas:
    """`produce`, `fetch`: bytes; `request`: percents of a thread's time; `mutations`: partitions; `connections`: of
    addresses. Each has its limits, which change only here.
    """

    def __init__(self, member: ClusterMember, window: Window, mutation_window: Window) -> None:
        self.produce = RateQuota(window)
        self.fetch = RateQuota(window)
        self.request = RateQuota(window, delay_ms_max=round(window.sample_s * 1000))
        self.mutations = MutationQuota(mutation_window)
        self.connections = ConnectionRates(window)
        self.limits_requests = False
        """Whether there is any quota but of connections: the only check that each request makes."""
        self._member = member
        self._entities: dict[QuotaEntity, Mapping[QuotaKey, float]] = {}
        self._addresses: dict[str, list[str]] = {}  # of hosts with a limit
        self._unresolved: dict[str, None] = {}
        self._to_resolve = Wakeup()
        member.watch_clients(self._changed)

    def entities(self) -> Iterator[tuple[QuotaEntity, Mapping[QuotaKey, float]]]:
        """The entities with limits, and the limits."""
        yield from list(self._entities.items())

    async def alter(self, entity: QuotaEntity, changes: Mapping[QuotaKey, str | None]) -> None:
        """Set limits, or remove them (None), and leave the others. On return the change is in force here. Raises
        KafkaError as `write_entity`.
        """

        def edit(stored: Mapping[str, str]) -> Mapping[str, str]:
            after = dict(stored)
            for key, text in changes.items():
                if text is None:
                    after.pop(key.value, None)
                else:
                    after[key.value] = text
            return after

        kind, name = _place(entity)
        await write_entity(self._member, kind, name, edit)

    async def run(self) -> None:
        """Resolve host names until cancelled."""
        while True:
            await self._to_resolve.wait()
            while self._unresolved:
                host = next(iter(self._unresolved))
                del self._unresolved[host]
                try:
                    addresses = await addresses_of(host)
                except OSError as error:
                    log.error("no connection_creation_rate for %s, it cannot be resolved: %s", host, error)
                else:
                    self._put_addresses(host, addresses)

    def _changed(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        entity = _entity(kind, DEFAULT if name == DEFAULT_ENTITY else name)
        limits, problems = limits_of(entity, config)
        for problem in problems:
            log.error("%s", problem)
        before = self._entities.pop(entity, {})
        if limits:
            self._entities[entity] = limits
        if limits == before:
            return
        log.info("quotas of %s: %s", entity, ", ".join(f"{key}={value:g}" for key, value in limits.items()) or "none")
        if entity.ip is not None:
            self._limit_connections(entity.ip, limits.get(QuotaKey.CONNECTIONS))
            return
        limited = Entity(entity.user, entity.client_id)
        self.produce.limits.put(limited, limits.get(QuotaKey.PRODUCE))
        self.fetch.limits.put(limited, limits.get(QuotaKey.FETCH))
        self.request.limits.put(limited, limits.get(QuotaKey.REQUEST))
        self.mutations.limits.put(limited, limits.get(QuotaKey.MUTATIONS))
        self.limits_requests = any(quota.limits for quota in (self.produce, self.fetch, self.request, self.mutations))

    def _limit_connections(self, host: str, limit: float | None) -> None:
        if host == DEFAULT:
            self.connections.default = limit
            return
        for address in self._addresses.pop(host, ()):
            self.connections.limits.pop(address, None)
        self._unresolved.pop(host, None)
        if limit is None:
            return
        try:
            self._put_addresses(host, [str(ipaddress.ip_address(host))])
        except ValueError:
            self._unresolved[host] = None
            self._to_resolve.set()

    def _put_addresses(self, host: str, addresses: list[str]) -> None:
        limit = self._entities.get(QuotaEntity(ip=host), {}).get(QuotaKey.CONNECTIONS)
        if limit is not None:
            self._addresses[host] = addresses
            self.connections.limits.update(dict.fromkeys(addresses, limit))


def _place(entity: QuotaEntity) -> tuple[str, str]:
    """Kind and name in the store."""
    user, client_id, ip = (DEFAULT_ENTITY if name == DEFAULT else name for name in entity)
    if ip is not None:
        return IP_CONFIG, ip
    if client_id is None:
        assert user is not None
        return USER_CONFIG, user
    return (CLIENT_CONFIG if user is None else user_clients(user)), client_id


def _entity(kind: str, name: str) -> QuotaEntity:
    if kind == IP_CONFIG:
        return QuotaEntity(ip=name)
    if kind == CLIENT_CONFIG:
        return QuotaEntity(client_id=name)
    user = user_of_clients(kind)
    if user is None:
        return QuotaEntity(user=name)
    return QuotaEntity(DEFAULT if user == DEFAULT_ENTITY else user, name)
