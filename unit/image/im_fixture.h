/* Images for the tests of common/image. */
#ifndef IM_FIXTURE_H
#define IM_FIXTURE_H

#include "image/ki_image.h"

enum { FIX_TOPICS_MAX = 4000 };

/* n_topics topics of n_parts partitions, three brokers; ids derive from seed. */
struct ki_image *fix_image(int32_t n_topics, int32_t n_parts, uint64_t seed);
/* The id of topic i. */
struct kc_uuid fix_topic_id(uint64_t seed, int32_t i);
struct kc_uuid fix_uuid(uint64_t a, uint64_t b);

#endif
