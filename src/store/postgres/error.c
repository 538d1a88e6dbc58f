/*
 * What an error of the server or of the network means.
 *
 * The server says by its SQLSTATE what happened. An error that the server sends has undone the
 * statement, unless it ends the session; that, as a lost connection, leaves its end unknown. Of the
 * server's words only the main message is passed on: its details may quote rows.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>

/* One line of what may be several, without its end. */
static semel_str line_of(const char *text)
{
    if (text == NULL)
        return SM_STR("it says nothing");
    size_t n = strcspn(text, "\r\n");
    return (semel_str){text, n < 250 ? n : 250};
}

semel_err sm_pg_nomem(semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

semel_err sm_pg_collision(const semel_store *st, semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_CORRUPT,
                        "%s has a record of another key under this key's id: it is damaged, or two "
                        "keys share an id; run `semel audit verify`",
                        st->where);
}

/* libpq refuses a replica and a session that cannot write with the same words. What a server says
 * of itself is still there, if it is not too old to say it. */
static const char *readonly_advice(const PGconn *pg, const char *words)
{
    const char *standby = PQparameterStatus(pg, "in_hot_standby");
    if ((standby != NULL && strcmp(standby, "on") == 0) || strstr(words, "standby") != NULL)
        return "it is a replica: name the primary server in the ledger's URL";
    return strstr(words, "read-only") == NULL
               ? NULL
               : "it is a replica, and the primary server is to be named in the ledger's URL; or "
                 "default_transaction_read_only is on for this role, database or server";
}

void sm_pg_fault_conn(const char *where, const PGconn *pg, semel_fault *fault)
{
    const char *words = pg == NULL ? "out of memory" : PQerrorMessage(pg);
    const char *advice = pg == NULL ? NULL : readonly_advice(pg, words);
    semel_str line = line_of(words);
    if (advice != NULL)
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s cannot be written: %s (%.*s)", where, advice,
                     SM_FMT(line));
    else
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s cannot be reached: %.*s", where, SM_FMT(line));
}

void sm_pg_fault_late(const semel_store *st, const char *where, semel_fault *fault)
{
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                 "%s has not answered within %lld ms: it is stopped, overloaded or cut off", where,
                 (long long)st->settings.timeout_ms);
}

bool sm_pg_is_passing(const semel_fault *why)
{
    static const char *const words[] = {"starting up", "shutting down", "in recovery mode",
                                        "not yet accepting connections", "terminating connection"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(why->text, words[i]) != NULL)
            return true;
    }
    return false;
}

typedef struct meaning {
    const char *state; /* a SQLSTATE, or its first two characters */
    sm_pg_fate way;
    sm_err err;
    const char *advice;
} meaning;

static const meaning meanings[] = {
    {"40001", SM_PG_AGAIN, SEMEL_E_UNAVAILABLE, "try again"},
    {"40P01", SM_PG_AGAIN, SEMEL_E_UNAVAILABLE, "try again"},
    {"55P03", SM_PG_AGAIN, SEMEL_E_UNAVAILABLE, "try again"},
    {"22012", SM_PG_AGAIN, SEMEL_E_UNAVAILABLE, "the write was too long under way"},
    {"23514", SM_PG_FAILED, SEMEL_E_OVER_CAP, "a counter would pass its cap"},
    {"22003", SM_PG_FAILED, SEMEL_E_OVER_CAP, "a counter would pass its cap"},
    {"53100", SM_PG_FAILED, SEMEL_E_UNAVAILABLE, "free space on the server's disk"},
    {"53200", SM_PG_FAILED, SEMEL_E_UNAVAILABLE, "the server needs memory"},
    {"53", SM_PG_LOST, SEMEL_E_UNAVAILABLE, "the server has no room for more; try again later"},
    {"57014", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "the server stopped it; look at statement_timeout of this role"},
    {"57", SM_PG_LOST, SEMEL_E_UNAVAILABLE, "try again when the server is up"},
    {"25006", SM_PG_LOST, SEMEL_E_UNAVAILABLE, "this server is a replica or read-only"},
    {"08", SM_PG_LOST, SEMEL_E_UNAVAILABLE, "try again"},
    {"0A000", SM_PG_LOST, SEMEL_E_UNAVAILABLE, "the tables have changed; try again"},
    {"26000", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "is there a pooler in between? Then add pooler=transaction to the ledger's URL"},
    {"42P05", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "is there a pooler in between? Then add pooler=transaction to the ledger's URL"},
    {"42501", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "grant this role the use of the ledger's schema and tables, or run `semel store migrate` with "
     "one that owns them"},
    {"42P01", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "the ledger's tables are gone; `semel store migrate` makes new ones"},
    {"3F000", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "the ledger's schema is gone; `semel store migrate` makes a new one"},
    {"42", SM_PG_FAILED, SEMEL_E_UNAVAILABLE,
     "these are not the tables of a ledger; name another schema, or run `semel store migrate`"},
    {"58", SM_PG_FAILED, SEMEL_E_UNAVAILABLE, "the server's disk is in trouble; look at its log"},
    {"23", SM_PG_FAILED, SEMEL_E_CORRUPT, "the ledger is damaged; run `semel doctor`"},
    {"XX000", SM_PG_FAILED, SEMEL_E_UNAVAILABLE, "look at the server's log"},
    {"XX", SM_PG_FAILED, SEMEL_E_CORRUPT, "the ledger is damaged; run `semel doctor`"},
    {"", SM_PG_FAILED, SEMEL_E_UNAVAILABLE, "look at the server's log"},
};

bool sm_pg_is_end(const PGresult *r)
{
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    return severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

sm_pg_fate sm_pg_judge(const semel_store *st, const PGresult *r, bool connected, sm_err *err,
                       semel_fault *fault)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    if (state == NULL) { /* libpq's own: the connection broke */
        semel_str line = line_of(PQresultErrorMessage(r));
        *err = sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the connection to %s was lost: %.*s",
                            st->where, SM_FMT(line));
        return SM_PG_LOST;
    }
    const meaning *m = meanings;
    while (strncmp(state, m->state, strlen(m->state)) != 0)
        m++; /* the last one fits everything */
    semel_str line = line_of(PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY));
    bool lost = !connected || sm_pg_is_end(r);
    *err = sm_fault_set(fault, lost ? SEMEL_E_UNAVAILABLE : m->err, "%s says \"%.*s\" (%s): %s",
                        st->where, SM_FMT(line), state, m->advice);
    return lost ? SM_PG_LOST : m->way;
}
