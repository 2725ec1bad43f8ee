"""ApiVersions (key 18, versions 0-4): what this broker serves.

Behaviour: lists every API that is served (`Services.served`); those between brokers only in a cluster, as Apache Kafka
3.9 does in ZooKeeper mode. An unsupported version is answered by the dispatcher in format 0 with UNSUPPORTED_VERSION
and the range of this API alone, so that the client can retry (KIP-511).

Versions:

- 3: flexible in its body, while the response header stays at version 0. The client names its software; a malformed name
  or version is answered with INVALID_REQUEST and an empty list. Adds the supported and the finalised feature levels
  (`barnabas.server.cluster.features`): Java clients use KIP-890's second part, and groups of KIP-848, by them
- 4: may name features whose minimum is 0, which are left out before
"""

from __future__ import annotations

import re
from typing import Any

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import ApiVersionsRequest, ApiVersionsResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Served, Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(svc: Services, ctx: RequestContext, req: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3:
        name, version = req.client_software_name, req.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.software = f"{name} {version}"
    response = ApiVersionsResponse(api_keys=[_entry(api) for api in svc.served])
    if ctx.api_version >= 3:
        features = svc.features
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in features.supported.items()
            if first or ctx.api_version >= 4
        ]
        response.finalized_features_epoch = features.epoch
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalised.items()
        ]
    return response


def _on_error(req: Any, code: ErrorCode, version: int) -> ApiVersionsResponse:
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return ApiVersionsResponse(error_code=code, api_keys=[_entry(API)])
    return ApiVersionsResponse(error_code=code)


def _entry(api: Served) -> ApiVersionsResponse.ApiVersion:
    first, last = api.versions
    return ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=first, max_version=last)


API = Api(ApiKey.API_VERSIONS, (0, 4), handle, access=unrestricted, on_error=_on_error)
