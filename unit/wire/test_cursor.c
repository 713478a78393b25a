/* The primitive types: varints at their edges, null and empty, sticky errors. */
#include "kt.h"
#include "wire_help.h"

static struct kw_cursor of(const char *hex)
{
    static uint8_t bytes[64];
    struct kw_cursor c;
    size_t n = wire_unhex(hex, bytes, sizeof(bytes));
    kw_cursor_init(&c, bytes, n);
    return c;
}

static void fixed_width_numbers_are_big_endian(void)
{
    struct kw_cursor c = of("80"
                            "ff00"
                            "ff00"
                            "80000001"
                            "8000000000000001"
                            "3ff8000000000000"
                            "02");
    KT_EQ(kw_cursor_i8(&c), -128);
    KT_EQ(kw_cursor_i16(&c), -256);
    KT_EQ(kw_cursor_u16(&c), 0xff00);
    KT_EQ(kw_cursor_i32(&c), INT32_MIN + 1);
    KT_EQ(kw_cursor_i64(&c), INT64_MIN + 1);
    KT_TRUE(kw_cursor_f64(&c) == 1.5);
    KT_EQ(kw_cursor_bool(&c), true); /* any byte but 0 */
    KT_EQ(kw_cursor_left(&c), 0);
    KT_EQ(c.error, 0);
}

static void first_error_sticks_and_empties_the_cursor(void)
{
    struct kw_cursor c = of("000102");
    KT_EQ(kw_cursor_i32(&c), 0);
    KT_EQ(c.error, KC_E_TRUNCATED);
    KT_EQ(kw_cursor_left(&c), 0);
    KT_EQ(kw_cursor_u8(&c), 0);
    kw_cursor_fail(&c, KC_E_MALFORMED);
    KT_EQ(c.error, KC_E_TRUNCATED);
    c = of("00000000ff");
    KT_EQ(kw_cursor_u64(&c), 0); /* half of it was there */
    KT_EQ(c.error, KC_E_TRUNCATED);
}

static void an_empty_input_may_be_a_null_pointer(void)
{
    struct kw_cursor c;
    kw_cursor_init(&c, NULL, 0);
    KT_EQ(kw_cursor_left(&c), 0);
    KT_EQ(kw_cursor_u8(&c), 0);
    KT_EQ(c.error, KC_E_TRUNCATED);
}

static void check_uvarint(const char *hex, uint32_t want, int error)
{
    struct kw_cursor c = of(hex);
    KT_EQ(kw_cursor_uvarint(&c), want);
    KT_EQ(c.error, error);
}

static void uvarints_end_at_32_bits(void)
{
    check_uvarint("00", 0, 0);
    check_uvarint("7f", 127, 0);
    check_uvarint("8001", 128, 0);
    check_uvarint("ffffffff0f", UINT32_MAX, 0);
    check_uvarint("8000", 0, 0); /* padded, as Kafka accepts it */
    check_uvarint("ffffffff1f", 0, KC_E_MALFORMED);
    check_uvarint("ffffffff8f00", 0, KC_E_MALFORMED);
    check_uvarint("8080", 0, KC_E_TRUNCATED);
    check_uvarint("", 0, KC_E_TRUNCATED);
}

static void varlongs_end_at_64_bits(void)
{
    struct kw_cursor c = of("ffffffffffffffffff01");
    KT_EQ(kw_cursor_varlong(&c), INT64_MIN);
    KT_EQ(c.error, 0);
    c = of("feffffffffffffffff01");
    KT_EQ(kw_cursor_varlong(&c), INT64_MAX);
    c = of("ffffffffffffffffff03");
    kw_cursor_varlong(&c);
    KT_EQ(c.error, KC_E_MALFORMED);
}

static void varints_of_every_width_survive(void)
{
    struct kw_writer w;
    kw_writer_init(&w, 4096);
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int sign = 0; sign < 2; sign++) {
            uint64_t edge = UINT64_C(1) << bit;
            int64_t v = (int64_t)(sign ? 0 - edge : edge - 1);
            kw_writer_reset(&w);
            kw_writer_varlong(&w, v);
            kw_writer_varint(&w, (int32_t)v);
            kw_writer_uvarlong(&w, (uint64_t)v);
            struct kw_cursor c;
            kw_cursor_init(&c, w.own.data, w.own.len);
            KT_EQ(kw_cursor_varlong(&c), v);
            KT_EQ(kw_cursor_varint(&c), (int32_t)v);
            KT_TRUE(kw_cursor_uvarlong(&c) == (uint64_t)v);
            KT_EQ(c.error, 0);
            KT_EQ(kw_cursor_left(&c), 0);
        }
    }
    kw_writer_fini(&w);
}

static void check_str(const char *hex, bool flexible, bool nullable, int want_len, int error)
{
    struct kw_cursor c = of(hex);
    struct kc_str s = kw_cursor_str(&c, flexible, nullable);
    KT_EQ(c.error, error);
    KT_EQ(s.ptr ? s.len : -1, want_len);
}

static void null_and_empty_strings_differ(void)
{
    check_str("ffff", false, true, -1, 0);
    check_str("ffff", false, false, -1, KC_E_MALFORMED);
    check_str("fffe", false, true, -1, 0); /* any negative length is null, as in Kafka */
    check_str("0000", false, false, 0, 0);
    check_str("00", true, true, -1, 0);
    check_str("00", true, false, -1, KC_E_MALFORMED);
    check_str("01", true, false, 0, 0);
    check_str("0361", true, false, -1, KC_E_TRUNCATED);
    check_str("0003616263", false, false, 3, 0);
    check_str("818002", true, false, -1, KC_E_MALFORMED); /* 32768 characters */
    check_str("808002", true, false, -1, KC_E_TRUNCATED); /* 32767, but not there */
}

static void null_and_empty_arrays_differ(void)
{
    struct kw_cursor c = of("00"
                            "01"
                            "ffffffff"
                            "00000000");
    KT_EQ(kw_cursor_array(&c, true, true), -1);
    KT_EQ(kw_cursor_array(&c, true, true), 0);
    KT_EQ(kw_cursor_array(&c, false, true), -1);
    KT_EQ(kw_cursor_array(&c, false, true), 0);
    KT_EQ(c.error, 0);
    c = of("00");
    kw_cursor_array(&c, true, false);
    KT_EQ(c.error, KC_E_MALFORMED);
    c = of("ffffffff0f"); /* 2^32 - 2 elements */
    kw_cursor_array(&c, true, true);
    KT_EQ(c.error, KC_E_MALFORMED);
}

static void tags_are_skipped_by_their_size(void)
{
    struct kw_cursor c = of("02"
                            "0003aabbcc"
                            "8f0100"
                            "55");
    kw_cursor_skip_tags(&c);
    KT_EQ(c.error, 0);
    KT_EQ(kw_cursor_u8(&c), 0x55);
    c = of("010005aa");
    kw_cursor_skip_tags(&c);
    KT_EQ(c.error, KC_E_TRUNCATED);
    c = of("ffffffff0f0000");
    kw_cursor_skip_tags(&c); /* ends with the input, not after four billion turns */
    KT_EQ(c.error, KC_E_TRUNCATED);
}

KT_MAIN("wire cursor", KT(fixed_width_numbers_are_big_endian),
        KT(first_error_sticks_and_empties_the_cursor), KT(an_empty_input_may_be_a_null_pointer),
        KT(uvarints_end_at_32_bits), KT(varlongs_end_at_64_bits),
        KT(varints_of_every_width_survive), KT(null_and_empty_strings_differ),
        KT(null_and_empty_arrays_differ), KT(tags_are_skipped_by_their_size))
