/*
 * Tampering: a populated and sealed ledger is changed in one place, in every way and everywhere,
 * and after each change either verifying tells, or every answer is what it was. The same holds for
 * pairs of changes: one of anything, and one of what the ledger says about itself as a whole (the
 * table meta, and the keys that the whole ledger has one of). SQLite's pairs are made beside the
 * note of the newest event, as an attacker finds it who does not know of it.
 *
 *   populate.c  a ledger with an effect in every state
 *   battery.c   every question that is asked of it, and the answers as one text
 *   surface.c   cases as a list; what SQL stores share
 *   sqlite.c, postgres.c, redis.c   how each is changed and put back
 *   main.c      the run
 */
#ifndef SM_TESTS_TAMPER_H
#define SM_TESTS_TAMPER_H

#include <stdbool.h>
#include <stddef.h>

#include "../tools/tool.h"
#include "base/buf.h"
#include "semel/semel.h"

#define TAMPER_CONTRACT                                                                            \
    "{version: 1, tools: {t: {class: write}, once: {class: write, barrier: true}, "                \
    "busy: {class: write, barrier: true, lease: 1d}, "                                             \
    "pay: {class: irreversible, key: {fields: [/n]}, approval: {expires: 1d, quorum: 2}}, "        \
    "ask: {class: write, approval: {expires: 1d}}, "                                               \
    "soon: {class: write, approval: {expires: 5ms}}, "                                             \
    "login: {class: write, key: {fields: [/user]}, redact: [/password]}, "                         \
    "brief: {class: write, window: 1d, result_window: 5ms}, over: {class: write, window: 5ms}, "   \
    "again: {class: write, window: 1d, on_repeat: run, repeat_after: 1ms}, "                       \
    "set: {class: write, resource: [/id]}, "                                                       \
    "slow: {class: write, lease: 1d}}}"

/* A ledger under test. */
typedef struct subject {
    const char *url;
    const char *key_path;
    bool with_key; /* open it as somebody who has the key */
} subject;

/* Ends the program if the test itself does not work. */
#define must(good, ...) ((good) ? (void)0 : die(__VA_ARGS__))

semel *subject_open(const subject *s, int64_t audit_retention_ms, semel_fault *fault);

/* Makes the ledger, with everything sealed in the end. What the battery needs to know of it is left
 * in `memory`. */
typedef struct memory {
    char claims[4][128]; /* of attempts: one that runs, one in doubt, one settled, one replaced */
    char requests[4][128];
    char effects[64][64];
    size_t n_effects;
} memory;
void populate(const subject *s, memory *m);

/* Asks everything, and writes down the answers. It changes the ledger. */
void battery(semel *s, const memory *m, sm_buf *out);

/* What else people do with a ledger; only that it returns matters. */
void rummage(semel *s);

enum {
    OF_META = 1,  /* of what the ledger says about itself as a whole */
    OF_FINE = 2,  /* much like another one: not part of pairs */
    OF_PAIRS = 4, /* part of pairs only: alone, it is one of those that nobody can notice */
};

/* One change. */
typedef struct tampering {
    char *what;   /* for people; SQL: the statement itself */
    void *detail; /* Redis: what to do */
    unsigned of;
} tampering;

typedef struct surface {
    tampering *all;
    size_t n, room;
    unsigned of; /* of those that are added now */
} surface;
void surface_add(surface *s, char *what, void *detail);

/* How a store is laid open. */
typedef struct store_kind {
    const char *scheme;
    bool quick;                                       /* a trial takes milliseconds */
    void (*start)(surface *out, const char *url);     /* remembers all, lists the changes */
    bool (*change)(surface *s, const tampering *one); /* false: it was refused */
    void (*restore)(bool noted); /* as it was, with the note of the newest event or without */
} store_kind;
extern const store_kind tamper_sqlite, tamper_postgres, tamper_redis;

/* ---- what SQL stores share -------------------------------------------------------------------*/

typedef struct sql_column {
    char name[64];
    bool number;
    bool flag;
    bool key;
} sql_column;

typedef struct sql_table {
    char name[64];
    sql_column columns[40];
    size_t n_columns;
    size_t rows;
} sql_table;

/* Lists the changes of a table, which is `meta` or not. `flip` is a format of an expression with
 * one bit changed: a column and which of 8 parts of it. */
void sql_list(surface *out, const sql_table *t, const char *prefix, const char *flip);

char *print_new(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
