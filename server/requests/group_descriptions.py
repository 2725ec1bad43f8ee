"""How the newer kinds of groups (KIP-848, 932, 1071) are described: what their three APIs have in common.

Each group is answered once, with its own error: GROUP_ID_NOT_FOUND, with a message, also for a group of another kind;
INVALID_GROUP_ID for the empty id; TOPIC_AUTHORIZATION_FAILED for a group with a topic that the caller may not describe.
While the protocol is off all groups get UNSUPPORTED_VERSION, whoever asks. Authorized operations: all of them without
an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.server.requests.access import GROUP, TOPIC, AccessCheck, Admitted, Op, Outcome, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of groups. `response`: the class of its answer, with a DescribedGroup. `is_enabled`: whether the broker
    serves such groups. `describe(services, group_id)`: raises KafkaError. `size`: how much a description contains, in
    the units of a handler's steps. `topics`: the names in it that the caller must be allowed to describe.
    """

    response: Any
    is_enabled: Callable[[Services], bool]
    describe: Callable[[Services, str], Any]
    size: Callable[[Any], int]
    topics: Callable[[Any], Iterable[str]]

    def api(self, key: ApiKey, versions: tuple[int, int]) -> Api:
        """The API that describes such groups."""
        of_groups = for_each("group_ids", "groups", Op.DESCRIBE, GROUP, name="", answer_name="group_id")
        checked = both(of_groups, amended(self._hide))

        def access(check: AccessCheck) -> Steps[Outcome]:
            if not self.is_enabled(check.services):
                return Admitted(check.request)
            return (yield from checked(check))

        return Api(key, versions, self._handle, access=access, on_error=self._failed)

    def _handle(self, svc: Services, ctx: RequestContext, req: Any) -> Steps[Any]:
        if not self.is_enabled(svc):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        response = self.response()
        for group_id in dict.fromkeys(req.group_ids):
            try:
                group = self.describe(svc, group_id)
            except KafkaError as error:
                group = self._refused(group_id, error.code, error.message or None)
            if req.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_GROUP_OPERATIONS
            response.groups.append(group)
            yield 1 + self.size(group)
        return response

    def _hide(self, check: AccessCheck, response: Any) -> Steps[None]:
        """A group with a topic that the caller may not describe is not described at all."""
        for number, group in enumerate(response.groups):
            if group.authorized_operations != NOT_ASKED:
                group.authorized_operations = check.bits(GROUP, group.group_id)
            names = set(self.topics(group))
            yield 1 + len(names) + len(group.members) // 4
            # All of them are asked about: the log says which were denied.
            denied = [name for name in names if not check.allows(Op.DESCRIBE, TOPIC, name)]
            if denied:
                response.groups[number] = self._refused(
                    group.group_id,
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "The group has topics that the client may not describe.",
                )
        check.note()

    def _refused(self, group_id: str, code: int, message: str | None) -> Any:
        return self.response.DescribedGroup(group_id=group_id, error_code=code, error_message=message)

    def _failed(self, req: Any, code: ErrorCode, version: int) -> Any:
        return self.response(groups=[self._refused(group_id, code, None) for group_id in req.group_ids])
