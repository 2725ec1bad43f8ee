"""The APIs of access lists, quotas, users and delegation tokens, by key: one import for all of them, for the first
request (`barnabas.server.apis.APIS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.apis.security import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
)
from barnabas.server.requests.api import Api

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        each.API.key: each.API
        for each in (
            alter_client_quotas,
            alter_user_scram_credentials,
            create_acls,
            create_delegation_token,
            delete_acls,
            describe_acls,
            describe_client_quotas,
            describe_delegation_token,
            describe_user_scram_credentials,
            expire_delegation_token,
            renew_delegation_token,
        )
    }
)
