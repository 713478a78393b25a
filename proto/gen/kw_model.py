"""What a schema file says, as objects; the rules that every schema must keep."""

import re
from dataclasses import dataclass, field

PRIMITIVES = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid",
              "string", "bytes", "records")
INTEGERS = ("int8", "int16", "uint16", "int32", "uint32", "int64")
CAN_BE_NULL = ("string", "bytes", "records")
OPEN = 32767  # the upper end of "9+"
MAX_DEPTH = 8


class SchemaError(Exception):
    """A schema file breaks the grammar or a rule; the text names file and line."""


@dataclass(frozen=True)
class Range:
    """Versions low..high; empty when low > high."""
    low: int
    high: int

    def __contains__(self, version):
        return self.low <= version <= self.high

    def within(self, other):
        return self.low > self.high or (self.low >= other.low and self.high <= other.high)

    def cut(self, other):
        return Range(max(self.low, other.low), min(self.high, other.high))


NONE = Range(1, 0)


@dataclass
class Field:
    name: str
    type: str  # a primitive or the name of a struct
    array: bool
    versions: Range
    nullable: Range = NONE
    tag: int = -1
    ignorable: bool = False
    default: object = None  # None, "null", an int or a bool
    struct: "Struct" = None

    @property
    def pointer(self):
        return self.struct is not None and not self.array and self.nullable.low <= self.nullable.high

    @property
    def null_default(self):
        return self.default == "null"


@dataclass
class Struct:
    name: str
    fields: list = field(default_factory=list)

    def wire_order(self):
        """Untagged fields as written, then tagged ones by tag."""
        tagged = sorted((f for f in self.fields if f.tag >= 0), key=lambda f: f.tag)
        return [f for f in self.fields if f.tag < 0] + tagged

    def tagged_count(self):
        return sum(f.tag >= 0 for f in self.fields)


@dataclass
class Message:
    name: str       # "ProduceRequest"
    versions: Range
    flexible: int   # first flexible version, or OPEN
    root: Struct
    structs: list   # every struct below the root, inner ones first

    @property
    def prefix(self):
        """Of the C names of its structs."""
        return "kw_" + snake(self.name)

    def c_name(self, struct):
        """Kafka's struct name behind the message's, which it does not repeat."""
        if struct is self.root:
            return self.prefix
        short = struct.name
        for head in (self.name, re.sub("(Request|Response)$", "", self.name)):
            rest = short[len(head):]
            if short.startswith(head) and rest[:1].isupper():
                short = rest
                break
        return self.prefix + "_" + snake(short)


@dataclass
class File:
    stem: str               # of the C files: "produce"
    source: str             # file name, for the generated comment
    notes: list             # comment lines at the top
    key: int = -1           # API key, or -1
    name: str = ""          # "Produce"
    messages: list = field(default_factory=list)


def snake(name):
    s = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", s).lower()


def min_wire(struct, message):
    """Least bytes of one struct on the wire, over all versions in which the message can hold one; at least 1."""
    versions = set()
    _versions_of(struct, message.root, range(message.versions.low, message.versions.high + 1), versions)
    if not versions:
        raise SchemaError(f"{message.name}: {struct.name} occurs in no version")
    return max(1, min(_wire_at(struct, v, v >= message.flexible) for v in versions))


def _versions_of(wanted, struct, versions, found):
    """Adds the versions in which `wanted` occurs in or below `struct`."""
    if struct is wanted:
        found.update(versions)
    for f in struct.fields:
        if f.struct:
            _versions_of(wanted, f.struct, [v for v in versions if v in f.versions], found)


def _wire_at(struct, version, flexible):
    total = 1 if flexible else 0
    for f in struct.fields:
        if f.tag < 0 and version in f.versions:
            total += _field_wire(f, version, flexible)
    return total


def _field_wire(f, version, flexible):
    sizes = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
             "float64": 8, "uuid": 16}
    if f.array or f.type in ("bytes", "records"):
        return 1 if flexible else 4
    if f.type == "string":
        return 1 if flexible else 2
    if f.struct:
        return 1 if version in f.nullable else _wire_at(f.struct, version, flexible)
    return sizes[f.type]


def check(message):
    """The rules beyond grammar; raises SchemaError."""
    _check_struct(message, message.root, message.versions, False, 1)
    names = [message.c_name(s) for s in [message.root] + message.structs]
    for s in message.structs:
        min_wire(s, message)
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise SchemaError(f"{message.name}: two structs would be named {', '.join(sorted(twice))}")


def _check_struct(message, struct, outer, in_tag, depth):
    if depth > MAX_DEPTH:
        raise SchemaError(f"{message.name}: {struct.name} nests deeper than {MAX_DEPTH}")
    seen = set()
    tags = set()
    for f in struct.fields:
        where = f"{message.name}.{struct.name}.{f.name}"
        if snake(f.name) in seen:
            raise SchemaError(f"{where}: named twice")
        seen.add(snake(f.name))
        if not f.versions.within(message.versions) or f.versions.low > f.versions.high:
            raise SchemaError(f"{where}: versions are not within the message's")
        if not f.nullable.within(f.versions):
            raise SchemaError(f"{where}: nullable where it does not exist")
        if f.nullable != NONE and not (f.array or f.struct or f.type in CAN_BE_NULL):
            raise SchemaError(f"{where}: {f.type} cannot be null")
        if f.tag >= 0:
            if f.tag in tags or f.versions.low < message.flexible:
                raise SchemaError(f"{where}: tag used twice, or in versions that are not flexible")
            tags.add(f.tag)
        if f.type == "records" and (f.array or in_tag or f.tag >= 0):
            raise SchemaError(f"{where}: records can be neither in an array nor below a tag")
        if f.pointer and not f.null_default:
            raise SchemaError(f"{where}: a nullable struct needs the default null")
        _check_default(f, where)
        if f.struct:
            _check_struct(message, f.struct, f.versions, in_tag or f.tag >= 0, depth + 1)


def _check_default(f, where):
    if f.default is None:
        return
    if f.default == "null":
        ok = f.nullable != NONE
    elif isinstance(f.default, bool):
        ok = f.type == "bool" and not f.array
    else:
        bits = int(re.sub(r"\D", "", f.type) or 0)
        low, high = (0, 2 ** bits) if f.type[0] == "u" else (-2 ** (bits - 1), 2 ** (bits - 1)) if bits else (0, 0)
        ok = f.type in INTEGERS and not f.array and low <= f.default < high
    if not ok:
        raise SchemaError(f"{where}: default does not fit the type")
