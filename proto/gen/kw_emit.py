"""Writes the C of one schema file: structs and typed wrappers (.h), descriptions (.c)."""

from kw_model import INTEGERS, NONE, OPEN, min_wire, snake

C_TYPES = {"bool": "bool", "int8": "int8_t", "int16": "int16_t", "uint16": "uint16_t",
           "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "float64": "double",
           "uuid": "struct kc_uuid", "string": "struct kc_str", "bytes": "struct kc_bytes",
           "records": "struct kc_bytes"}
KEYWORDS = {"default", "register", "switch", "case", "int", "long", "short", "static", "struct",
            "union", "enum", "const", "volatile", "return", "for", "while", "do", "if", "else"}


def member(f):
    name = snake(f.name)
    return name + "_" if name in KEYWORDS else name


def show(r):
    return str(r.low) if r.low == r.high else f"{r.low}-{r.high}"


def _members(message, f):
    """C declarations of one field."""
    name = member(f)
    base = f"struct {message.c_name(f.struct)}" if f.struct else C_TYPES[f.type]
    if f.array:
        return [f"{base} *{name}", f"int32_t n_{name}"]
    if f.pointer:
        return [f"{base} *{name}"]
    if f.type == "records":
        return [f"{base} {name}", f"const struct kc_slice *{name}_slices",
                f"int32_t n_{name}_slices"]
    return [f"{base} {name}"]


def _note(message, f):
    """The comment behind a member: versions, null, tag, default."""
    words = []
    if f.versions != message.versions:
        words.append(show(f.versions))
    if f.nullable != NONE:
        words.append("nullable" + ("" if f.nullable == f.versions else " " + show(f.nullable)))
    if f.tag >= 0:
        words.append(f"tag {f.tag}")
    if f.default is not None:
        words.append("default " + str(f.default).lower())
    return f" /* {', '.join(words)} */" if words else ""


def _struct(message, struct):
    out = [f"struct {message.c_name(struct)} {{"]
    for f in struct.fields:
        first, *rest = _members(message, f)
        out.append(f"    {first};{_note(message, f)}")
        out += [f"    {m};" for m in rest]
    if not struct.fields:
        out.append("    uint8_t unused; /* the message has no fields */")
    out.append("};")
    return out


def _struct_wrappers(name):
    return [
        f"extern const struct kw_struct {name}_desc;",
        f"static inline void {name}_init(struct {name} *out)",
        "{",
        f"    kw_struct_init(&{name}_desc, out);",
        "}",
        f"KC_MUST_CHECK static inline struct {name} *{name}_new(struct kc_arena *a, int32_t n)",
        "{",
        f"    return kw_struct_new(&{name}_desc, a, n);",
        "}",
    ]


def _message_wrappers(message):
    name = message.prefix
    pad = " " * len(f"KC_MUST_CHECK static inline int {name}_decode(")
    pad2 = " " * len(f"static inline void {name}_encode(")
    return [
        f"extern const struct kw_message {name}_msg;",
        f"KC_MUST_CHECK static inline int {name}_decode(struct kw_cursor *c, int16_t version,",
        f"{pad}struct kc_arena *a, struct {name} *out)",
        "{",
        f"    return kw_decode(&{name}_msg, c, version, a, out);",
        "}",
        f"static inline void {name}_encode(struct kw_writer *w, int16_t version,",
        f"{pad2}const struct {name} *in)",
        "{",
        f"    kw_encode(&{name}_msg, w, version, in);",
        "}",
    ]


def header(file):
    guard = f"KW_{file.stem.upper()}_H"
    title = f"{file.name} (key {file.key})" if file.key >= 0 else "records"
    out = [f"/* kw_{file.stem}.h - {title}; generated from proto/kafka/{file.source}, do not edit."]
    if file.notes:
        out += [" *"] + [(" * " + n).rstrip() for n in file.notes]
    out[-1] += " */"
    out += [f"#ifndef {guard}", f"#define {guard}", "", '#include "wire/kw_schema.h"', ""]
    for m in file.messages:
        tail = f", flexible from {m.flexible}" if m.flexible != OPEN else ""
        out += [f"/* {m.name}: versions {show(m.versions)}{tail}. */"]
        for s in m.structs + [m.root]:
            out += _struct(m, s) + [""]
        for s in m.structs + [m.root]:
            out += _struct_wrappers(m.c_name(s)) + [""]
        out += _message_wrappers(m) + [""]
    out += ["#endif", ""]
    return "\n".join(out)


def _c_default(f):
    if isinstance(f.default, bool):
        return "1" if f.default else "0"
    if isinstance(f.default, int):
        return "INT64_MIN" if f.default == -2 ** 63 else str(f.default)
    return "0"


def _c_range(r):
    return f"{{{r.low}, {r.high}}}"


def _field_desc(message, struct, f):
    c = f"struct {message.c_name(struct)}"
    name = member(f)
    parts = [f'.name = "{f.name}"', f".type = KW_{'STRUCT' if f.struct else f.type.upper()}",
             f".offset = offsetof({c}, {name})"]
    if f.array:
        parts += [".array = true", f".n_offset = offsetof({c}, n_{name})"]
    if f.type == "records":
        parts += [f".slices_offset = offsetof({c}, {name}_slices)",
                  f".n_offset = offsetof({c}, n_{name}_slices)"]
    if f.struct:
        parts.append(f".sub = &{message.c_name(f.struct)}_desc")
    if f.pointer:
        parts.append(".pointer = true")
    if f.null_default:
        parts.append(".null_dflt = true")
    elif f.type in INTEGERS + ("bool",) and f.default:
        parts.append(f".dflt = {_c_default(f)}")
    if f.ignorable:
        parts.append(".ignorable = true")
    parts += [f".tag = {f.tag}", f".versions = {_c_range(f.versions)}",
              f".nullable = {_c_range(f.nullable)}"]
    return "    {" + ", ".join(parts) + "},"


def _struct_desc(message, struct):
    name = message.c_name(struct)
    out = []
    fields = "NULL"
    if struct.fields:
        fields = f"{name}_fields"
        out += [f"static const struct kw_field {fields}[] = {{"]
        out += [_field_desc(message, struct, f) for f in struct.wire_order()]
        out += ["};"]
    out += [f"const struct kw_struct {name}_desc = {{",
            f'    .name = "{struct.name}",',
            f"    .fields = {fields},",
            f"    .n_fields = {len(struct.fields)},",
            f"    .n_tagged = {struct.tagged_count()},",
            f"    .size = sizeof(struct {name}),",
            f"    .min_wire = {min_wire(struct, message)},",
            "};", ""]
    return out


def source(file):
    out = [f"/* Generated from proto/kafka/{file.source}, do not edit. */",
           f'#include "wire/kw_{file.stem}.h"', "", "#include <stddef.h>", ""]
    for m in file.messages:
        for s in m.structs + [m.root]:
            out += _struct_desc(m, s)
        out += [f"const struct kw_message {m.prefix}_msg = {{",
                f'    .name = "{m.name}",',
                f"    .root = &{m.prefix}_desc,",
                f"    .versions = {_c_range(m.versions)},",
                f"    .flexible_from = {m.flexible},",
                "};", ""]
    return "\n".join(out)
