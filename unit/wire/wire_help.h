/* wire_help.h - hex, random messages, comparison of messages: for the codec's tests. */
#ifndef WIRE_HELP_H
#define WIRE_HELP_H

#include "base/kc_rng.h"
#include "wire/kw_api.h"

/* The writer's whole output, linked slices included, as lower-case hex; kc_free it. */
char *wire_hex(const struct kw_writer *w);
/* The whole output as bytes; kc_free it. */
uint8_t *wire_flat(const struct kw_writer *w, size_t *ret_len);
/* Bytes of a hex text into out; returns their number. */
size_t wire_unhex(const char *hex, uint8_t *out, size_t room);

/* Fills a message with random values that exist at the version (others keep their defaults), null
 * where the version allows it now and then, and records as linked slices half of the time. */
void wire_fill(const struct kw_message *m, int16_t version, struct kc_rng *rng, struct kc_arena *a,
               void *out);
/* Whether two messages have equal values, linked slices compared by their bytes. */
bool wire_equal(const struct kw_message *m, const void *a, const void *b);

/* Calls fn for every message of the codec, at every version. */
void wire_each(void (*fn)(const struct kw_message *m, int16_t version, void *ctx), void *ctx);

#endif
