"""The source of encoders. See `barnabas.kproto.codec.compile` for what it looks like and why.

Pieces go into a list and are joined once. A run of fixed-width fields ends with the length of what follows, so a
string costs one `pack` and its bytes. The usual end of a flexible structure, no tagged fields, is a pad byte of the
last run; tagged fields that differ from their default take that byte back.

A field the version lacks must hold its default unless the notation marks it ignorable, as in Apache Kafka:
EncodeError otherwise.
"""

from struct import error as layout_error
from struct import pack

from barnabas.kproto.classes import Message
from barnabas.kproto.codec.source import FIXED, Source
from barnabas.kproto.errors import EncodeError
from barnabas.kproto.notation import Field, Struct
from barnabas.kproto.primitives import SHORT_ARRAY, pack_table, string_length, uvarint

__all__ = ["EncoderSource"]

# Bytes-like records up to this size are joined with their surroundings; larger ones are a part of their own.
JOINED_RECORDS = 16 * 1024


class EncoderSource(Source):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self._run_codes = ""
        self._run_values: list[str] = []
        self._out, self._write = "out", "w"
        self.namespace.update(
            {
                "layout_error": layout_error,
                "pack": pack,
                "EncodeError": EncodeError,
                "BYTES": frozenset({bytes, bytearray, memoryview}),
                "uvarint": uvarint,
                "string_length": string_length,
                "refuse_null": _refuse_null,
                "refuse_absent": _refuse_absent,
                "refuse_uuid": _refuse_uuid,
                "tag_section": _tag_section,
                "unknown_section": _unknown_section,
            }
        )

    def generate(self) -> str:
        has_records = any(
            field.type == "records"
            for struct in [self.message.struct, *self.message.structs()]
            for field in struct.fields
        )
        with self.block("def encode(m):"):
            self.line("out = []")
            self.line("w = out.append")
            if has_records:
                self.line("parts = []")
            with self.block("try:"):
                self._struct(self.message.struct, "m", self.message.name)
                self._flush()
                self.line("last = b''.join(out)")
            with self.block("except (layout_error, AttributeError, TypeError, UnicodeEncodeError) as error:"):
                self.line(f"raise EncodeError(f'{self.title}: {{error}}') from error")
            if has_records:
                with self.block("if last:"):
                    self.line("parts.append(last)")
                self.line("return parts")
            else:
                self.line("return [last]")
        return "\n".join(self.lines) + "\n"

    def _gather(self, code: str, value: str) -> None:
        self._run_codes += code
        if code != "x":
            self._run_values.append(value)

    def _flush(self, length: str | None = None, *, is_string: bool = False) -> None:
        """Write the run. `length` names a varint that ends it: one byte of the run mostly, by itself if longer."""
        codes, values = self._run_codes, self._run_values
        self._run_codes, self._run_values = "", []
        if length is not None:
            long = f"{'string_length' if is_string else 'uvarint'}({length})"
            if codes:
                long = f"{self.layout(codes)}({', '.join(values)}) + {long}"
            short = f"{self.layout(codes + 'B')}({', '.join([*values, length])})"
            self.line(f"{self._write}({short} if {length} < 128 else {long})")
        elif not values:
            if codes:
                self.line(f"{self._write}({bytes(len(codes))!r})")
        else:
            self.line(f"{self._write}({self.layout(codes)}({', '.join(values)}))")

    def _length(self, classic: str, length: str, *, is_string: bool = False) -> None:
        """Write a length (+ 1 in flexible versions, so that null is 0) and the run before it."""
        if self.flexible:
            self._flush(length, is_string=is_string)
        else:
            self._gather(classic, length)
            self._flush()

    def _size(self, name: str) -> str:
        return f"len({name}) + 1" if self.flexible else f"len({name})"

    @property
    def _null(self) -> str:
        return "0" if self.flexible else "-1"

    def _struct(self, struct: Struct, source: str, path: str) -> None:
        ordinary, tagged, absent = self.fields(struct)
        for field in absent:
            if not field.ignorable:
                with self.block(f"if {self._differs(field, f'{source}.{field.name}')}:"):
                    self.line(f"refuse_absent({path + '.' + field.name!r}, {self.version})")
        for field in ordinary:
            self._field(field, f"{source}.{field.name}", f"{path}.{field.name}")
        if not self.flexible:
            with self.block(f"if {source}.unknown_tags:"):
                self.line(f"refuse_absent({path + '.unknown_tags'!r}, {self.version})")
            return
        self._gather("x", "")
        self._flush()
        if not tagged:
            with self.block(f"if {source}.unknown_tags:"):
                self.line(f"unknown_section({self._out}, {source}.unknown_tags)")
            return
        tests = [self._differs(field, f"{source}.{field.name}", cheap=True) for field in tagged]
        with self.block(f"if {' or '.join([*tests, f'{source}.unknown_tags'])}:"):
            self._tags(tagged, source, path)

    def _differs(self, field: Field, value: str, *, cheap: bool = False) -> str:
        """A test whether `value` is not the default. The cheap one may also say so of an equal value."""
        default = self.default(field)
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} != []"
        if field.struct is not None and default.startswith("D_"):
            return f"{value} is not {default}" if cheap else f"({value} is not {default} and {value} != {default})"
        return f"{value} != {default}"

    def _tags(self, tagged: list[Field], source: str, path: str) -> None:
        section = self.fresh("tags")
        self.line(f"{section} = {{}}")
        outer = self._out, self._write
        for field in tagged:
            value = f"{source}.{field.name}"
            with self.block(f"if {self._differs(field, value)}:"):
                self._out, self._write = self.fresh("out"), self.fresh("w")
                self.line(f"{self._out} = []")
                self.line(f"{self._write} = {self._out}.append")
                self._field(field, value, f"{path}.{field.name}")
                self._flush()
                self.line(f"{section}[{field.tag}] = b''.join({self._out})")
        self._out, self._write = outer
        self.line(f"tag_section({self._out}, {section}, {source}.unknown_tags)")

    def _field(self, field: Field, value: str, path: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self._array(field, value, path, nullable)
        elif field.struct is not None:
            self._nested(field.struct, value, path, nullable, tagged=field.tag is not None)
        elif field.type in FIXED:
            if field.type == "uuid":
                with self.block(f"if len({value}) != 16:"):
                    self.line(f"refuse_uuid({path!r}, {value})")
            self._gather(FIXED[field.type], value)
        else:
            self._variable(field.type, value, path, nullable)

    def _nested(self, struct: Struct, value: str, path: str, nullable: bool, tagged: bool) -> None:
        item = self.fresh("m")
        self.line(f"{item} = {value}")
        if not nullable:
            self._struct(struct, item, path)
            return
        self._flush()
        with self.block(f"if {item} is None:"):
            null = r"b'\x00'" if tagged else r"b'\xff'"
            self.line(f"{self._write}({null})")
        with self.block("else:"):
            self.line(f"{self._write}(b'\\x01')")
            self._struct(struct, item, path)
            self._flush()

    def _variable(self, type_name: str, value: str, path: str, nullable: bool) -> None:
        piece, length = self.fresh("v"), self.fresh("n")
        is_string = type_name == "str"
        is_records = type_name == "records"
        self.line(f"{piece} = {value}")
        if nullable:
            with self.block(f"if {piece} is None:"):
                self.line(f"{length} = {self._null}")
                if not is_records:
                    self.line(f"{piece} = b''")
            with self.block("else:"):
                if is_string:
                    self.line(f"{piece} = {piece}.encode()")
                self.line(f"{length} = {self._size(piece)}")
        else:
            if is_string:
                with self.block(f"if {piece} is None:"):
                    self.line(f"refuse_null({path!r})")
                self.line(f"{piece} = {piece}.encode()")
            self.line(f"{length} = {self._size(piece)}")
        self._length("h" if is_string else "i", length, is_string=is_string)
        if not is_records:
            self.line(f"{self._write}({piece})")
            return
        with self.block(f"if {piece} is not None:"):
            with self.block(f"if {length} <= {JOINED_RECORDS} and type({piece}) in BYTES:"):
                self.line(f"{self._write}({piece})")
            with self.block("else:"):
                self.line(f"parts.append(b''.join({self._out}))")
                self.line(f"{self._out}.clear()")
                self.line(f"parts.append({piece})")

    def _array(self, field: Field, value: str, path: str, nullable: bool) -> None:
        values, count = self.fresh("a"), self.fresh("n")
        self.line(f"{values} = {value}")
        if nullable:
            self.line(f"{count} = {self._null} if {values} is None else {self._size(values)}")
        else:
            with self.block(f"if {values} is None:"):
                self.line(f"refuse_null({path!r})")
            self.line(f"{count} = {self._size(values)}")
        self._length("i", count)
        with self.block(f"if {values}:"):
            if field.struct is not None:
                item = self.fresh("m")
                with self.block(f"for {item} in {values}:"):
                    self._struct(field.struct, item, path)
                    self._flush()
            elif field.type == "uuid":
                item = self.fresh("i")
                with self.block(f"for {item} in {values}:"):
                    with self.block(f"if len({item}) != 16:"):
                        self.line(f"refuse_uuid({path!r}, {item})")
                    self.line(f"{self._write}({item})")
            elif field.type in FIXED:
                code = FIXED[field.type]
                table = self.constant(f"T_{field.type}", pack_table(code))
                size = f"len({values})"
                long = f"pack(f'>{{{size}}}{code}', *{values})"
                self.line(f"{self._write}({table}[{size}](*{values}) if {size} < {SHORT_ARRAY} else {long})")
            else:
                item = self.fresh("i")
                with self.block(f"for {item} in {values}:"):
                    self._variable(field.type, item, path, nullable=False)


def _tag_section(out: list[bytes], known: dict[int, bytes], unknown: dict[int, bytes] | None) -> None:
    """Put a section of tagged fields in the place of the zero byte `out` ends with."""
    fields = known
    if unknown:
        if not known.keys().isdisjoint(unknown):
            raise EncodeError(f"unknown_tags repeats a known tag of {sorted(known)}")
        fields = {**known, **unknown}
    if not fields:
        return
    pieces = [out[-1][:-1], uvarint(len(fields))]
    for tag in sorted(fields):
        pieces += (uvarint(tag), uvarint(len(fields[tag])), fields[tag])
    out[-1] = b"".join(pieces)


def _unknown_section(out: list[bytes], unknown: dict[int, bytes]) -> None:
    _tag_section(out, {}, unknown)


def _refuse_null(path: str) -> None:
    raise EncodeError(f"{path} is None, but null has no form in this version")


def _refuse_absent(path: str, version: int) -> None:
    raise EncodeError(f"version {version} has no {path}, which is not its default")


def _refuse_uuid(path: str, value: bytes) -> None:
    raise EncodeError(f"{path} has {len(value)} bytes, a uuid 16")
