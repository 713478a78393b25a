/* kc_base.h - attributes, small macros, string and byte views, assertions.
 *
 * Everything in common/base is usable from any thread unless a header says otherwise. */
#ifndef KC_BASE_H
#define KC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KC_MUST_CHECK __attribute__((warn_unused_result))
#define KC_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define KC_NORETURN __attribute__((noreturn))

#define KC_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KC_MIN(a, b) ((a) < (b) ? (a) : (b))
#define KC_MAX(a, b) ((a) > (b) ? (a) : (b))
#define KC_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Programmer errors only; stays on in release builds. Input from outside never reaches an
 * assertion unchecked. Prints the expression and aborts: the process is crash-only. */
#define KC_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) {                                                        \
            kc_assert_fail(#cond, __FILE__, __LINE__);                                             \
        }                                                                                          \
    } while (0)

KC_NORETURN void kc_assert_fail(const char *expr, const char *file, int line);

/* A borrowed string: ptr NULL means null (Kafka's null, distinct from empty); not terminated. */
struct kc_str {
    const char *ptr;
    int32_t len;
};

/* Borrowed bytes; ptr NULL means null. */
struct kc_bytes {
    const uint8_t *ptr;
    int32_t len;
};

#define KC_STR_NULL ((struct kc_str){NULL, 0})
#define KC_STR_LIT(s) ((struct kc_str){(s), (int32_t)(sizeof(s) - 1)})
#define KC_BYTES_NULL ((struct kc_bytes){NULL, 0})
/* For "%.*s". */
#define KC_STR_ARG(s) (s).len, ((s).ptr ? (s).ptr : "")

#endif
