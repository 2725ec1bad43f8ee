"""The source of decoders. See `barnabas.kproto.codec.compile` for what it looks like and why.

Bounds: a read past the end raises IndexError or struct.error, which the function turns into DecodeError. Slices do
not raise; they come out short, and then the offset has passed the end, which the last line notices. Counts are
compared with what is left of the frame before anything is allocated. Counts are also taken off the `room` that the
caller grants: an element of one byte costs a hundred in memory, so the frame's size is no bound. One unit of room is an
element of an array on whatever level, a tagged field, or a KiB of unknown tags and, where a frame may be as large as
its records ask for, of strings.

Null follows Apache Kafka: any negative length is null where null is allowed and an error where it is not. Bytes that
are no UTF-8 become U+FFFD, as in Java (`barnabas.kproto.primitives.BAD_UTF8`).
"""

from struct import error as layout_error
from struct import unpack_from
from typing import Final

from barnabas.kproto.classes import Message, Record
from barnabas.kproto.codec.source import FIXED, SIZES, Source
from barnabas.kproto.errors import DecodeError
from barnabas.kproto.notation import Field, Struct
from barnabas.kproto.primitives import BAD_UTF8, SHORT_ARRAY, Buffer, read_string_length, read_uvarint, unpack_table

__all__ = ["UNBOUNDED", "DecoderSource"]

UNBOUNDED: Final = 1 << 62
"""The room of a caller that trusts the peer."""


