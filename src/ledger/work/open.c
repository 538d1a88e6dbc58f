/* Opening and closing a ledger: which store, which contracts, who acts. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/given.h"
#include "base/limits.h"
#include "base/trust.h"
#include "base/utf8.h"
#include "ledger/guard/secret.h"
#include "ledger/work/holder.h"
#include "ledger/work/ledger.h"
#include "store/stores.h"

#define CACHE_BYTES  ((size_t)64 << 20)
#define RETENTION_MS ((int64_t)90 * 24 * 3600 * 1000)
#define SEAL_KEY_MIN 16u
#define SEAL_KEY_MAX 4096u
#define URL_MAX      4096u

const char *semel_version(void)
{
    return SEMEL_VERSION_STRING;
}

/* ---- which store -----------------------------------------------------------------------------*/

static sm_err default_url(char out[URL_MAX], semel_fault *fault)
{
    char path[SM_PATH_MAX];
    if (!sm_state_path("ledger.db", path))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "there is no home directory for the ledger; name one with --ledger or "
                            "SEMEL_LEDGER, such as sqlite:/var/lib/semel/ledger.db");
    int n = snprintf(out, URL_MAX, "sqlite:%s", path);
    return n < (int)URL_MAX ? SM_OK
                            : sm_fault_set(fault, SEMEL_E_LIMIT, "the ledger's path is too long");
}

static const semel_store_ops *store_of(sm_str url)
{
    static const struct {
        const char *scheme;
        const semel_store_ops *store;
    } stores[] = {
        {"sqlite", &sm_store_sqlite},     {"memory", &sm_store_memory},
        {"postgres", &sm_store_postgres}, {"postgresql", &sm_store_postgres}, /* libpq takes both */
        {"redis", &sm_store_redis},       {"rediss", &sm_store_rediss}};
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        size_t n = strlen(stores[i].scheme);
        if (url.n > n && url.p[n] == ':' && memcmp(url.p, stores[i].scheme, n) == 0)
            return stores[i].store;
    }
    return NULL;
}

/* Which URL is meant; `made` is room for one. */
static sm_err choose_url(const char *given, char made[URL_MAX], sm_str *url, bool *by_default,
                         semel_fault *fault)
{
    *by_default = false;
    if (given == NULL || given[0] == '\0')
        given = getenv("SEMEL_LEDGER");
    if (given == NULL || given[0] == '\0') {
        sm_err e = default_url(made, fault);
        if (e != SM_OK)
            return e;
        given = made;
        *by_default = true;
    }
    *url = sm_str_from(given);
    return SM_OK;
}

/* A ledger that a person has named wrongly cannot be used: nothing may run. The fault keeps a code
 * of its own, which tells that trying again does not help. */
static sm_err unavailable(sm_err e)
{
    return e == SEMEL_E_BAD_ARGUMENTS || e == SEMEL_E_LIMIT ? SEMEL_E_UNAVAILABLE : e;
}

static sm_err unknown_store(semel_fault *fault)
{
    /* The URL is not repeated: it may hold a password. */
    return unavailable(
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "the ledger's URL names no store that is known here; use sqlite:PATH, "
                     "postgres://..., redis://... or memory:"));
}

static sm_err open_with(const semel_store_ops *ops, sm_str url, const semel_store_env *env,
                        semel_store **out, uint32_t *caps, semel_fault *fault)
{
    return unavailable(ops->open(url, env, out, caps, fault));
}

/* Whether a store speaks our language, see store.h. An older one goes on working: what its table
 * does not have is NULL in our copy. */
static sm_err adopt_store(semel *s, const semel_store_ops *given, semel_fault *fault)
{
    sm_err e = sm_given_read(&s->table, sizeof s->table, given,
                             SM_FIRST_SIZE(semel_store_ops, health), "the store's table", fault);
    if (e != SM_OK)
        return e;
    if (s->table.version == 0)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the version in the store's table is not set: it has to be "
                            "SEMEL_STORE_VERSION");
    if (s->table.version > SEMEL_STORE_VERSION)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the store was compiled against version %u of semel/store.h, and this "
                            "library knows up to %u: use a newer library",
                            s->table.version, SEMEL_STORE_VERSION);
    s->ops = &s->table;
    return SM_OK;
}

