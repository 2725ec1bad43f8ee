from typing import Final

FACE: Final[int]
__version__: Final[str]

def scan(data: bytes, count: int, odd_max: int, room: int, /) -> tuple[bool, bool, int, int, int] | None: ...
