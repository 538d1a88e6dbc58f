/* An open ledger with what serves it. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/body.h"
#include "base/clock.h"
#include "base/limits.h"
#include "flat/inside.h"

/* Callers that block on the ledger share its syncs, so there may be many. */
#define WORKERS_MAX 64u
#define WAITING_MAX 100000u
#define RECORD_MS   SM_RUN_LEASE_MS

/* ---- threads ---------------------------------------------------------------------------------*/

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void free_own(void *context)
{
    fl_own *own = context;
    semel_answer_free(own->answer);
    sm_arena_fini(&own->arena);
    sm_buf_fini(&own->text);
    free(own);
}

static void make_key(void)
{
    pthread_key_create(&own_key, free_own);
}

fl_own *fl_own_get(void)
{
    pthread_once(&own_once, make_key);
    fl_own *own = pthread_getspecific(own_key);
    if (own == NULL && (own = calloc(1, sizeof *own)) != NULL) {
        own->answer = semel_answer_new();
        sm_arena_init(&own->arena, SM_ARENA_MAX);
        sm_buf_init(&own->text, FL_ANSWER_MAX);
        if (own->answer == NULL || pthread_setspecific(own_key, own) != 0) {
            free_own(own);
            return NULL;
        }
    }
    return own;
}

/* The thread that has just asked for something takes the first turn itself. What that wakes is for
 * others. */
static void add(sm_serve *s, sm_job *job)
{
    fl_own *own = pthread_getspecific(own_key);
    if (own == NULL || own->here != job) {
        sm_pool_add(s->pool, job);
        return;
    }
    own->here = NULL;
    job->run(job, own->answer);
}

static sm_serve_deps deps;
static pthread_once_t deps_once = PTHREAD_ONCE_INIT;

static void make_deps(void)
{
    deps = sm_serve_real;
    deps.add = add;
}

/* ---- options ---------------------------------------------------------------------------------*/

typedef struct given {
    sm_str url, contract_path, actor, seal_key_path, contract;
    int64_t cache_bytes, audit_retention_ms, tombstone_ms;
    bool must_exist, one_shot;
} given;

#define MEMBER(n) .name = #n, .offset = offsetof(given, n)
static const sm_object_member members[] = {
    {MEMBER(url), .kind = SM_M_TEXT},
    {MEMBER(contract), .kind = SM_M_TEXT},
    {MEMBER(contract_path), .kind = SM_M_TEXT},
    {MEMBER(actor), .kind = SM_M_TEXT},
    {MEMBER(seal_key_path), .kind = SM_M_TEXT},
    {MEMBER(cache_bytes), .kind = SM_M_COUNT, .max = INT64_MAX},
    {MEMBER(audit_retention_ms), .kind = SM_M_COUNT, .max = INT64_MAX},
    {MEMBER(tombstone_ms), .kind = SM_M_COUNT, .max = INT64_MAX},
    {MEMBER(must_exist), .kind = SM_M_BOOL},
    {MEMBER(one_shot), .kind = SM_M_BOOL},
};

static sm_err read_options(sm_arena *a, sm_str text, semel_options *out, sm_fault *fault)
{
    given g = {0};
    if (text.n > 0) {
        sm_err e =
            sm_object_take(a, text, NULL, members, sizeof members / sizeof *members, &g, fault);
        if (e != SM_OK)
            return e;
    }
    sm_str *const names[] = {&g.url, &g.contract_path, &g.seal_key_path}; /* with NUL */
    if (!sm_arena_keep(a, names, sizeof names / sizeof *names))
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    *out = (semel_options){
        .size = sizeof *out,
        .url = g.url.p,
        .contract_path = g.contract_path.p,
        .seal_key_path = g.seal_key_path.p,
        .contract = g.contract,
        .actor = g.actor,
        .cache_bytes = (size_t)g.cache_bytes,
        .audit_retention_ms = g.audit_retention_ms,
        .tombstone_ms = g.tombstone_ms,
        .must_exist = g.must_exist,
        .one_shot = g.one_shot,
    };
    return SM_OK;
}

/* ---- opening and closing ---------------------------------------------------------------------*/

static sm_err start(fl_core *c, sm_fault *fault)
{
    sm_err e = sm_pool_new(WORKERS_MAX, &c->pool);
    if (e == SM_OK)
        e = sm_waits_new(c->ledger, &c->waits);
    if (e != SM_OK)
        return sm_fault_set(fault, e, "out of memory");
    pthread_once(&deps_once, make_deps);
    c->serve = (sm_serve){.deps = &deps,
                          .ledger = c->ledger,
                          .pool = c->pool,
                          .waits = c->waits,
                          .record_ms = RECORD_MS,
                          .waiting_max = WAITING_MAX,
                          .ending = &c->ending};
    sm_serve_init(&c->serve);
    return sm_serve_clock(&c->serve, fault);
}

sm_err fl_core_open(sm_str options, const fl_core *before, fl_core **out, sm_fault *fault)
{
    sm_arena arena;
    semel_options o = {0};
    bool again = before != NULL;
    const char *declared = again ? atomic_load(&((fl_core *)(uintptr_t)before)->declared) : NULL;
    fl_core *c = *out = calloc(1, sizeof *c);
    if (c == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    pthread_mutex_init(&c->claims.lock, NULL);
    pthread_mutex_init(&c->declaring, NULL);
    pthread_mutex_init(&c->loops.lock, NULL);
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = fl_port_init(&c->port, fault);
    if (e == SM_OK)
        e = read_options(&arena, options, &o, fault);
    o.must_exist = e == SM_OK && (o.must_exist || again); /* a child may be in another directory */
    if (e == SM_OK)
        e = fl_declare_start(c, &o, fault);
    if (e == SM_OK)
        e = semel_open(&o, &c->ledger, fault);
    if (e == SM_OK && declared != NULL)
        e = fl_declare_again(c, &arena, declared, fault);
    if (e == SM_OK)
        e = start(c, fault);
    semel_stats stats = {.size = sizeof stats};
    if (e == SM_OK)
        e = semel_stats_get(c->ledger, false, &stats, fault);
    c->shared = (stats.caps & SEMEL_STORE_SHARED) != 0;
    sm_arena_fini(&arena);
    if (e != SM_OK) {
        fl_core_close(c);
        *out = NULL;
    }
    return e;
}

void fl_core_close(fl_core *c)
{
    if (c == NULL)
        return;
    atomic_store(&c->ending, true);
    fl_claims_end(c);
    if (c->serve.started)
        sm_serve_drain(&c->serve, INT64_MAX);
    sm_pool_free(c->pool);
    sm_waits_free(c->waits);
    sm_serve_fini(&c->serve);
    semel_close(c->ledger);
    fl_port_fini(&c->port);
    fl_declare_stop(c);
    fl_loops_fini(&c->loops);
    pthread_mutex_destroy(&c->claims.lock);
    pthread_mutex_destroy(&c->declaring);
    free(c);
}

/* Its threads are not here, and others may have held its locks: the memory stays as it is. */
void fl_core_forsake(fl_core *c)
{
    sm_forsake(c->ledger);
    if (c->port.fd >= 0)
        close(c->port.fd);
}
