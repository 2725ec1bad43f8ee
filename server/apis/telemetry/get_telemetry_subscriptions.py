"""GetTelemetrySubscriptions (key 71, version 0): which of its metrics a client shall push, and how often (KIP-714).

Behaviour: a client without an instance id is given one. The answer is that of all client-metrics subscriptions that
match the client, none of which means: ask again after the interval. `barnabas.server.telemetry.instances` says which
errors there are, all of them Apache Kafka's.

Served, and advertised, only by a broker with `metrics.listener`, where `/metrics` shows what is pushed: clients ask
whoever serves it. Everybody may ask, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

if TYPE_CHECKING:
    from barnabas.server.telemetry.subscribers import Caller


def handle(
    svc: Services, ctx: RequestContext, req: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    from barnabas.server.telemetry.telemetry import CODECS  # loaded where it is served

    telemetry = svc.telemetry
    assert telemetry is not None, "not served without"
    instance_id, told = telemetry.instances.get(
        req.client_instance_id, caller_of(ctx), ctx.connection, svc.now() * 1000
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=told.subscription_id,
        accepted_compression_types=list(CODECS),
        push_interval_ms=told.interval_ms,
        telemetry_max_bytes=svc.config.get_int("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(told.metrics),
    )


def caller_of(ctx: RequestContext) -> Caller:
    """Who asks."""
    from barnabas.server.telemetry.subscribers import Caller

    name, _, version = ctx.connection.software.partition(" ")
    return Caller(ctx.client_id, name, version, ctx.client_host, ctx.connection.client_port)


API = Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), handle=handle, access=unrestricted)
