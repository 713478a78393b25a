/* kw_errors.h - Kafka's error codes as they stand in responses. Never mixed with kc_error.h's. */
#ifndef KW_ERRORS_H
#define KW_ERRORS_H

#include "base/kc_base.h"

enum kafka_error {
#define X(name, code, retriable) KAFKA_##name = (code),
#include "wire/kw_errors.def"
#undef X
};

/* "OFFSET_OUT_OF_RANGE", as Kafka spells it; "UNKNOWN" for a number that is none. */
const char *kw_error_name(int16_t code);
/* Whether Kafka's clients retry on it by themselves. */
bool kw_error_retriable(int16_t code);

#endif