static sm_err open_store(semel *s, semel_fault *fault)
{
    char made[URL_MAX];
    sm_str url;
    bool by_default;
    sm_err e = choose_url(s->o.url, made, &url, &by_default, fault);
    if (e != SM_OK)
        return e;
    const semel_store_ops *ops = s->o.store != NULL ? s->o.store : store_of(url);
    if (ops == NULL)
        return unknown_store(fault);
    e = adopt_store(s, ops, fault);
    if (e != SM_OK)
        return e;
    semel_store_env env = {.size = sizeof env,
                           .cache_bytes = s->o.cache_bytes,
                           .must_exist = s->o.must_exist,
                           .default_place = by_default};
    return open_with(s->ops, url, &env, &s->store, &s->caps, fault);
}

sm_err sm_ledger_place(const char *given, sm_fault *fault)
{
    char made[URL_MAX];
    sm_str url;
    bool by_default;
    sm_err e = choose_url(given, made, &url, &by_default, fault);
    if (e != SM_OK)
        return e;
    const semel_store_ops *ops = store_of(url);
    if (ops == NULL)
        return unknown_store(fault);
    return ops == &sm_store_sqlite ? unavailable(sm_sqlite_place(url, by_default, fault)) : SM_OK;
}

semel_err semel_migrate(const char *url, uint32_t partitions, semel_fault *fault)
{
    char made[URL_MAX];
    sm_str chosen;
    bool by_default;
    sm_err e = choose_url(url, made, &chosen, &by_default, fault);
    if (e != SM_OK)
        return e;
    const semel_store_ops *ops = store_of(chosen);
    if (ops == NULL)
        return unknown_store(fault);
    if (partitions > 0 && ops != &sm_store_postgres)
        return unavailable(sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                        "only a ledger in Postgres can have partitions"));
    semel_store_env env = {
        .size = sizeof env, .migrate = true, .default_place = by_default, .partitions = partitions};
    semel_store *st = NULL;
    uint32_t caps;
    e = open_with(ops, chosen, &env, &st, &caps, fault);
    ops->close(st);
    return e;
}

/* ---- what it may hold ------------------------------------------------------------------------*/

sm_err sm_ledger_fits(const semel *s, const sm_contract *c, semel_fault *fault)
{
    if ((s->caps & SEMEL_STORE_LOSSY) == 0 || c->class != SM_CLASS_IRREVERSIBLE)
        return SM_OK;
    return unavailable(
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "this ledger cannot hold irreversible effects: %s. Change that, or put "
                     "accept_data_loss=yes into the ledger's URL",
                     s->durability));
}

/* Every contract that could ever be asked for: a mistake is found before the first call. */
sm_err sm_ledger_fits_all(const semel *s, const sm_contracts *set, semel_fault *fault)
{
    if ((s->caps & SEMEL_STORE_LOSSY) == 0)
        return SM_OK;
    sm_err e = sm_ledger_fits(s, &set->unlisted_contract, fault);
    for (uint32_t i = 0; e == SM_OK && i < set->tool_count; i++) {
        const sm_contract *c = &set->tools[i].contract;
        e = sm_ledger_fits(s, c, fault);
        for (uint32_t v = 0; e == SM_OK && v < c->variant_count; v++)
            e = sm_ledger_fits(s, &c->variants[v].contract, fault);
    }
    return e;
}

static sm_err check_contracts(semel *s, semel_fault *fault)
{
    if ((s->caps & SEMEL_STORE_LOSSY) == 0)
        return SM_OK;
    semel_health h = {0};
    sm_err e = s->ops->health(s->store, false, &h, fault);
    if (e != SM_OK)
        return e;
    memcpy(s->durability, h.durability, sizeof s->durability);
    return sm_ledger_fits_all(s, s->contracts, fault);
}

