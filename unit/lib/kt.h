/* kt.h - the test harness on CUnit: one program a test file, one suite a program.
 *
 *   static void dead_broker_keeps_its_row(void) { KT_EQ(row->health, KP_DEAD); }
 *   KT_MAIN("registry", KT(dead_broker_keeps_its_row), ...)
 *
 * Assertions print their operands. A filter may be given as the first argument (substring). */
#ifndef KT_H
#define KT_H

#include <CUnit/CUnit.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct kt_case {
    const char *name;
    void (*fn)(void);
};

int kt_run(const char *suite, const struct kt_case *cases, size_t n, int argc, char **argv);
/* Seed of this run: KAAS_SEED or from the clock; printed once. */
uint64_t kt_seed(void);

#define KT(fn)                                                                                     \
    {                                                                                              \
#fn, fn                                                                                    \
    }
#define KT_MAIN(suite, ...)                                                                        \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static const struct kt_case cases[] = {__VA_ARGS__};                                       \
        return kt_run(suite, cases, sizeof(cases) / sizeof(cases[0]), argc, argv);                 \
    }

#define KT_TRUE(cond)                                                                              \
    CU_assertImplementation((cond) ? CU_TRUE : CU_FALSE, __LINE__, #cond, __FILE__, "", CU_FALSE)
#define KT_REQUIRE(cond)                                                                           \
    CU_assertImplementation((cond) ? CU_TRUE : CU_FALSE, __LINE__, #cond, __FILE__, "", CU_TRUE)
#define KT_FALSE(cond) KT_TRUE(!(cond))
/* Integers of any type; prints both. */
#define KT_EQ(got, want)                                                                           \
    do {                                                                                           \
        long long g_ = (long long)(got), w_ = (long long)(want);                                   \
        if (g_ != w_) {                                                                            \
            fprintf(stderr, "%s:%d: %s: got %lld, want %s = %lld\n", __FILE__, __LINE__, #got, g_, \
                    #want, w_);                                                                    \
        }                                                                                          \
        CU_assertImplementation(g_ == w_ ? CU_TRUE : CU_FALSE, __LINE__, #got " == " #want,        \
                                __FILE__, "", CU_FALSE);                                           \
    } while (0)
#define KT_STR(got, want)                                                                          \
    do {                                                                                           \
        const char *g_ = (got), *w_ = (want);                                                      \
        int same_ = g_ && w_ && strcmp(g_, w_) == 0;                                               \
        if (!same_) {                                                                              \
            fprintf(stderr, "%s:%d: %s: got \"%s\", want \"%s\"\n", __FILE__, __LINE__, #got,      \
                    g_ ? g_ : "(null)", w_ ? w_ : "(null)");                                       \
        }                                                                                          \
        CU_assertImplementation(same_ ? CU_TRUE : CU_FALSE, __LINE__, #got, __FILE__, "",          \
                                CU_FALSE);                                                         \
    } while (0)

#endif
