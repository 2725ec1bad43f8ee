"""The table of pages: what there is, whose template and data it has, and what can be changed there.

A path's parts in braces are names (`web/segments.py`). The same path with `.json` behind it is the data; `/` is
`/index.json` there. What has `change` takes POST, with the visitor's token, unless the console is read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from barnabas.server.console.pages.access import (
    acls,
    delete_acl,
    delete_quota,
    delete_user,
    end_token,
    quotas,
    tokens,
    users,
)
from barnabas.server.console.pages.cluster import (
    broker_dirs,
    broker_loggers,
    broker_settings,
    leaders,
    moves,
    overview,
    transactions,
)
from barnabas.server.console.pages.groups import delete_group, group, group_reset, groups
from barnabas.server.console.pages.records import avro, live, live_events, produce, record, records, records_export
from barnabas.server.console.pages.topics import (
    delete_topic,
    move_topic,
    new_topic,
    topic,
    topic_groups,
    topic_settings,
    topic_transactions,
    topics,
)
from barnabas.server.console.web.view import Answer, Done, View
from barnabas.server.console.web.visit import Visit

Show = Callable[[Visit], Awaitable[Answer]]
Change = Callable[[Visit], Awaitable[Done | View]]


class Page(NamedTuple):
    """`name`: in the audit, and of the section of the menu before its point. `summary`: for the OpenAPI file."""

    name: str
    path: str
    show: Show
    summary: str
    change: Change | None = None
    is_json_too: bool = True

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def json_path(self) -> str:
        return "/index.json" if self.path == "/" else f"{self.path}.json"


PAGES: Final = (
    Page("overview", "/", overview.show, "brokers, disks, partitions in trouble, groups with most lag"),
    Page("topics", "/topics", topics.show, "topics with partitions, records, size, and the groups that read them"),
    Page("topics.new", "/new-topic", new_topic.show, "create a topic", new_topic.change),
    Page(
        "topics.partitions",
        "/topics/{topic}/partitions",
        topic.show,
        "partitions with leader, replicas, offsets and size; add partitions",
        topic.change,
    ),
    Page("topics.groups", "/topics/{topic}/groups", topic_groups.show, "the groups that read a topic, and their lag"),
    Page(
        "topics.settings",
        "/topics/{topic}/settings",
        topic_settings.show,
        "settings with source and documentation; change one",
        topic_settings.change,
    ),
    Page(
        "topics.move",
        "/topics/{topic}/move",
        move_topic.show,
        "which partitions would move to other brokers; move them",
        move_topic.change,
    ),
    Page(
        "topics.delete",
        "/topics/{topic}/delete",
        delete_topic.show,
        "what would be lost; delete the topic, or its records",
        delete_topic.change,
    ),
    Page("topics.records", "/topics/{topic}/records", records.show, "records: newest, from a place on, filtered"),
    Page(
        "topics.export",
        "/topics/{topic}/export",
        records_export.show,
        "the records of a search, a line of JSON each",
        is_json_too=False,
    ),
    Page("topics.live", "/topics/{topic}/live", live.show, "records as they come"),
    Page(
        "topics.events",
        "/topics/{topic}/live-events",
        live_events.show,
        "the same as server-sent events",
        is_json_too=False,
    ),
    Page("topics.record", "/topics/{topic}/record", record.show, "one record, whole"),
    Page(
        "topics.avro",
        "/topics/{topic}/avro",
        avro.show,
        "by which Avro schemas a topic's keys and values are shown; give one",
        avro.change,
    ),
    Page("topics.produce", "/topics/{topic}/produce", produce.show, "write a record", produce.change),
    Page(
        "topics.transactions",
        "/topics/{topic}/transactions",
        topic_transactions.show,
        "what holds the last stable offset; abort a transaction in one partition",
        topic_transactions.change,
    ),
    Page("groups", "/groups", groups.show, "consumer groups with state, members and lag"),
    Page("groups.lag", "/groups/{group}/lag", group.show, "members, assignment, lag in records and seconds"),
    Page(
        "groups.reset",
        "/groups/{group}/reset",
        group_reset.show,
        "what a reset would set; set a group's offsets",
        group_reset.change,
    ),
    Page("groups.delete", "/groups/{group}/delete", delete_group.show, "delete a group", delete_group.change),
    Page("transactions", "/transactions", transactions.show, "transactional ids, those that are open first"),
    Page("access.acls", "/acls", acls.show, "ACLs; create one", acls.change),
    Page(
        "access.delete-acl", "/delete-acl", delete_acl.show, "what counts without an ACL; delete it", delete_acl.change
    ),
    Page("access.users", "/users", users.show, "users that log in by SCRAM; set a password", users.change),
    Page(
        "access.delete-user",
        "/delete-user",
        delete_user.show,
        "a user's credentials and what names him; delete credentials",
        delete_user.change,
    ),
    Page("access.quotas", "/quotas", quotas.show, "limits of users, client ids and addresses; set one", quotas.change),
    Page(
        "access.delete-quota",
        "/delete-quota",
        delete_quota.show,
        "what counts without some limits; take them away",
        delete_quota.change,
    ),
    Page("access.tokens", "/tokens", tokens.show, "delegation tokens; make one, renew one", tokens.change),
    Page(
        "access.end-token",
        "/end-token",
        end_token.show,
        "whose a delegation token is; end it",
        end_token.change,
    ),
    Page("overview.moves", "/moves", moves.show, "partitions on their way to other brokers; call off", moves.change),
    Page(
        "overview.leaders",
        "/leaders",
        leaders.show,
        "partitions not led by their preferred replica; elect it",
        leaders.change,
    ),
    Page(
        "overview.directories",
        "/brokers/{broker}/directories",
        broker_dirs.show,
        "log directories of a broker, and the largest replicas",
    ),
    Page(
        "overview.settings",
        "/brokers/{broker}/settings",
        broker_settings.show,
        "settings of a broker with source and documentation; change one",
        broker_settings.change,
    ),
    Page(
        "overview.loggers",
        "/brokers/{broker}/loggers",
        broker_loggers.show,
        "log levels of a broker; change one",
        broker_loggers.change,
    ),
)
SHORT: Final = {
    "/topics/{topic}": "/topics/{topic}/partitions",
    "/groups/{group}": "/groups/{group}/lag",
    "/brokers/{broker}": "/brokers/{broker}/directories",
}
"""Paths as people type them, and where they lead."""
