/*
 * The Postgres store: one database, used by any number of processes on any number of machines.
 *
 * This file opens and closes it and has the table of functions; postgres.h says where the rest is.
 * Nothing is remembered of records here: every decision is made by the server, on the primary.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/handle.h"
#include "store/stores.h"

static const char *const statements[SM_PGQ_COUNT] = {
#define X(name, sql) [SM_PGQ_##name] = sql,
    SM_PG_STATEMENTS(X)
#undef X
};

semel_err sm_pg_id(semel_store *st, const semel_hash *key, uint64_t *id, semel_fault *fault)
{
    pthread_mutex_lock(&st->digest_lock);
    sm_err e = sm_effect_id(&st->digest, key, id);
    pthread_mutex_unlock(&st->digest_lock);
    return e == SM_OK ? SEMEL_OK : sm_fault_set(fault, SEMEL_E_CRYPTO, "SHA-256 failed");
}

static void store_close(semel_store *st)
{
    if (st == NULL)
        return;
    sm_pg_waits_fini(st);
    if (st->opened)
        sm_pg_trust_note(st);
    sm_pg_pool_fini(&st->pool);
    sm_gate_fini(&st->gate);
    sm_digest_fini(&st->digest);
    pthread_mutex_destroy(&st->digest_lock);
    pthread_mutex_destroy(&st->trust.lock);
    for (size_t i = 0; i < SM_PGQ_COUNT; i++)
        free(st->sql[i]);
    sm_pg_settings_fini(&st->settings);
    free(st);
}

/* A statement is prepared under a name that is a hash of its text. Should a pooler mix up the
 * sessions of two ledgers against all advice, a name still means one text. */
static semel_err make_statements(semel_store *st, semel_fault *fault)
{
    for (size_t i = 0; i < SM_PGQ_COUNT; i++) {
        semel_hash h;
        char hex[SM_HASH_HEX + 1];
        st->sql[i] = sm_pg_fill_in(&st->settings, statements[i]);
        if (st->sql[i] == NULL)
            return sm_pg_nomem(fault);
        if (sm_digest_bytes(&st->digest, st->sql[i], strlen(st->sql[i]), &h) != SM_OK)
            return sm_fault_set(fault, SEMEL_E_CRYPTO, "SHA-256 failed");
        sm_hash_hex(&h, hex);
        snprintf(st->names[i], sizeof st->names[i], "semel%.16s", hex);
    }
    return SEMEL_OK;
}

static semel_err store_open(semel_str url, const semel_store_env *env, semel_store **out,
                            uint32_t *caps, semel_fault *fault)
{
    *out = NULL;
    semel_store *st = calloc(1, sizeof *st);
    if (st == NULL)
        return sm_pg_nomem(fault);
    snprintf(st->where, sizeof st->where, "the ledger's server");
    pthread_mutex_init(&st->digest_lock, NULL);
    sm_pg_pool_init(&st->pool);
    pthread_mutex_init(&st->trust.lock, NULL);
    sm_pg_waits_init(&st->waits);
    semel_err e = sm_pg_settings_init(&st->settings, url, fault);
    sm_gate_init(&st->gate, st->settings.timeout_ms * 1000000);
    if (e == SEMEL_OK && sm_digest_init(&st->digest) != SM_OK)
        e = sm_fault_set(fault, SEMEL_E_CRYPTO, "SHA-256 failed");
    if (e == SEMEL_OK)
        e = make_statements(st, fault);
    if (e == SEMEL_OK)
        e = sm_pg_open(st, env, fault);
    if (e == SEMEL_E_BAD_ARGUMENTS || e == SEMEL_E_LIMIT) {
        e = SEMEL_E_UNAVAILABLE; /* there is no ledger to open, and trying again does not help */
        if (fault != NULL)
            fault->code = SEMEL_E_BAD_ARGUMENTS;
    }
    if (e != SEMEL_OK) {
        store_close(st);
        return e;
    }
    st->opened = true;
    *caps = st->caps;
    *out = st;
    return SEMEL_OK;
}

const semel_store_ops sm_store_postgres = {
    .size = sizeof(semel_store_ops),
    .version = SEMEL_STORE_VERSION,
    .scheme = "postgres",
    .open = store_open,
    .close = store_close,
    .claim = sm_pg_claim,
    .apply = sm_pg_apply,
    .get = sm_pg_get,
    .query = sm_pg_query,
    .events = sm_pg_events,
    .due = sm_pg_due,
    .wait = sm_pg_wait,
    .journal = sm_pg_journal,
    .notes = sm_pg_notes,
    .seal = sm_pg_seal,
    .purge = sm_pg_purge,
    .counter = sm_pg_counter,
    .health = sm_pg_health,
    .try_write = sm_pg_try_write,
};
