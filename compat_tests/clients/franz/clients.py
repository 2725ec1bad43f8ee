"""The clients of the program, by their kinds; `src/*.go` says what each can be asked, and what its settings are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compat_tests.harness.client import Partition, Refused
from compat_tests.harness.members import Members
from compat_tests.subjects.modern_groups.members import Seen


class _Client:
    """One client. *kind* is the program's word, *settings* are its words, too."""

    kind = ""

    def __init__(self, members: Members, **settings: str) -> None:
        self._members = members
        self._name = members.new_name()
        self._left: list[str] | None = None
        self.ask("open", self.kind, *(f"{key.replace('_', '.')}={value}" for key, value in settings.items()))

    def ask(self, command: str, *given: str) -> list[str]:
        """The words of its answer. Raises Refused."""
        return [word for word in self._members.ask(command, self._name, *given) if word]

    def close(self) -> None:
        """Leave the group, if it is in one, and go."""
        if self._left is None:
            self._left = self.ask("close")


class Producer(_Client):
    """An idempotent producer, with `id` a transactional one."""

    kind = "producer"

    def produce(self, topic: str, partition: int, values: Sequence[str]) -> list[int]:
        """The offsets. Raises Refused for the first that was refused."""
        return [int(word) for word in self.ask("produce", topic, str(partition), *values)]

    def begin(self) -> None:
        self.ask("begin")

    def end(self, *, commit: bool) -> None:
        self.ask("end", "commit" if commit else "abort")


class Consumer(_Client):
    """A member of a group that polls by itself."""

    kind = "consumer"

    def assignment(self) -> set[Partition]:
        words = (word.rpartition(":") for word in self.ask("assignment"))
        return {(topic, int(partition)) for topic, _, partition in words}

    def records(self) -> list[Seen]:
        """What it has got, in order, also after its end."""
        words = (word.split(":", 3) for word in (self.ask("records") if self._left is None else self._left))
        return [Seen(topic, int(partition), int(offset), value) for topic, partition, offset, value in words]

    def failure(self) -> str:
        """What polls have brought beside records."""
        try:
            self.ask("failure")
        except Refused as problem:
            return f"{problem.code} {problem}"
        return ""

    def identity(self) -> tuple[str, int]:
        """Its member id and its epoch or generation."""
        member, epoch = self.ask("member")
        return member, int(epoch)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """What it has got, or these offsets."""
        self.ask("commit", *(f"{topic}:{index}:{offset}" for (topic, index), offset in (offsets or {}).items()))


class Copier(_Client):
    """A member of a group that copies a topic in transactions."""

    kind = "copier"

    def copy(self, *, commit: bool = True, wait_s: float = 0.5) -> int:
        """One transaction of what one poll brings; how many records were copied, 0 if it was aborted."""
        return int(self.ask("copy", "commit" if commit else "abort", str(round(wait_s * 1000)))[0])
