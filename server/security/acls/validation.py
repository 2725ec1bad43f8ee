"""What can become an ACL. Source: `AclApis.scala`, `AclControlManager.java` (4.3), `AclAuthorizer.scala` (3.9)."""

from __future__ import annotations

import re

from barnabas.server.security.acls.model import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from barnabas.server.security.principals import Principal

_NO_PATH = "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]"
"""Characters that no path in ZooKeeper may have (`PathUtils.java`). It takes a millisecond to compile, at first use."""


def problem(binding: AclBinding) -> str | None:
    """Why an ACL cannot be created, for the client (INVALID_REQUEST); None: it can."""
    (kind, name, pattern_type), entry = binding
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The resource CLUSTER has one name only, {CLUSTER_NAME}."
    if not name:
        return "The resource name is empty."
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"{kind.name} is no type of an ACL's resource."
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"{pattern_type.name} is no pattern type of an ACL."
    if entry.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"{entry.operation.name} is no operation of an ACL."
    if entry.permission_type not in (PermissionType.ALLOW, PermissionType.DENY):
        return f"{entry.permission_type.name} is no permission type of an ACL."
    if "/" in name or name in (".", "..") or re.search(_NO_PATH, name):
        return "The resource name cannot be the name of a node in ZooKeeper."
    try:
        Principal.parse(entry.principal)
    except ValueError as error:
        return f"{error}."
    return None
