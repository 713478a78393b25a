#include "wire/kw_errors.h"

const char *kw_error_name(int16_t code)
{
    switch (code) {
#define X(name, value, retriable)                                                                  \
    case value:                                                                                    \
        return #name;
#include "wire/kw_errors.def"
#undef X
    default:
        return "UNKNOWN";
    }
}

bool kw_error_retriable(int16_t code)
{
    switch (code) {
#define X(name, value, retriable)                                                                  \
    case value:                                                                                    \
        return retriable;
#include "wire/kw_errors.def"
#undef X
    default:
        return false;
    }
}
