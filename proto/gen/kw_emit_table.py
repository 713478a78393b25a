"""Writes what covers all schema files: the API table in C and the coverage page."""

from kw_model import OPEN
from kw_emit import show


def _apis(files):
    return sorted((f for f in files if f.key >= 0), key=lambda f: f.key)


def _message_list(files):
    lines = [f"    &{m.prefix}_msg," for f in files if f.key < 0 for m in f.messages]
    return ["/* Messages that are not APIs: records of internal topics and embedded protocols. */",
            "static const struct kw_message *const records[] = {", *lines, "};", "",
            "const struct kw_message *const *kw_records_all(size_t *ret_n)", "{",
            "    *ret_n = KC_ARRAY_LEN(records);", "    return records;", "}", ""]


def table(files):
    apis = _apis(files)
    out = ["/* Generated from proto/kafka, do not edit. */", '#include "wire/kw_api.h"', ""]
    out += [f'#include "wire/kw_{f.stem}.h"' for f in sorted(files, key=lambda f: f.stem)]
    out.append("")
    for f in apis:
        request, response = f.messages
        flexible = -1 if request.flexible == OPEN else request.flexible
        out += [f"static const struct kw_api {f.stem} = {{",
                f'    .key = {f.key}, .name = "{f.name}",',
                f"    .min = {request.versions.low}, .max = {request.versions.high}, "
                f".flexible_from = {flexible},",
                f"    .request_size = sizeof(struct {request.prefix}),",
                f"    .response_size = sizeof(struct {response.prefix}),",
                f"    .request = &{request.prefix}_msg, .response = &{response.prefix}_msg,",
                "};"]
    out += ["", "static const struct kw_api *const all[] = {", *(f"    &{f.stem}," for f in apis),
            "};", ""]
    out += ["static const struct kw_api *const by_key[] = {",
            *(f"    [{f.key}] = &{f.stem}," for f in apis), "};", ""]
    out += ["const struct kw_api *kw_api_find(int16_t key)", "{",
            "    return key >= 0 && (size_t)key < KC_ARRAY_LEN(by_key) ? by_key[key] : NULL;",
            "}", "",
            "const struct kw_api *const *kw_api_all(size_t *ret_n)", "{",
            "    *ret_n = KC_ARRAY_LEN(all);", "    return all;", "}", ""]
    if any(f.key < 0 for f in files):
        out += _message_list(files)
    return "\n".join(out)


def coverage(files):
    """A Markdown table of what the codec speaks."""
    out = ["| key | API | versions | flexible from |", "|---|---|---|---|"]
    for f in _apis(files):
        m = f.messages[0]
        flexible = "never" if m.flexible == OPEN else m.flexible
        out.append(f"| {f.key} | {f.name} | {show(m.versions)} | {flexible} |")
    return "\n".join(out) + "\n"