const sm_contracts *sm_contracts_of(semel *s, sm_work *w)
{
    if (w->contracts == atomic_load_explicit(&s->contracts, memory_order_acquire))
        return w->contracts; /* held: it cannot be another one at the same place */
    sm_contracts *before = w->contracts;
    pthread_mutex_lock(&s->contracts_lock);
    w->contracts = sm_contracts_hold(atomic_load(&s->contracts));
    pthread_mutex_unlock(&s->contracts_lock);
    sm_contracts_free(before);
    return w->contracts;
}

/* ---- contracts, keys, people -----------------------------------------------------------------*/

static void first_error(const sm_report *r, const char *name, sm_err e, semel_fault *fault)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const sm_finding *f = &r->items[i];
        if (f->severity != SM_ERROR)
            continue;
        sm_fault_set(fault, e, "%s:%u:%u: %.*s", name, f->line, f->column, SM_FMT(f->text));
        if (fault != NULL) {
            fault->at = f->at;
            fault->line = f->line;
            fault->column = f->column;
        }
        return;
    }
    sm_fault_set(fault, e, "%s: %s", name, semel_err_text(e));
}

static sm_err read_contracts(semel *s, semel_fault *fault)
{
    const char *path = s->o.contract_path;
    sm_contracts *set = NULL;
    if (path == NULL && s->o.contract.p == NULL) {
        sm_err e = sm_contracts_none(&set);
        s->contracts = set;
        return e == SM_OK ? e : sm_fault_set(fault, e, "%s", semel_err_text(e));
    }
    sm_buf text = {0};
    sm_report report = {0};
    const char *name = path != NULL ? path : "contract";
    sm_err e = path == NULL ? SM_OK : sm_file_read(path, SM_CONTRACT_BYTES_MAX, &text, fault);
    if (e == SM_OK) {
        sm_str source = path == NULL ? s->o.contract : sm_buf_view(&text);
        e = sm_report_init(&report, source);
        if (e == SM_OK)
            e = sm_contracts_read(sm_str_from(name), source, &set, &report);
        s->contracts = set;
        if (e != SM_OK)
            first_error(&report, name, e, fault);
    }
    sm_report_fini(&report);
    sm_buf_fini(&text);
    return e;
}

static sm_err read_seal_key(semel *s, semel_fault *fault)
{
    if (s->o.seal_key_path == NULL)
        return SM_OK;
    sm_buf key = {0};
    struct stat about; /* a pipe is its maker's */
    bool file = stat(s->o.seal_key_path, &about) == 0 && S_ISREG(about.st_mode);
    sm_err e = file ? sm_trust(s->o.seal_key_path, &about, false, SEMEL_E_INVALID, fault) : SM_OK;
    if (e == SM_OK)
        e = sm_file_read(s->o.seal_key_path, SEAL_KEY_MAX, &key, fault);
    if (e == SM_OK && key.len < SEAL_KEY_MIN)
        e = sm_fault_set(fault, SEMEL_E_INVALID, "%s: a seal key has at least %u bytes",
                         s->o.seal_key_path, SEAL_KEY_MIN);
    if (e == SM_OK) {
        s->seal_key = key.p;
        s->seal_key_bytes = key.len;
        return SM_OK;
    }
    sm_buf_fini(&key);
    return e;
}