class DecoderSource(Source):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self._run_codes = ""
        self._run_targets: list[str] = []
        self._has_records = any(
            field.type == "records"
            for struct in [self.message.struct, *self.message.structs()]
            for field in struct.fields
        )
        self.namespace.update(
            {
                "new": object.__new__,
                "layout_error": layout_error,
                "unpack_from": unpack_from,
                "DecodeError": DecodeError,
                "read_uvarint": read_uvarint,
                "read_string_length": read_string_length,
                "read_unknown_tags": _read_unknown_tags,
                "refuse_null": _refuse_null,
                "refuse_count": _refuse_count,
                "refuse_size": _refuse_size,
            }
        )

    def generate(self) -> str:
        with self.block(f"def decode(buf, o, room={UNBOUNDED}):"):
            with self.block("try:"):
                if self._has_records:
                    self.line("buf = memoryview(buf)")
                else:
                    with self.block("if type(buf) is not bytes:"):
                        self.line("buf = bytes(buf)")
                self.line("size = len(buf)")
                self.line(f"m = new({self.class_of(self.message.struct)})")
                self._struct(self.message.struct, "m", self.message.name)
                self._flush()
            with self.block("except (IndexError, layout_error) as error:"):
                self.line(f"raise DecodeError(f'{self.title}: {{error}}') from error")
            with self.block("if o > size:"):
                self.line(f"raise DecodeError(f'{self.title}: ends {{o - size}} bytes early')")
            self.line("return m, o")
        return "\n".join(self.lines) + "\n"

    # Runs: fields of fixed width gather until something needs the offset.

    def _gather(self, code: str, target: str) -> None:
        self._run_codes += code
        self._run_targets.append(target)

    def _flush(self) -> None:
        codes, targets = self._run_codes, self._run_targets
        self._run_codes, self._run_targets = "", []
        if not codes:
            return
        if codes == "B":
            self.line(f"{targets[0]} = buf[o]")
            self.line("o += 1")
            return
        layout = self.layout(codes)
        comma = "," if len(targets) == 1 else ""
        self.line(f"{', '.join(targets)}{comma} = {layout}(buf, o)")
        self.line(f"o += {self.namespace[layout].size}")

    def _length(self, classic: str, target: str, *, is_string: bool = False) -> None:
        """Read a length or count: in flexible versions the varint (length + 1, 0 null), else a classic integer
        (negative null).
        """
        self._gather("B" if self.flexible else classic, target)
        self._flush()
        if self.flexible:
            with self.block(f"if {target} > 127:"):
                self.line(f"{target}, o = {'read_string_length' if is_string else 'read_uvarint'}(buf, o - 1)")
        if is_string and self._has_records:
            with self.block(f"if {target} > 1023:"):
                self._take_room(f"{target} >> 10")

    def _take_room(self, units: str) -> None:
        self.line(f"room -= {units}")
        with self.block("if room < 0:"):
            self.line("refuse_size()")

    def _null_test(self, length: str) -> str:
        return f"not {length}" if self.flexible else f"{length} < 0"

    def _end(self, length: str) -> str:
        return f"o + {length} - 1" if self.flexible else f"o + {length}"

    def _struct(self, struct: Struct, target: str, path: str) -> None:
        ordinary, tagged, absent = self.fields(struct)
        for field in ordinary:
            self._field(field, f"{target}.{field.name}", f"{path}.{field.name}")
        # In version order these would interrupt a run; a run reads into attributes whenever it is flushed, so they
        # may come before it.
        for field in [*tagged, *absent]:
            self.line(f"{target}.{field.name} = {self.default(field)}")
        self.line(f"{target}.unknown_tags = None")
        if self.flexible:
            self._tags(tagged, target, path)

    def _field(self, field: Field, target: str, path: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self._array(field, target, path, nullable)
        elif field.struct is not None:
            self._nested(field.struct, target, path, nullable, tagged=field.tag is not None)
        elif field.type in FIXED:
            self._gather(FIXED[field.type], target)
        else:
            self._variable(field.type, target, path, nullable)

    def _nested(self, struct: Struct, target: str, path: str, nullable: bool, tagged: bool) -> None:
        item = self.fresh("m")
        if not nullable:
            self.line(f"{target} = {item} = new({self.class_of(struct)})")
            self._struct(struct, item, path)
            return
        flag = self.fresh("n")
        if tagged:
            self._flush()
            self.line(f"{flag}, o = read_uvarint(buf, o)")
        else:
            self._gather("b", flag)
            self._flush()
        with self.block(f"if {flag} <= 0:" if tagged else f"if {flag} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.line(f"{target} = {item} = new({self.class_of(struct)})")
            self._struct(struct, item, path)
            self._flush()

    def _variable(self, type_name: str, target: str, path: str, nullable: bool) -> None:
        length = self.fresh("n")
        self._length("h" if type_name == "str" else "i", length, is_string=type_name == "str")
        with self.block(f"if {self._null_test(length)}:"):
            self.line(f"{target} = None" if nullable else f"refuse_null({path!r})")
        with self.block("else:"):
            end = self.fresh("e")
            self.line(f"{end} = {self._end(length)}")
            self.line(f"{target} = {self._value(type_name, f'buf[o:{end}]')}")
            self.line(f"o = {end}")

    def _value(self, type_name: str, piece: str) -> str:
        if type_name == "str":
            errors = f"'utf-8', {BAD_UTF8!r}"
            return f"str({piece}, {errors})" if self._has_records else f"{piece}.decode({errors})"
        return f"bytes({piece})" if self._has_records and type_name == "bytes" else piece

    def _array(self, field: Field, target: str, path: str, nullable: bool) -> None:
        count = self.fresh("n")
        self._length("i", count)
        with self.block(f"if {self._null_test(count)}:"):
            self.line(f"{target} = None" if nullable else f"refuse_null({path!r})")
        with self.block("else:"):
            if self.flexible:
                self.line(f"{count} -= 1")
            if field.struct is not None:
                self._struct_array(field.struct, target, path, count)
            elif field.type in FIXED:
                self._fixed_array(field.type, target, path, count)
            else:
                self._variable_array(field.type, target, path, count)

    def _check_count(self, count: str, minimum: int, path: str) -> None:
        product = count if minimum == 1 else f"{count} * {minimum}"
        self.line(f"room -= {count}")
        with self.block(f"if {product} > size - o or room < 0:"):
            self.line(f"refuse_count({path!r}, {count}, {product}, size - o)")

    def _struct_array(self, struct: Struct, target: str, path: str, count: str) -> None:
        # A structure without any field in a version (none exists) would take no bytes; even then a count beyond the
        # frame is refused.
        self._check_count(count, max(1, self.minimum_size(struct)), path)
        add, item = self.fresh("add"), self.fresh("m")
        values = self.fresh("l")
        self.line(f"{target} = {values} = []")
        self.line(f"{add} = {values}.append")
        with self.block(f"for _ in range({count}):"):
            self.line(f"{item} = new({self.class_of(struct)})")
            self._struct(struct, item, path)
            self._flush()
            self.line(f"{add}({item})")

    def _fixed_array(self, type_name: str, target: str, path: str, count: str) -> None:
        size = SIZES[type_name]
        self._check_count(count, size, path)
        end = self.fresh("e")
        self.line(f"{end} = o + {count} * {size}" if size > 1 else f"{end} = o + {count}")
        if type_name == "uuid":
            item = self.fresh("i")
            self.line(f"{target} = [bytes(buf[{item}:{item} + 16]) for {item} in range(o, {end}, 16)]")
        else:
            code = FIXED[type_name]
            table = self.constant(f"T_{type_name}", unpack_table(code))
            long = f"unpack_from(f'>{{{count}}}{code}', buf, o)"
            self.line(f"{target} = list({table}[{count}](buf, o) if {count} < {SHORT_ARRAY} else {long})")
        self.line(f"o = {end}")

    def _variable_array(self, type_name: str, target: str, path: str, count: str) -> None:
        classic = 2 if type_name == "str" else 4
        self._check_count(count, 1 if self.flexible else classic, path)
        values, add = self.fresh("l"), self.fresh("add")
        length, end = self.fresh("n"), self.fresh("e")
        self.line(f"{target} = {values} = []")
        self.line(f"{add} = {values}.append")
        with self.block(f"for _ in range({count}):"):
            self._length("h" if type_name == "str" else "i", length, is_string=type_name == "str")
            with self.block(f"if {self._null_test(length)}:"):
                self.line(f"refuse_null({path!r})")
            self.line(f"{end} = {self._end(length)}")
            self.line(f"{add}({self._value(type_name, f'buf[o:{end}]')})")
            self.line(f"o = {end}")

    def _tags(self, tagged: list[Field], target: str, path: str) -> None:
        count, tag, end = self.fresh("t"), self.fresh("k"), self.fresh("e")
        self._gather("B", count)
        self._flush()
        with self.block(f"if {count}:"):
            if not tagged:
                self.line(f"o, room = read_unknown_tags(buf, o - 1, {target}, {path!r}, room)")
                return
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, o = read_uvarint(buf, o - 1)")
            self._check_count(count, 2, f"{path} tags")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, o = read_uvarint(buf, o)")
                self.line(f"{end}, o = read_uvarint(buf, o)")
                self.line(f"{end} += o")
                with self.block(f"if {end} > size:"):
                    self.line(f"raise DecodeError('{path}: tagged field ends behind the message')")
                word = "if"
                for field in tagged:
                    with self.block(f"{word} {tag} == {field.tag}:"):
                        self._field(field, f"{target}.{field.name}", f"{path}.{field.name}")
                        self._flush()
                        with self.block(f"if o != {end}:"):
                            self.line(f"raise DecodeError('{path}.{field.name}: not as long as its tag says')")
                    word = "elif"
                with self.block("else:"):
                    with self.block(f"if {target}.unknown_tags is None:"):
                        self.line(f"{target}.unknown_tags = {{}}")
                    self._take_room(f"{end} - o >> 10")
                    self.line(f"{target}.unknown_tags[{tag}] = bytes(buf[o:{end}])")
                    self.line(f"o = {end}")


def _read_unknown_tags(buf: Buffer, offset: int, target: Record, path: str, room: int) -> tuple[int, int]:
    """Keep the tagged fields at `offset` in `target.unknown_tags`; returns (the offset behind them, the room left)."""
    size = len(buf)
    count, offset = read_uvarint(buf, offset)
    room -= count
    if count * 2 > size - offset or room < 0:
        _refuse_count(f"{path} tags", count, count * 2, size - offset)
    tags = {}
    for _ in range(count):
        tag, offset = read_uvarint(buf, offset)
        length, offset = read_uvarint(buf, offset)
        end = offset + length
        if end > size:
            raise DecodeError(f"{path}: tagged field ends behind the message")
        room -= length >> 10
        if room < 0:
            _refuse_size()
        tags[tag] = bytes(buf[offset:end])
        offset = end
    target.unknown_tags = tags
    return offset, room


def _refuse_null(path: str) -> None:
    raise DecodeError(f"{path} is null")


def _refuse_count(path: str, count: int, size: int, left: int) -> None:
    if size > left:
        raise DecodeError(f"{path}: {count} of them cannot be in {left} bytes")
    raise DecodeError(f"{path}: with {count} of them the message has more elements than are allowed")


def _refuse_size() -> None:
    raise DecodeError("the message has more elements and bytes of text or tags than are allowed")
