#include "kt.h"

#include <CUnit/Basic.h>
#include <stdlib.h>

#include "base/kc_clock.h"

uint64_t kt_seed(void)
{
    static uint64_t seed;
    if (!seed) {
        const char *env = getenv("KAAS_SEED");
        seed = env ? strtoull(env, NULL, 10) : (uint64_t)kc_wall_ms();
        printf("seed %llu (KAAS_SEED replays)\n", (unsigned long long)seed);
    }
    return seed;
}

int kt_run(const char *suite, const struct kt_case *cases, size_t n, int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (CU_initialize_registry() != CUE_SUCCESS) {
        return 2;
    }
    CU_pSuite s = CU_add_suite(suite, NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        if (argc < 2 || strstr(cases[i].name, argv[1])) {
            CU_add_test(s, cases[i].name, cases[i].fn);
        }
    }
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
    unsigned ran = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures || ran == 0 ? 1 : 0;
}
