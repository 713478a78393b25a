#include "kt_prom.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAMILIES = 256, NAME = 100, LINE = 1024, SERIES = 1024 };

static char families[FAMILIES][NAME];
static char kinds[FAMILIES][16];
static int n_families;
static char series[SERIES][256];
static int n_series;
static char why[LINE + 100];

static const char *wrong(const char *what, const char *line)
{
    snprintf(why, sizeof(why), "%s: %.900s", what, line);
    return why;
}

static size_t name_len(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == ':') {
        n++;
    }
    return n > 0 && !isdigit((unsigned char)s[0]) && n < NAME ? n : 0;
}

/* HELP opens a family, TYPE must follow it at once. */
static const char *comment(const char *line)
{
    bool help = strncmp(line, "# HELP ", 7) == 0;
    if (!help && strncmp(line, "# TYPE ", 7) != 0) {
        return wrong("neither HELP nor TYPE", line);
    }
    const char *name = line + 7;
    size_t n = name_len(name);
    if (n == 0 || name[n] != ' ' || name[n + 1] == '\0') {
        return wrong("no name or no text", line);
    }
    if (!help) {
        const char *kind = name + n + 1;
        bool counter = strcmp(kind, "counter") == 0;
        if (n_families == 0 || strlen(families[n_families - 1]) != n ||
            strncmp(families[n_families - 1], name, n) != 0 || kinds[n_families - 1][0]) {
            return wrong("TYPE without its HELP before it", line);
        }
        if (!counter && strcmp(kind, "gauge") != 0) {
            return wrong("unknown type", line);
        }
        bool total = n > 6 && strncmp(name + n - 6, "_total", 6) == 0;
        snprintf(kinds[n_families - 1], sizeof(kinds[0]), "%s", kind);
        return counter == total ? NULL : wrong("a counter, and only one, ends in _total", line);
    }
    for (int i = 0; i < n_families; i++) {
        if (strlen(families[i]) == n && strncmp(families[i], name, n) == 0) {
            return wrong("a family twice", line);
        }
    }
    if (n_families == FAMILIES) {
        return wrong("too many families", line);
    }
    snprintf(families[n_families], NAME, "%.*s", (int)n, name);
    kinds[n_families++][0] = '\0';
    return NULL;
}

/* {name="value",...}: returns what follows, NULL if it does not parse. */
static const char *labels(const char *s)
{
    if (*s != '{') {
        return s;
    }
    do {
        size_t n = name_len(++s);
        if (n == 0 || s[n] != '=' || s[n + 1] != '"') {
            return NULL;
        }
        for (s += n + 2; *s && *s != '"'; s++) {
            s += *s == '\\' && s[1];
        }
        if (*s++ != '"') {
            return NULL;
        }
    } while (*s == ',');
    return *s == '}' ? s + 1 : NULL;
}

static const char *sample(const char *line)
{
    size_t n = name_len(line);
    const char *family = n_families ? families[n_families - 1] : "";
    if (n == 0 || strlen(family) != n || strncmp(family, line, n) != 0 ||
        !kinds[n_families - 1][0]) {
        return wrong("not of the family before it", line);
    }
    const char *value = labels(line + n);
    char *end = NULL;
    if (!value || *value != ' ' || isspace((unsigned char)value[1])) {
        return wrong("labels do not parse", line);
    }
    (void)strtod(value + 1, &end);
    if (end == value + 1 || *end) {
        return wrong("not a number", line);
    }
    if (n_series == SERIES) {
        return wrong("too many series", line);
    }
    snprintf(series[n_series], sizeof(series[0]), "%.*s", (int)(value - line), line);
    for (int i = 0; i < n_series; i++) {
        if (strcmp(series[i], series[n_series]) == 0) {
            return wrong("a series twice", line);
        }
    }
    n_series++;
    return NULL;
}

const char *kt_prom_check(const char *text)
{
    n_families = n_series = 0;
    while (*text) {
        const char *end = strchr(text, '\n');
        char line[LINE];
        if (!end || end - text >= LINE) {
            return wrong("a line without end, or too long", text);
        }
        snprintf(line, sizeof(line), "%.*s", (int)(end - text), text);
        const char *bad = line[0] == '#' ? comment(line) : sample(line);
        if (bad) {
            return bad;
        }
        text = end + 1;
    }
    return n_series ? NULL : wrong("empty", "");
}

bool kt_prom_value(const char *text, const char *name, double *ret)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n) {
        if ((at == text || at[-1] == '\n') && at[n] == ' ') {
            *ret = strtod(at + n + 1, NULL);
            return true;
        }
    }
    return false;
}

double kt_prom_get(const char *text, const char *name)
{
    double v = -1000;
    KT_TRUE(kt_prom_value(text, name, &v));
    return v;
}
