"""Reads proto/kafka/*.kw; the grammar is in proto/kafka/GRAMMAR.md."""

import os
import re

from kw_model import (CAN_BE_NULL, NONE, OPEN, PRIMITIVES, Field, File, Message, Range, SchemaError,
                      Struct, check, snake)


def parse_range(text):
    """"4", "3-12" or "9+"; None for anything else."""
    m = re.fullmatch(r"(\d+)(?:-(\d+)|(\+))?", text)
    if not m:
        return None
    low = int(m.group(1))
    return Range(low, OPEN if m.group(3) else int(m.group(2) or low))


class Parser:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as f:
            self.lines = f.read().splitlines()
        self.at = 0

    def fail(self, why):
        raise SchemaError(f"{self.path}:{self.at}: {why}")

    def next(self):
        """Tokens of the next line that has any; None at the end."""
        while self.at < len(self.lines):
            tokens = self.lines[self.at].split("#", 1)[0].split()
            self.at += 1
            if tokens:
                return tokens
        return None

    def notes(self):
        out = []
        for line in self.lines:
            if not line.startswith("#"):
                break
            out.append(line[1:].strip())
        return out

    def file(self):
        base = os.path.basename(self.path)
        stem = re.sub(r"^\d+_", "", base[:-len(".kw")])
        file = File(stem=stem, source=base, notes=self.notes())
        while (tokens := self.next()) is not None:
            if tokens[0] == "api":
                self.api(file, tokens[1:])
            elif tokens[0] == "record":
                file.messages.append(self.record(tokens[1:]))
            else:
                self.fail(f"expected api or record, not {tokens[0]}")
        if not file.messages:
            self.fail("no message")
        return file

    def head(self, tokens):
        """NAME VERSIONS [flexible N+]"""
        versions = parse_range(tokens[1]) if len(tokens) >= 2 else None
        flexible = OPEN
        if len(tokens) == 4 and tokens[2] == "flexible":
            r = parse_range(tokens[3])
            flexible = r.low if r else None
        elif len(tokens) != 2:
            versions = None
        if versions is None or flexible is None or versions.high == OPEN:
            self.fail("expected NAME VERSIONS [flexible N+]")
        return tokens[0], versions, flexible

    def api(self, file, tokens):
        if file.key >= 0 or file.messages or not tokens or not tokens[0].isdigit():
            self.fail("expected one api KEY NAME VERSIONS in a file")
        file.key = int(tokens[0])
        file.name, versions, flexible = self.head(tokens[1:])
        if snake(file.name) != file.stem:
            self.fail(f"the file should be named NN_{snake(file.name)}.kw")
        for part in ("request", "response"):
            if self.next() != [part, "{"]:
                self.fail(f"expected {part} {{")
            file.messages.append(self.message(file.name + part.capitalize(), versions, flexible))

    def record(self, tokens):
        if tokens[-1:] != ["{"]:
            self.fail("expected { at the end")
        return self.message(*self.head(tokens[:-1]))

    def message(self, name, versions, flexible):
        message = Message(name, versions, flexible, Struct(name), [])
        message.root.fields = self.body(message, versions)
        used = set()
        _mark(message.root, used)
        for s in message.structs:
            if s.name not in used:
                self.fail(f"struct {s.name} is never used")
        check(message)
        return message

    def body(self, message, outer):
        """Fields up to the closing brace."""
        fields = []
        while (tokens := self.next()) != ["}"]:
            if tokens is None:
                self.fail("a { is not closed")
            if tokens[0] == "struct":
                if len(tokens) != 3 or tokens[2] != "{":
                    self.fail("expected struct NAME {")
                self.struct(message, tokens[1], message.versions)
            else:
                fields.append(self.field(message, outer, tokens))
        return fields

    def struct(self, message, name, outer):
        if any(s.name == name for s in message.structs):
            self.fail(f"struct {name} is defined twice")
        s = Struct(name)
        s.fields = self.body(message, outer)
        message.structs.append(s)
        return s

    def field(self, message, outer, tokens):
        opens = tokens[-1] == "{"
        words = tokens[:-1] if opens else tokens
        if len(words) < 2:
            self.fail("expected NAME TYPE")
        array = words[1].startswith("[]")
        f = Field(words[0], words[1][2:] if array else words[1], array, outer)
        words = words[2:]
        if words and (r := parse_range(words[0])):
            f.versions = self.cut(r, message.versions)
            words = words[1:]
        self.attributes(f, words)
        if opens:
            f.struct = self.struct(message, f.type, f.versions)
        elif f.type not in PRIMITIVES:
            f.struct = next((s for s in message.structs if s.name == f.type), None)
            if not f.struct:
                self.fail(f"unknown type {f.type}")
        return f

    def cut(self, r, outer):
        """"9+" ends where the message ends; anything else must lie within it."""
        return Range(r.low, outer.high) if r.high == OPEN else r

    def attributes(self, f, words):
        while words:
            word = words.pop(0)
            if word == "nullable":
                f.nullable = f.versions
                if words and (r := parse_range(words[0])):
                    f.nullable = self.cut(r, f.versions)
                    words.pop(0)
            elif word == "ignorable":
                f.ignorable = True
            elif word == "tag" and words and words[0].isdigit():
                f.tag = int(words.pop(0))
            elif word == "=" and words:
                f.default = self.value(words.pop(0))
            else:
                self.fail(f"unexpected {word}")

    def value(self, text):
        if text == "null":
            return "null"
        if text in ("true", "false"):
            return text == "true"
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        return self.fail(f"bad default {text}")


def _mark(struct, used):
    for f in struct.fields:
        if f.struct and f.struct.name not in used:
            used.add(f.struct.name)
            _mark(f.struct, used)


def parse_file(path):
    return Parser(path).file()
