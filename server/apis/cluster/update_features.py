"""UpdateFeatures (key 57, versions 0-2): finalise feature levels (KIP-584).

Behaviour: all updates of a request or none; the controller's to do (NOT_CONTROLLER elsewhere), in the end a write to
the metadata store. A level may rise by an upgrade and fall by a downgrade (safe and unsafe ones are the same: no data
of ours depends on a level), to 0, which switches the feature off. Every registered broker must support the level. What
is refused is answered with INVALID_UPDATE_VERSION and the first reason.

Versions:

- 0: has `allow_downgrade` instead of the upgrade type
- 1: upgrade types and `validate_only`
- 2: no longer has a result per feature, which before is there when all went well
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.replication.tree import features
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

_FAILED = "The update failed for all features since the following feature had an error: "


async def handle(svc: Services, ctx: RequestContext, req: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not svc.cluster.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    updates = {
        each.feature: features.FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each, ctx.api_version))
        for each in req.feature_updates
    }
    try:
        await svc.features.update(list(updates.values()), validate_only=ctx.api_version >= 1 and req.validate_only)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=f"{_FAILED}{error.message}")
    if ctx.api_version > 1:
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_message=None) for name in updates],
    )


def _upgrade_type(update: UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> int:
    if version >= 1:
        return update.upgrade_type
    return features.SAFE_DOWNGRADE if update.allow_downgrade else features.UPGRADE


API = Api(ApiKey.UPDATE_FEATURES, (0, 2), handle, access=needs(on_cluster(Op.ALTER)))
