#!/usr/bin/env python3
"""The generator refuses what GRAMMAR.md forbids, naming file and line, and reads what it allows."""

import os
import tempfile
import unittest

from kw_emit import header
from kw_model import SchemaError, min_wire, snake
from kw_parse import parse_file


def parse(text, name="records_x.kw"):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return parse_file(path)


def record(fields, head="X 0-3 flexible 2+"):
    return parse(f"record {head} {{\n{fields}\n}}\n")


class Refused(unittest.TestCase):
    def check(self, fields, why, head="X 0-3 flexible 2+"):
        with self.assertRaisesRegex(SchemaError, why):
            record(fields, head)

    def test_grammar(self):
        for fields, why in (
                ("A", "expected NAME TYPE"),
                ("A int33", "unknown type int33"),
                ("A int32 5x", "unexpected 5x"),
                ("A int32 = x", "bad default x"),
                ("A int32 tag", "unexpected tag"),
                ("A B {\nC int8", "not closed"),
                ("struct A {\nB int8\n}", "never used"),
                ("struct A {\nB int8\n}\nstruct A {\nB int8\n}\nC A", "defined twice"),
        ):
            with self.subTest(fields):
                self.check(fields, why)

    def test_rules(self):
        for fields, why in (
                ("A int32 4+", "not within"),
                ("A int32 0-4", "not within"),
                ("A int32 nullable", "cannot be null"),
                ("A string 1+ nullable 0+", "nullable where it does not exist"),
                ("A string tag 0", "not flexible"),
                ("A int8 2+ tag 0\nB int8 2+ tag 0", "tag used twice"),
                ("A int8\nA int8", "named twice"),
                ("A B 0 {\nC D 1 {\nE int8\n}\n}", "D occurs in no version"),
                ("A int8 = 128", "does not fit"),
                ("A uint16 = -1", "does not fit"),
                ("A string = null", "does not fit"),
                ("A bool = 1", "does not fit"),
                ("A []records", "records"),
                ("A B 2+ tag 0 {\nC records\n}", "records"),
                ("A B nullable {\nC int8\n}", "needs the default null"),
                ("A B {\nC int8\n}\nD XB {\nC int8\n}", "would be named kw_x_b"),
                ("A0 T0 {\n" + "".join(f"A{i} T{i} {{\n" for i in range(1, 9)) + "}\n" * 9, "deeper"),
        ):
            with self.subTest(fields):
                self.check(fields, why)

    def test_heads(self):
        self.check("A int8", "expected NAME VERSIONS", "X 0+")
        self.check("A int8", "expected NAME VERSIONS", "X 0-3 flexible")
        with self.assertRaisesRegex(SchemaError, "should be named NN_find_it.kw"):
            parse("api 1 FindIt 0\nrequest {\n}\nresponse {\n}\n", "01_other.kw")
        with self.assertRaisesRegex(SchemaError, "expected response"):
            parse("api 1 FindIt 0\nrequest {\n}\n", "01_find_it.kw")

    def test_place_is_named(self):
        self.check("A int8\nB what", r"records_x\.kw:3: unknown type what")


class Read(unittest.TestCase):
    def test_api(self):
        f = parse("# Notes.\napi 1 FindIt 0-3 flexible 2+  # more\nrequest {\n"
                  "    Keys  []FindItKey  nullable 1+ {\n        Name  string  2+ = null nullable\n    }\n"
                  "    Tag   int16  3 tag 0 = -1\n    Any   int8\n}\nresponse {\n}\n", "01_find_it.kw")
        request, response = f.messages
        self.assertEqual((f.key, f.notes, request.flexible), (1, ["Notes."], 2))
        self.assertEqual([x.name for x in request.root.wire_order()], ["Keys", "Any", "Tag"])
        keys = request.root.fields[0]
        self.assertEqual((keys.nullable.low, keys.nullable.high), (1, 3))
        self.assertEqual(request.c_name(keys.struct), "kw_find_it_request_key")
        self.assertEqual(min_wire(request.root, request), 3)  # versions 2 and 3: count, int8, tags
        self.assertEqual(min_wire(response.root, response), 1)
        self.assertIn("struct kw_find_it_request_key *keys;", header(f))

    def test_least_size_counts_only_versions_that_hold_the_struct(self):
        f = record("A []T 1+ {\n    B int64 1+\n    C string 2+\n}\nD int8")
        message = f.messages[0]
        self.assertEqual(min_wire(message.structs[0], message), 8)

    def test_names(self):
        for name, want in (("TransactionalId", "transactional_id"), ("V3AndBelowTopics", "v3_and_below_topics"),
                           ("ISRNodes", "isr_nodes"), ("topicId", "topic_id")):
            self.assertEqual(snake(name), want)


if __name__ == "__main__":
    unittest.main()