static sm_err name_actor(semel *s, semel_fault *fault)
{
    char made[64], room[4096];
    sm_str given = s->o.actor;
    if (given.p == NULL || given.n == 0) {
        struct passwd entry, *user = NULL;
        getpwuid_r(geteuid(), &entry, room, sizeof room, &user);
        snprintf(made, sizeof made, "uid %u", (unsigned)geteuid());
        given = user == NULL || user->pw_name[0] == '\0' ? sm_str_from(made)
                                                         : sm_str_from(user->pw_name);
    }
    if (given.n > SM_ACTOR_MAX || !sm_utf8_valid(given))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the actor is not a name of at most %u bytes", SM_ACTOR_MAX);
    s->actor = strndup(given.p, given.n);
    return s->actor != NULL ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

/* ---- open and close --------------------------------------------------------------------------*/

static void release(semel *s)
{
    if (s->store != NULL)
        s->ops->close(s->store);
    sm_contracts_free(s->contracts);
    sm_journal_fini(&s->journal);
    sm_noticeboard_fini(&s->board);
    sm_runs_fini(&s->runs);
    sm_secret_fini(s);
    sm_recall_fini(&s->recall);
    pthread_mutex_destroy(&s->contracts_lock);
    free(s->actor);
    if (s->seal_key != NULL)
        explicit_bzero(s->seal_key, s->seal_key_bytes);
    free(s->seal_key);
    free(s);
}

semel_err semel_open(const semel_options *options, semel **out, semel_fault *fault)
{
    *out = NULL;
    semel_options given;
    sm_err e = sm_given_read(&given, sizeof given, options,
                             SM_FIRST_SIZE(semel_options, tombstone_ms), "the options", fault);
    if (e != SM_OK)
        return e;
    semel *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    s->o = given;
    if (s->o.cache_bytes == 0)
        s->o.cache_bytes = CACHE_BYTES;
    if (s->o.audit_retention_ms <= 0)
        s->o.audit_retention_ms = RETENTION_MS;
    if (s->o.tombstone_ms <= 0)
        s->o.tombstone_ms = RETENTION_MS;
    sm_journal_init(&s->journal);
    sm_noticeboard_init(&s->board);
    sm_runs_init(&s->runs);
    sm_recall_init(&s->recall);
    pthread_mutex_init(&s->contracts_lock, NULL);
    sm_holder_self(&s->self);
    e = read_contracts(s, fault);
    if (e == SM_OK)
        e = read_seal_key(s, fault);
    if (e == SM_OK)
        e = name_actor(s, fault);
    if (e == SM_OK)
        e = open_store(s, fault);
    if (e == SM_OK)
        e = sm_learn_first(s, fault);
    if (e == SM_OK)
        e = check_contracts(s, fault);
    if (e == SM_OK && !s->o.one_shot)
        e = sm_board_refresh(s, 0, fault);
    if (e == SM_OK)
        e = sm_keeper_start(s, fault);
    /* What the caller's options point at need not stay. */
    s->o.url = s->o.contract_path = s->o.seal_key_path = NULL;
    s->o.contract = s->o.actor = (sm_str){0};
    if (e != SM_OK)
        release(s);
    else
        *out = s;
    return e;
}

void semel_close(semel *s)
{
    if (s == NULL)
        return;
    sm_keeper_stop(s);
    sm_noticeboard_stop(&s->board);
    sm_runs_tell_all(s);
    sm_journal_flush(&s->journal, s->ops, s->store);
    if (atomic_load(&s->written) > 0)
        sm_seal_now(s, false, NULL);
    release(s);
}

void sm_forsake(semel *s)
{
    if (s->ops->forsake != NULL)
        s->ops->forsake(s->store);
}

semel_err semel_stats_get(semel *s, bool thorough, semel_stats *out, semel_fault *fault)
{
    semel_stats stats;
    sm_err e = sm_given_read(&stats, sizeof stats, out, SM_FIRST_SIZE(semel_stats, commits),
                             "the statistics", fault);
    if (e != SM_OK)
        return e;
    stats = (semel_stats){
        .begins = atomic_load(&s->begins),
        .executes = atomic_load(&s->executes),
        .replays = atomic_load(&s->replays),
        .refused = atomic_load(&s->refused),
        .waits = atomic_load(&s->waits),
        .commits = atomic_load(&s->commits),
        .caps = s->caps,
        .ahead_ms = sm_now(s) - sm_clock_ms(),
    };
    e = s->ops->health(s->store, thorough, &stats.store, fault);
    sm_given_fill(out, &stats, sizeof stats);
    return e;
}
