/* kt_prom.h - is a text what Prometheus would take? */
#ifndef KT_PROM_H
#define KT_PROM_H

#include <stdbool.h>
#include <stddef.h>

#include "kt.h"

/* Checks every line of an exposition: names, labels and values parse; each family has one HELP and
 * one TYPE, before its samples, and is not interrupted by another; no series twice; counters end in
 * _total. NULL if all is well, else what is wrong, in a buffer of its own (static). */
const char *kt_prom_check(const char *text);
/* The value of a series, written as the text writes it ("name" or "name{label=\"x\"}"). */
bool kt_prom_value(const char *text, const char *series, double *ret);

/* The text is what Prometheus would take, else the test fails and says why. */
#define KT_PROM(text)                                                                              \
    do {                                                                                           \
        const char *bad_ = kt_prom_check(text);                                                    \
        KT_STR(bad_ ? bad_ : "", "");                                                              \
    } while (0)
/* The value of a series that has to be there; the test fails if it is not. */
double kt_prom_get(const char *text, const char *series);

#endif
