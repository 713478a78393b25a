/* Strings, numbers, ids, hashes and encodings against fixed vectors. */
#include "kt.h"

#include <stdlib.h>

#include "base/kc_b64.h"
#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "base/kc_out.h"
#include "base/kc_str.h"
#include "base/kc_uuid.h"

static void integers_parse_strictly(void)
{
    static const struct {
        const char *text;
        int rc;
        int64_t value;
    } rows[] = {
        {"0", 0, 0},
        {"-1", 0, -1},
        {"9223372036854775807", 0, INT64_MAX},
        {"-9223372036854775808", 0, INT64_MIN},
        {"9223372036854775808", -34, 0},
        {"", -22, 0},
        {"-", -22, 0},
        {"12x", -22, 0},
        {" 1", -22, 0},
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(rows); i++) {
        int64_t v = 0;
        KT_EQ(kc_parse_i64(kc_str_of(rows[i].text), &v), rows[i].rc);
        KT_EQ(v, rows[i].value);
    }
}

static void durations_parse_with_units(void)
{
    int64_t ms;
    KT_EQ(kc_parse_duration_ms(KC_STR_LIT("1500"), &ms), 0);
    KT_EQ(ms, 1500);
    KT_EQ(kc_parse_duration_ms(KC_STR_LIT("3s"), &ms), 0);
    KT_EQ(ms, 3000);
    KT_EQ(kc_parse_duration_ms(KC_STR_LIT("2h"), &ms), 0);
    KT_EQ(ms, 7200000);
    KT_TRUE(kc_parse_duration_ms(KC_STR_LIT("3 s"), &ms) < 0);
    KT_TRUE(kc_parse_duration_ms(KC_STR_LIT("s"), &ms) < 0);
}

static void null_and_empty_strings_differ(void)
{
    KT_TRUE(kc_str_eq(KC_STR_NULL, KC_STR_NULL));
    KT_FALSE(kc_str_eq(KC_STR_NULL, KC_STR_LIT("")));
    KT_TRUE(kc_str_eqz(KC_STR_LIT("abc"), "abc"));
    KT_TRUE(kc_str_cmp(KC_STR_LIT("a"), KC_STR_LIT("ab")) < 0);
}

/* java.lang.String.hashCode of the same strings. */
static void java_hash_agrees_with_java(void)
{
    KT_EQ(kc_java_hash(KC_STR_LIT("")), 0);
    KT_EQ(kc_java_hash(KC_STR_LIT("hello")), 99162322);
    KT_EQ(kc_java_hash(KC_STR_LIT("polygenelubricants")), INT32_MIN);
    KT_EQ(kc_java_hash(KC_STR_LIT("\xc3\xa9")), 0xe9);
    KT_EQ(kc_java_hash(KC_STR_LIT("\xf0\x9f\x98\x80")), 0xd83d * 31 + 0xde00);
    KT_EQ(kc_coordinator_slot(KC_STR_LIT("polygenelubricants"), 50), 0);
    KT_EQ(kc_coordinator_slot(KC_STR_LIT("hello"), 50), 99162322 % 50);
}

static void uuids_round_trip(void)
{
    for (int i = 0; i < 200; i++) {
        struct kc_uuid u = kc_uuid_random(), v;
        char b64[KC_UUID_B64_LEN + 1], hex[KC_UUID_HEX_LEN + 1];
        kc_uuid_to_b64(&u, b64);
        kc_uuid_to_hex(&u, hex);
        KT_TRUE(b64[0] != '-');
        KT_EQ(kc_uuid_from_b64(kc_str_of(b64), &v), 0);
        KT_TRUE(kc_uuid_eq(&u, &v));
        KT_EQ(kc_uuid_from_hex(kc_str_of(hex), &v), 0);
        KT_TRUE(kc_uuid_eq(&u, &v));
    }
    struct kc_uuid v;
    KT_TRUE(kc_uuid_from_b64(KC_STR_LIT("AAAAAAAAAAAAAAAAAAAAA"), &v) < 0);
    KT_TRUE(kc_uuid_from_b64(KC_STR_LIT("AAAAAAAAAAAAAAAAAAAAA!"), &v) < 0);
    KT_TRUE(kc_uuid_from_hex(KC_STR_LIT("xx"), &v) < 0);
}

static void base64_round_trips_and_refuses_garbage(void)
{
    for (size_t n = 0; n < 20; n++) {
        uint8_t data[20];
        for (size_t i = 0; i < n; i++) {
            data[i] = (uint8_t)(i * 37);
        }
        size_t len, back_len;
        char *text = kc_b64_encode(data, n, &len);
        KT_REQUIRE(text != NULL);
        uint8_t *back = kc_b64_decode((struct kc_str){text, (int32_t)len}, &back_len);
        KT_REQUIRE(back != NULL);
        KT_EQ(back_len, n);
        KT_TRUE(memcmp(back, data, n) == 0);
        kc_free(text);
        kc_free(back);
    }
    size_t len;
    KT_TRUE(kc_b64_decode(KC_STR_LIT("abc"), &len) == NULL);
    KT_TRUE(kc_b64_decode(KC_STR_LIT("a=bc"), &len) == NULL);
    KT_TRUE(kc_b64_decode(KC_STR_LIT("ab=c"), &len) == NULL);
}

static void times_print_as_rfc3339(void)
{
    char out[32];
    kc_rfc3339(0, false, out);
    KT_STR(out, "1970-01-01T00:00:00Z");
    kc_rfc3339(1700000000123, true, out);
    KT_STR(out, "2023-11-14T22:13:20.123000Z");
}

/* A sample after a head that was left out would be of no family. */
static void what_does_not_fit_takes_all_after_it_along(void)
{
    char body[16];
    struct kc_out o = {.body = body, .cap = sizeof(body)};
    kc_out_printf(&o, "%s\n", "0123456789");
    KT_EQ(o.len, 11);
    kc_out_printf(&o, "%s", "abcde"); /* one too many, with its end */
    KT_EQ(o.len, 11);
    kc_out_printf(&o, "%s", "a"); /* there would be room */
    KT_EQ(o.len, 11);
    KT_TRUE(memcmp(body, "0123456789\n", 11) == 0);
}

KT_MAIN("base strings", KT(integers_parse_strictly), KT(durations_parse_with_units),
        KT(null_and_empty_strings_differ), KT(java_hash_agrees_with_java), KT(uuids_round_trip),
        KT(base64_round_trips_and_refuses_garbage), KT(times_print_as_rfc3339),
        KT(what_does_not_fit_takes_all_after_it_along))
