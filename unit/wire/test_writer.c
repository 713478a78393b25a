/* Pieces, linked slices and their references, frames, limits. */
#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"
#include "kt.h"
#include "wire_help.h"

static void check_hex(const struct kw_writer *w, const char *want)
{
    char *hex = wire_hex(w);
    KT_STR(hex, want);
    kc_free(hex);
}

static struct kc_buf *buf_of(const char *text)
{
    struct kc_buf *b = kc_buf_new(strlen(text));
    KT_REQUIRE(b);
    memcpy(b->data, text, b->len);
    return b;
}

static void slices_are_linked_not_copied(void)
{
    struct kc_buf *b = buf_of("abcdef");
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_writer_u8(&w, 1);
    kw_writer_add_slice(&w, (struct kc_slice){b, b->data, 2});
    kw_writer_add_slice(&w, (struct kc_slice){b, b->data + 4, 2});
    kw_writer_add_slice(&w, (struct kc_slice){b, b->data, 0}); /* empty: no piece */
    kw_writer_u16(&w, 0x0203);
    KT_EQ(kw_writer_len(&w), 7);
    KT_EQ(atomic_load(&b->refs), 3);
    check_hex(&w, "01616265660203");

    struct kw_piece_iter it = {0};
    const uint8_t *p;
    size_t len;
    KT_TRUE(kw_writer_next(&w, &it, &p, &len) && len == 1);
    KT_TRUE(kw_writer_next(&w, &it, &p, &len) && p == b->data && len == 2);
    KT_TRUE(kw_writer_next(&w, &it, &p, &len) && p == b->data + 4 && len == 2);
    KT_TRUE(kw_writer_next(&w, &it, &p, &len) && len == 2);
    KT_FALSE(kw_writer_next(&w, &it, &p, &len));

    struct kw_writer moved = w; /* a writer may be moved by assignment */
    check_hex(&moved, "01616265660203");
    kw_writer_reset(&moved);
    KT_EQ(atomic_load(&b->refs), 1);
    KT_EQ(kw_writer_len(&moved), 0);
    kw_writer_fini(&moved);
    kc_buf_unref(b);
}

static void frames_count_linked_bytes(void)
{
    struct kc_buf *b = buf_of("xyz");
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    for (int i = 0; i < 2; i++) {
        struct kw_frame frame = kw_writer_begin_frame(&w);
        kw_writer_u8(&w, (uint8_t)i);
        kw_writer_slices(&w, &(struct kc_slice){b, b->data, b->len}, 1, true);
        kw_writer_end_frame(&w, frame);
    }
    check_hex(&w, "00000005000478797a"
                  "00000005010478797a");
    kw_writer_fini(&w);
    KT_EQ(atomic_load(&b->refs), 1);
    kc_buf_unref(b);
}

static void inserted_sizes_take_more_than_one_byte(void)
{
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_writer_u8(&w, 0xaa);
    size_t at = w.own.len;
    for (int i = 0; i < 200; i++) {
        kw_writer_u8(&w, (uint8_t)i);
    }
    kw_writer_insert_size(&w, at);
    KT_EQ(w.own.len, 1 + 2 + 200);
    KT_EQ(w.own.data[1], 0xc8);
    KT_EQ(w.own.data[2], 0x01);
    KT_EQ(w.own.data[3], 0);
    KT_EQ(w.own.data[202], 199);
    kw_writer_fini(&w);
}

static void the_limit_covers_own_and_linked_bytes(void)
{
    struct kc_buf *b = buf_of("0123456789");
    struct kw_writer w;
    kw_writer_init(&w, 12);
    kw_writer_u16(&w, 1);
    kw_writer_add_slice(&w, (struct kc_slice){b, b->data, b->len});
    KT_EQ(w.error, 0);
    kw_writer_u8(&w, 1);
    KT_EQ(w.error, KC_E_TOO_LARGE);
    kw_writer_u8(&w, 1); /* sticky, and a no-op */
    KT_EQ(kw_writer_len(&w), 12);
    kw_writer_reset(&w);
    kw_writer_u32(&w, 1);
    kw_writer_add_slice(&w, (struct kc_slice){b, b->data, b->len});
    KT_EQ(w.error, KC_E_TOO_LARGE);
    KT_EQ(atomic_load(&b->refs), 1);
    kw_writer_fini(&w);
    kc_buf_unref(b);
}

static void strings_longer_than_32767_are_refused(void)
{
    static char text[32768];
    struct kw_writer w;
    kw_writer_init(&w, 1 << 20);
    kw_writer_str(&w, (struct kc_str){text, 32767}, true);
    KT_EQ(w.error, 0);
    kw_writer_str(&w, (struct kc_str){text, 32768}, true);
    KT_EQ(w.error, KC_E_TOO_LARGE);
    kw_writer_fini(&w);
}

static void null_and_empty_are_written_apart(void)
{
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kw_writer_str(&w, KC_STR_NULL, false);
    kw_writer_str(&w, KC_STR_LIT(""), false);
    kw_writer_str(&w, KC_STR_NULL, true);
    kw_writer_str(&w, KC_STR_LIT(""), true);
    kw_writer_bytes(&w, KC_BYTES_NULL, false);
    kw_writer_bytes(&w, KC_BYTES_NULL, true);
    kw_writer_array(&w, -1, false);
    kw_writer_array(&w, -1, true);
    kw_writer_array(&w, 0, true);
    check_hex(&w, "ffff00000001ffffffff00ffffffff0001");
    kw_writer_fini(&w);
}

static void no_memory_is_an_error_not_a_crash(void)
{
    struct kw_writer w;
    kw_writer_init(&w, 1024);
    kc_mem_fail_nth(1, false);
    kw_writer_u8(&w, 1);
    kc_mem_fail_nth(0, false);
    KT_EQ(w.error, -ENOMEM);
    kw_writer_reset(&w);
    kw_writer_u8(&w, 1);
    KT_EQ(w.error, 0);
    kw_writer_fini(&w);
}

KT_MAIN("wire writer", KT(slices_are_linked_not_copied), KT(frames_count_linked_bytes),
        KT(inserted_sizes_take_more_than_one_byte), KT(the_limit_covers_own_and_linked_bytes),
        KT(strings_longer_than_32767_are_refused), KT(null_and_empty_are_written_apart),
        KT(no_memory_is_an_error_not_a_crash))
