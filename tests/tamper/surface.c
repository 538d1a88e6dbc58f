/* The list of changes, and those that are the same for all tables. */
#include "tamper.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAR_FUTURE "32503680000000"
#define PARTS      8u

char *print_new(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, format);
    must(vasprintf(&out, format, args) >= 0, "out of memory");
    va_end(args);
    return out;
}

void surface_add(surface *s, char *what, void *detail)
{
    if (s->n == s->room) {
        s->room = s->room == 0 ? 1024 : s->room * 2;
        s->all = realloc(s->all, s->room * sizeof *s->all);
        must(s->all != NULL, "out of memory");
    }
    s->all[s->n] = (tampering){.what = what, .detail = detail, .of = s->of};
    s->n++;
}

/* The columns of the primary key, and a row by its place in their order. */
static void put_keys(const sql_table *t, char out[256])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->n_columns; i++) {
        if (t->columns[i].key)
            n += (size_t)snprintf(out + n, 256 - n, "%s%s", n == 0 ? "" : ", ", t->columns[i].name);
    }
}

typedef struct listing {
    surface *out;
    const sql_table *t;
    const char *prefix;
    char keys[256];
} listing;

static char *row(const listing *l, size_t at)
{
    return print_new("(%s) = (SELECT %s FROM %s%s ORDER BY %s LIMIT 1 OFFSET %zu)", l->keys,
                     l->keys, l->prefix, l->t->name, l->keys, at);
}

static void set(const listing *l, const char *column, const char *where, const char *value)
{
    surface_add(
        l->out,
        print_new("UPDATE %s%s SET %s = %s WHERE %s", l->prefix, l->t->name, column, value, where),
        NULL);
}

/* The change that was added last. */
static void mark_fine(const listing *l, bool fine)
{
    if (fine && (l->out->of & OF_META) == 0)
        l->out->all[l->out->n - 1].of |= OF_FINE;
}

/* What another row has there. */
static char *value_of(const listing *l, const char *column, size_t at)
{
    return print_new("(SELECT %s FROM %s%s ORDER BY %s LIMIT 1 OFFSET %zu)", column, l->prefix,
                     l->t->name, l->keys, at);
}

static void list_column(const listing *l, const sql_column *c, size_t at, const char *flip)
{
    char *where = row(l, at), *other = value_of(l, c->name, (at + 1) % l->t->rows);
    char text[512];
    set(l, c->name, where, "NULL");
    if (l->t->rows > 1)
        set(l, c->name, where, other);
    if (c->flag) {
        snprintf(text, sizeof text, "NOT %s", c->name);
        set(l, c->name, where, text);
    } else if (c->number) {
        static const char *const changes[] = {"coalesce(%s, 0) + 1",
                                              "coalesce(%s, 0) - 1",
                                              "coalesce(%s, 0) + 0.5",
                                              "%s * 0",
                                              ("coalesce(%s, 0) * 0 + " FAR_FUTURE),
                                              "coalesce(%s, 0) * 0 + 9223372036854775807"};
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, changes[i], c->name);
#pragma GCC diagnostic pop
            set(l, c->name, where, text);
            mark_fine(l, i > 0 && i < 4);
        }
    } else {
        set(l, c->name, where, "''");
        for (unsigned part = 0; part < PARTS; part++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, flip, c->name, part);
#pragma GCC diagnostic pop
            set(l, c->name, where, text);
            mark_fine(l, part > 0);
        }
    }
    free(where);
    free(other);
}

/* A copy of a row under another key: each part of the key made another one in turn. */
static void list_copy(const listing *l, size_t at)
{
    const sql_table *t = l->t;
    char *where = row(l, at);
    for (size_t k = 0; k < t->n_columns; k++) {
        if (!t->columns[k].key)
            continue;
        static const char *const others[] = {"+ 1", "+ 1000", "* 0 + 1"};
        for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
            sm_buf names, values;
            sm_buf_init(&names, 1 << 16);
            sm_buf_init(&values, 1 << 16);
            for (size_t i = 0; i < t->n_columns; i++) {
                const char *comma = i == 0 ? "" : ", ", *name = t->columns[i].name;
                sm_buf_printf(&names, "%s%s", comma, name);
                if (i != k)
                    sm_buf_printf(&values, "%s%s", comma, name);
                else if (t->columns[i].number)
                    sm_buf_printf(&values, "%s%s %s", comma, name, others[o]);
                else
                    sm_buf_printf(&values, "%s%s || 'x'", comma, name);
            }
            surface_add(l->out,
                        print_new("INSERT INTO %s%s(%.*s) SELECT %.*s FROM %s%s WHERE %s",
                                  l->prefix, t->name, (int)names.len, names.p, (int)values.len,
                                  values.p, l->prefix, t->name, where),
                        NULL);
            sm_buf_fini(&names);
            sm_buf_fini(&values);
        }
    }
    free(where);
}

/* Two rows with each other's values: in one column, or (column NULL) in all but the key. */
static void list_swap(const listing *l, const sql_column *only, size_t a, size_t b)
{
    const sql_table *t = l->t;
    char *where_a = row(l, a), *where_b = row(l, b);
    sm_buf sets;
    sm_buf_init(&sets, 1 << 20);
    for (size_t i = 0; i < t->n_columns; i++) {
        const sql_column *c = &t->columns[i];
        if (c->key || (only != NULL && c != only))
            continue;
        char *of_a = value_of(l, c->name, a), *of_b = value_of(l, c->name, b);
        sm_buf_printf(&sets, "%s%s = CASE WHEN %s THEN %s ELSE %s END", sets.len == 0 ? "" : ", ",
                      c->name, where_a, of_b, of_a);
        free(of_a);
        free(of_b);
    }
    if (sets.len > 0)
        surface_add(l->out,
                    print_new("UPDATE %s%s SET %.*s WHERE %s OR %s", l->prefix, t->name,
                              (int)sets.len, sets.p, where_a, where_b),
                    NULL);
    sm_buf_fini(&sets);
    free(where_a);
    free(where_b);
}

void sql_list(surface *out, const sql_table *t, const char *prefix, const char *flip)
{
    listing l = {.out = out, .t = t, .prefix = prefix};
    out->of = strcmp(t->name, "meta") == 0 ? OF_META : 0;
    put_keys(t, l.keys);
    for (size_t at = 0; at < t->rows; at++) {
        char *where = row(&l, at);
        surface_add(out, print_new("DELETE FROM %s%s WHERE %s", prefix, t->name, where), NULL);
        free(where);
        list_copy(&l, at);
        for (size_t i = 0; i < t->n_columns; i++)
            list_column(&l, &t->columns[i], at, flip);
        if (at + 1 < t->rows) {
            list_swap(&l, NULL, at, at + 1);
            for (size_t i = 0; i < t->n_columns; i++)
                list_swap(&l, &t->columns[i], at, at + 1);
        }
    }
    out->of = 0;
}
