/*
 * Checking tokens.
 *
 * The tokens in force are an array ordered by id, made whole and never changed: a check holds a
 * lock for reading while it copies one entry, and a refresh holds it for writing while it swaps two
 * pointers. Files are read outside of it.
 */
#include "gateway/tokens.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "core/call.h"

#define PREFIX_TEXT (sizeof GW_TOKEN_PREFIX - 1)

static const struct {
    gw_role role;
    const char *name;
} roles[] = {
    {GW_AGENT, "agent"}, {GW_APPROVER, "approver"}, {GW_OPERATOR, "operator"}, {GW_ADMIN, "admin"}};
#define ROLES (sizeof roles / sizeof roles[0])

const char *gw_role_name(gw_role role)
{
    for (size_t i = 0; i < ROLES; i++) {
        if (roles[i].role == role)
            return roles[i].name;
    }
    return "nobody";
}

bool gw_role_parse(sm_str text, gw_role *out)
{
    for (size_t i = 0; i < ROLES; i++) {
        if (sm_str_is(text, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    }
    return false;
}

bool gw_who_owns(const gw_who *who, sm_str scope)
{
    return who->role != 0 && sm_scope_within(scope, sm_str_from(who->scope));
}

/* ---- a hasher for each thread ----------------------------------------------------------------*/

static pthread_once_t hasher_once = PTHREAD_ONCE_INIT;
static pthread_key_t hasher_key;
static bool hasher_ready;

static void hasher_free(void *p)
{
    sm_digest_fini(p);
    free(p);
}

static void hasher_setup(void)
{
    hasher_ready = pthread_key_create(&hasher_key, hasher_free) == 0;
}

/* The thread's own, made once: a check is on the path of every request. NULL on failure. */
static sm_digest *hasher(void)
{
    pthread_once(&hasher_once, hasher_setup);
    sm_digest *d = hasher_ready ? pthread_getspecific(hasher_key) : NULL;
    if (d != NULL || !hasher_ready)
        return d;
    d = calloc(1, sizeof *d);
    if (d != NULL && sm_digest_init(d) == SM_OK && pthread_setspecific(hasher_key, d) == 0)
        return d;
    if (d != NULL)
        hasher_free(d);
    return NULL;
}

sm_err gw_token_hash(sm_str text, sm_hash *out)
{
    sm_digest *d = hasher();
    return d == NULL ? SEMEL_E_CRYPTO : sm_digest_bytes(d, text.p, text.n, out);
}

/* ---- the tokens in force ---------------------------------------------------------------------*/

/* What tells that a file is another one, or has been written to. */
typedef struct version {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
    int problem; /* errno, if there is nothing to look at */
} version;

struct gw_tokens {
    char *path;
    pthread_rwlock_t lock; /* for `list` */
    gw_token_list list;    /* ordered by id */
    sm_hash own_key;       /* while that has none */
    pthread_mutex_t refreshing;
    version seen;  /* of what is in force */
    version tried; /* of what was read last, which may have been wrong */
    version told;  /* of what needs no more telling: it is in force, or was refused aloud */
};

static version look(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (version){.problem = errno};
    return (version){st.st_dev, st.st_ino, st.st_size, st.st_ctim, 0};
}

static bool same(const version *a, const version *b)
{
    return a->problem == b->problem && a->device == b->device && a->inode == b->inode &&
           a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(((const gw_token *)a)->id, ((const gw_token *)b)->id, GW_ID_TEXT);
}

/* Whether there ever was a file to read. */
static bool has_read(const gw_tokens *t)
{
    return t->seen.problem == 0;
}

/* Reads the file and puts its tokens in force. */
static sm_err take(gw_tokens *t, sm_fault *fault)
{
    gw_token_list list;
    sm_err e = gw_tokens_read(t->path, &list, fault);
    if (e == SEMEL_E_NOT_FOUND && has_read(t))
        return sm_fault_set(fault, SEMEL_E_IO,
                            "the file of tokens %s was there and is gone; put it back, or revoke "
                            "tokens with semel token revoke",
                            t->path);
    if (e != SM_OK && e != SEMEL_E_NOT_FOUND)
        return e;
    if (list.n > 0)
        qsort(list.v, list.n, sizeof *list.v, by_id);
    pthread_rwlock_wrlock(&t->lock);
    gw_token_list old = t->list;
    t->list = list;
    pthread_rwlock_unlock(&t->lock);
    free(old.v);
    return SM_OK;
}

/* The same if it has changed. The lock for refreshing is held. */
static sm_err refresh_locked(gw_tokens *t, sm_fault *fault)
{
    /* Looked at before it is read: what is written meanwhile is found by the next refresh. */
    version now = t->tried = look(t->path);
    if (same(&now, &t->seen))
        return SM_OK;
    sm_err e = take(t, fault);
    if (e == SM_OK)
        t->seen = now;
    return e;
}

sm_err gw_tokens_refresh(gw_tokens *t, sm_fault *fault)
{
    pthread_mutex_lock(&t->refreshing);
    sm_err e = refresh_locked(t, fault);
    t->told = t->tried;
    pthread_mutex_unlock(&t->refreshing);
    return e;
}

bool gw_tokens_changed(gw_tokens *t)
{
    version now = look(t->path);
    pthread_mutex_lock(&t->refreshing);
    bool changed = !same(&now, &t->told);
    pthread_mutex_unlock(&t->refreshing);
    return changed;
}

/* For a token that is not known: it may just have been made. A file that was read already, rightly
 * or not, is not read again for it. */
static bool look_again(gw_tokens *t)
{
    version now = look(t->path);
    pthread_mutex_lock(&t->refreshing);
    bool fresh = !same(&now, &t->tried) && refresh_locked(t, NULL) == SM_OK;
    if (fresh)
        t->told = t->tried;
    pthread_mutex_unlock(&t->refreshing);
    return fresh;
}

sm_err gw_tokens_open(const char *path, gw_tokens **out, sm_fault *fault)
{
    *out = NULL;
    gw_tokens *t = calloc(1, sizeof *t);
    char *copy = strdup(path);
    if (t == NULL || copy == NULL) {
        free(t);
        free(copy);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    }
    t->path = copy;
    t->seen.problem = t->tried.problem = t->told.problem = -1; /* like nothing that will be seen */
    pthread_rwlock_init(&t->lock, NULL);
    pthread_mutex_init(&t->refreshing, NULL);
    sm_err e = getrandom(t->own_key.b, sizeof t->own_key.b, 0) == (ssize_t)sizeof t->own_key.b
                   ? gw_tokens_refresh(t, fault)
                   : sm_fault_set(fault, SEMEL_E_CRYPTO, "%s", semel_err_text(SEMEL_E_CRYPTO));
    if (e == SM_OK)
        *out = t;
    else
        gw_tokens_close(t);
    return e;
}

void gw_tokens_close(gw_tokens *t)
{
    if (t == NULL)
        return;
    pthread_rwlock_destroy(&t->lock);
    pthread_mutex_destroy(&t->refreshing);
    free(t->list.v);
    free(t->path);
    free(t);
}

void gw_tokens_session_key(gw_tokens *t, sm_hash *out)
{
    pthread_rwlock_rdlock(&t->lock);
    *out = gw_session_key_given(&t->list) ? t->list.session_key : t->own_key;
    pthread_rwlock_unlock(&t->lock);
}

size_t gw_tokens_count(gw_tokens *t)
{
    pthread_rwlock_rdlock(&t->lock);
    size_t n = t->list.n;
    pthread_rwlock_unlock(&t->lock);
    return n;
}

/* ---- checking --------------------------------------------------------------------------------*/

/* Ids are no secret; whether a text is well formed, and which id it names, may be told by time. */
static bool well_formed(sm_str text)
{
    return text.n == PREFIX_TEXT + GW_ID_TEXT + 1 + SM_HASH_TEXT &&
           memcmp(text.p, GW_TOKEN_PREFIX, PREFIX_TEXT) == 0 &&
           text.p[PREFIX_TEXT + GW_ID_TEXT] == '_';
}

static bool is_token_text(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' ||
           c == '_';
}

bool gw_token_inside(sm_str text)
{
    const size_t whole = PREFIX_TEXT + GW_ID_TEXT + 1 + SM_HASH_TEXT;
    bool inside = false;
    while (text.n >= whole && !inside) {
        const char *at = memmem(text.p, text.n, GW_TOKEN_PREFIX, PREFIX_TEXT);
        if (at == NULL)
            break;
        text = (sm_str){at, text.n - (size_t)(at - text.p)};
        inside = text.n >= whole && well_formed((sm_str){text.p, whole});
        for (size_t i = PREFIX_TEXT; inside && i < whole; i++)
            inside = is_token_text(text.p[i]);
        text = (sm_str){text.p + 1, text.n - 1};
    }
    return inside;
}

static void introduce(const gw_token *t, gw_who *out)
{
    out->role = t->role;
    memcpy(out->id, t->id, sizeof out->id);
    snprintf(out->actor, sizeof out->actor, "%s (token %s)", t->name, t->id);
    memcpy(out->scope, t->scope, strlen(t->scope) + 1);
}

/* The token of an id, or NULL. The lock is held. */
static const gw_token *find(const gw_tokens *t, const gw_token *wanted)
{
    return t->list.n == 0 ? NULL : bsearch(wanted, t->list.v, t->list.n, sizeof *wanted, by_id);
}

static bool in_force(const gw_token *found, int64_t now_ms)
{
    return found != NULL && (found->ends_at == 0 || now_ms < found->ends_at);
}

/* Looks a hashed token up; *known says whether there is one of this id. */
static bool check(gw_tokens *t, const gw_token *wanted, int64_t now_ms, gw_who *out, bool *known)
{
    pthread_rwlock_rdlock(&t->lock);
    const gw_token *found = find(t, wanted);
    bool good = found != NULL && CRYPTO_memcmp(found->hash.b, wanted->hash.b, SM_HASH_BYTES) == 0 &&
                in_force(found, now_ms);
    if (good)
        introduce(found, out);
    *known = found != NULL;
    pthread_rwlock_unlock(&t->lock);
    return good;
}

bool gw_tokens_check(gw_tokens *t, sm_str text, int64_t now_ms, gw_who *out)
{
    *out = (gw_who){0};
    gw_token wanted;
    bool known;
    if (!well_formed(text) || gw_token_hash(text, &wanted.hash) != SM_OK)
        return false;
    memcpy(wanted.id, text.p + PREFIX_TEXT, GW_ID_TEXT);
    if (check(t, &wanted, now_ms, out, &known))
        return true;
    return !known && look_again(t) && check(t, &wanted, now_ms, out, &known);
}

bool gw_tokens_hold(gw_tokens *t, const gw_who *who, int64_t now_ms)
{
    gw_token wanted;
    memcpy(wanted.id, who->id, sizeof wanted.id);
    pthread_rwlock_rdlock(&t->lock);
    bool holds = in_force(find(t, &wanted), now_ms);
    pthread_rwlock_unlock(&t->lock);
    return holds;
}
