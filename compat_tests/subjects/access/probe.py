"""One request of one API, as the table tries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Acl, Need
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names

if TYPE_CHECKING:
    from compat_tests.subjects.access.world import World


@dataclass(frozen=True)
class Probe:
    """name: begins with the API's. values(names): the request, in the fields of all versions. needs: enough for all of
    it. versions: those that it is about, first and last; None: all. own: what each cell names is its own, as what the
    request does can be done once; also in each version. has_topic: the topic is there. prepare(world, names): makes
    what else is there. also: scenarios beside the usual ones, by title. of_others: whether what others have made counts
    in the answer. answered: False where the request asks for no answer.
    """

    name: str
    api: ApiKey
    values: Callable[[Names], Values]
    needs: tuple[Need, ...] = ()
    versions: tuple[int, int] | None = None
    own: bool = False
    has_topic: bool = True
    prepare: Callable[[World, Names], None] | None = None
    also: Mapping[str, Callable[[Names], list[Acl]]] = field(default_factory=dict)
    of_others: bool = True
    answered: bool = True
