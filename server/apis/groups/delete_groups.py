"""DeleteGroups (key 42, versions 0-2): remove groups that have no members, with their offsets.

Behaviour: each group has its own error, NON_EMPTY_GROUP while it has members. The offsets and the group's own record
are removed by tombstones, and the answer waits until they are committed.

Versions:

- 1: the same
- 2: flexible
"""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.coordinator import Callback
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.server.requests.access import GROUP, Op, for_each
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, in_portions
from barnabas.server.requests.services import Services

_Result = DeleteGroupsResponse.DeletableGroupResult


class _Deletion:
    """A response that collects the groups' results; it is sent with the last one."""

    __slots__ = ("_ctx", "_open", "_response")

    def __init__(self, ctx: RequestContext, group_ids: list[str]) -> None:
        self._ctx = ctx
        self._open = len(group_ids)
        self._response = DeleteGroupsResponse(results=[_Result(group_id=group_id) for group_id in group_ids])

    def done(self, i: int, code: ErrorCode) -> None:
        self._response.results[i].error_code = code
        self._open -= 1
        if not self._open:
            self._ctx.reply(self._response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def handle(svc: Services, ctx: RequestContext, req: DeleteGroupsRequest) -> Any:
    group_ids = list(dict.fromkeys(req.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    deletion = _Deletion(ctx, group_ids)
    if len(group_ids) > AT_ONCE:
        return _in_portions(svc, group_ids, deletion)
    _delete(svc, group_ids, deletion, 0, len(group_ids))
    return PENDING


async def _in_portions(svc: Services, group_ids: list[str], deletion: _Deletion) -> object:
    await in_portions(svc, len(group_ids), partial(_delete, svc, group_ids, deletion))
    return PENDING


def _delete(svc: Services, group_ids: list[str], deletion: _Deletion, first: int, end: int) -> None:
    for i in range(first, end):
        try:
            svc.groups.delete_group(group_ids[i], Callback(partial(deletion.done, i), deletion.release_waiters))
        except KafkaError as error:
            deletion.done(i, error.code)


def _on_error(req: DeleteGroupsRequest, code: ErrorCode, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_Result(group_id=group_id, error_code=code) for group_id in req.groups_names])


API = Api(
    ApiKey.DELETE_GROUPS,
    (0, 2),
    handle,
    access=for_each("groups_names", "results", Op.DELETE, GROUP, name="", answer_name="group_id"),
    on_error=_on_error,
)
