"""PushTelemetry (key 72, version 0): the metrics of a client (KIP-714), as OpenTelemetry's MetricsData.

Behaviour: what may be pushed is decided first (`barnabas.server.telemetry.instances` has the errors), then it is
decompressed and read, in a thread, and kept for `/metrics`. What cannot be read is answered with INVALID_RECORD, after
which Java clients push no more; what is more than eight times `telemetry.max.bytes` when decompressed with
TELEMETRY_TOO_LARGE, after which they go on. (Apache Kafka 4.3.1 takes no more than `telemetry.max.bytes` of that
either, and answers INVALID_RECORD; later ones answer as we do.) Series beyond `metrics.telemetry.series.max` and
`metrics.telemetry.client.series.max` are left out, which is no error.

Served as GetTelemetrySubscriptions is.
"""

from __future__ import annotations

import logging

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import PushTelemetryRequest, PushTelemetryResponse
from barnabas.server.apis.telemetry.get_telemetry_subscriptions import caller_of
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

log = logging.getLogger("barnabas.telemetry")


async def handle(svc: Services, ctx: RequestContext, req: PushTelemetryRequest) -> PushTelemetryResponse:
    from barnabas.server.telemetry.telemetry import unpacked  # loaded where it is served

    telemetry = svc.telemetry
    assert telemetry is not None, "not served without"
    config = svc.config
    size_max = config.get_int("telemetry.max.bytes")
    instance = telemetry.instances.push(
        req.client_instance_id,
        caller_of(ctx),
        ctx.connection,
        svc.now() * 1000,
        subscription_id=req.subscription_id,
        terminating=req.terminating,
        codec=req.compression_type,
        size=len(req.metrics),
        size_max=size_max,
    )
    if not req.metrics:
        return PushTelemetryResponse()
    client_series_max = config.get_int("metrics.telemetry.client.series.max")
    try:
        pushed = await svc.turns.elsewhere(
            unpacked, req.compression_type, bytes(req.metrics), size_max, client_series_max
        )
    except KafkaError as error:
        telemetry.errors += 1
        instance.last_error = error.code
        log.info("%s pushed what cannot be read: %s", ctx, error)
        raise
    telemetry.keep(
        req.client_instance_id,
        instance,
        pushed,
        svc.now() * 1000,
        series_max=config.get_int("metrics.telemetry.series.max"),
        client_series_max=client_series_max,
    )
    telemetry.pushes += 1
    instance.last_error = ErrorCode.NONE
    return PushTelemetryResponse()


API = Api(ApiKey.PUSH_TELEMETRY, versions=(0, 0), handle=handle, access=unrestricted)
