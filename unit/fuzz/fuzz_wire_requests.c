/* Every request decoder, and that of the header before each. */
#include "fuzz_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kw_request_header header;
    struct kw_cursor c;
    kw_cursor_init(&c, data, size);
    int rc = kw_request_header_decode(&c, &header);
    KC_ASSERT(rc <= 0);
    fuzz_decode(data, size, false);
    return 0;
}
