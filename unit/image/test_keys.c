/* The table of config keys, and the words in which brokers and the operator refuse a value. */
#include "image/ki_keys.h"
#include "kt.h"

static const struct ki_key *take(const char *name, const char *value, char why[KI_WHY_MAX])
{
    snprintf(why, KI_WHY_MAX, "-");
    return ki_key_take(KI_TOPIC_KEY, kc_str_of(name), kc_str_of(value), why, KI_WHY_MAX);
}

static void every_default_is_a_value_that_is_taken(void)
{
    char why[KI_WHY_MAX];
    size_t n;
    const struct ki_key *keys = ki_keys(&n);
    KT_TRUE(n > 80);
    for (size_t i = 0; i < n; i++) {
        struct kc_str name = kc_str_of(keys[i].name), dflt = kc_str_of(keys[i].dflt);
        if (keys[i].dflt) {
            KT_TRUE(ki_key_take(keys[i].scope, name, dflt, why, sizeof(why)) == &keys[i]);
        }
    }
}

/* Read-only in Kafka; the limits of connections are dynamic there (KIP-308, KIP-402). */
static void what_is_read_at_the_start_is_what_kafka_reads_then(void)
{
    size_t n, at_start = 0;
    const struct ki_key *keys = ki_keys(&n);
    for (size_t i = 0; i < n; i++) {
        at_start += keys[i].scope == KI_BROKER_KEY && ki_key_at_start(keys[i].name);
    }
    KT_EQ(at_start, 12);
    KT_TRUE(ki_key_at_start("group.max.size") && ki_key_at_start("connections.max.idle.ms"));
    KT_FALSE(ki_key_at_start("max.connections") || ki_key_at_start("max.connections.per.ip"));
}

static void a_refusal_names_the_key_and_what_would_fit(void)
{
    char why[KI_WHY_MAX];
    KT_TRUE(take("retention.ms", "-1", why) != NULL);
    KT_STR(why, "-");
    KT_TRUE(take("retention.msec", "1", why) == NULL);
    KT_STR(why, "Unknown topic config name: retention.msec");
    KT_TRUE(take("num.partitions", "1", why) == NULL); /* a broker's */
    KT_STR(why, "Unknown topic config name: num.partitions");
    KT_TRUE(take("cleanup.policy", "compact,never", why) == NULL);
    KT_STR(why, "cleanup.policy must be a list, valid: delete|compact, is \"compact,never\"");
    KT_TRUE(take("min.cleanable.dirty.ratio", "1.5", why) == NULL);
    KT_STR(why, "min.cleanable.dirty.ratio must be a decimal number, valid: 0..1, is \"1.5\"");
    KT_TRUE(ki_key_take(KI_TOPIC_KEY, kc_str_of("retention.ms"), KC_STR_NULL, why, sizeof(why)) ==
            NULL);
    KT_STR(why, "retention.ms must be a number, valid: -1.., is \"\"");
}

/* The text goes into answers and into JSON: whatever was sent, it is short and plain. */
static void a_refusal_is_plain_text(void)
{
    char why[KI_WHY_MAX], longest[400];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    KT_TRUE(take("retention.ms", "5\n\xff\xc3", why) == NULL);
    KT_STR(why, "retention.ms must be a number, valid: -1.., is \"5???\"");
    KT_TRUE(take(longest, "1", why) == NULL);
    KT_EQ(strlen(why), strlen("Unknown topic config name: ") + 60);
    KT_TRUE(take("compression.type", longest, why) == NULL);
    KT_TRUE(why[strlen(why) - 1] == '"'); /* not cut */
}

KT_MAIN("image/keys", KT(every_default_is_a_value_that_is_taken),
        KT(what_is_read_at_the_start_is_what_kafka_reads_then),
        KT(a_refusal_names_the_key_and_what_would_fit), KT(a_refusal_is_plain_text))
