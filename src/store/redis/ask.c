/*
 * Questions to the servers, in batches.
 *
 * A batch holds any number of commands and calls of scripts. Running it sends each to the node that
 * owns its slot, all of one node at once, and goes on until every question has its answer:
 *
 *     MOVED            the map learns it, and the question goes there
 *     ASK              this once, after ASKING
 *     NOSCRIPT         the same with the script's text, which the server then keeps
 *     TRYAGAIN LOADING BUSY MASTERDOWN                  again after a pause
 *     CLUSTERDOWN      the same, and a new map: the server may have left the cluster
 *     READONLY         failed over: new connections, a new map
 *     a lost connection                                 again, by another connection
 *
 * A question that was sent and not answered may have been carried out. It is sent again all the
 * same, and marked as unsure: scripts are compare-and-swap, so the second time changes nothing, and
 * whoever asked finds out what the first time did.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "store/redis/redis.h"

#define PAUSE_FIRST_NS (2 * 1000000ll)
#define PAUSE_MOST_NS  (200 * 1000000ll)
#define FOLLOW_MAX     5u /* redirections in a row without a pause */
#define REFUSALS_MAX   4u
#define NODE_SHARE     2 /* where there are several, one server gets this part of the time */
#define LEAST_NS       (20 * 1000000ll) /* with less time left nothing is asked */

int64_t sm_rd_deadline(const semel_store *st)
{
    return sm_clock_deadline_ns(st->config.timeout_ms);
}

/* Whether there is time to hear an answer. A write that is sent without is in doubt for nothing. */
static bool in_time(const semel_store *st, int64_t deadline_ns)
{
    int64_t part = st->config.timeout_ms * 1000000 / 4;
    return deadline_ns - sm_clock_mono_ns() > (part < LEAST_NS ? part : LEAST_NS);
}

/* ---- making a batch --------------------------------------------------------------------------*/

void sm_rd_batch_init(sm_rd_batch *b, semel_store *st)
{
    *b = (sm_rd_batch){.st = st};
    sm_buf_init(&b->bytes, SM_RD_BATCH_MAX);
}

void sm_rd_batch_clear(sm_rd_batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->asks[i].reply != NULL)
            freeReplyObject(b->asks[i].reply);
    }
    b->n = 0;
    b->err = SEMEL_OK;
    sm_buf_clear(&b->bytes);
}

void sm_rd_batch_fini(sm_rd_batch *b)
{
    sm_rd_batch_clear(b);
    free(b->asks);
    sm_buf_fini(&b->bytes);
}

static sm_rd_ask *ask_new(sm_rd_batch *b)
{
    if (b->n == b->cap) {
        size_t cap = b->cap == 0 ? 8 : b->cap * 2;
        sm_rd_ask *asks = realloc(b->asks, cap * sizeof *asks);
        if (asks == NULL) {
            b->err = SEMEL_E_NOMEM;
            return NULL;
        }
        b->asks = asks;
        b->cap = cap;
    }
    sm_rd_ask *ask = &b->asks[b->n++];
    *ask = (sm_rd_ask){.script = SM_RD_NO_SCRIPT, .node = -1, .at = b->bytes.len};
    return ask;
}

void sm_rd_command(sm_rd_batch *b, unsigned shard, const char *name)
{
    sm_rd_ask *ask = ask_new(b);
    if (ask == NULL)
        return;
    ask->slot = b->st->slots[shard];
    ask->shape = sm_rd_shape_of(name);
    sm_rd_arg_text(b, name);
}

void sm_rd_command_at(sm_rd_batch *b, unsigned node, const char *name)
{
    sm_rd_ask *ask = ask_new(b);
    if (ask == NULL)
        return;
    ask->node = (int)node;
    sm_rd_arg_text(b, name);
}

void sm_rd_call(sm_rd_batch *b, unsigned shard, sm_rd_script script, unsigned keys)
{
    sm_rd_ask *ask = ask_new(b);
    if (ask == NULL)
        return;
    ask->slot = b->st->slots[shard];
    ask->script = script;
    ask->shape = sm_rd_shape_of_script(script);
    sm_rd_arg_int(b, keys);
}

/* One argument in two pieces, which a key's prefix and name are. */
static void put_arg(sm_rd_batch *b, sm_str first, sm_str second)
{
    if (b->err != SEMEL_OK || b->n == 0)
        return;
    char length[32];
    int n = snprintf(length, sizeof length, "$%zu\r\n", first.n + second.n);
    sm_buf_bytes(&b->bytes, length, (size_t)n);
    sm_buf_str(&b->bytes, first);
    sm_buf_str(&b->bytes, second);
    sm_buf_bytes(&b->bytes, "\r\n", 2);
    sm_rd_ask *ask = &b->asks[b->n - 1];
    ask->argc++;
    ask->len = b->bytes.len - ask->at;
}

void sm_rd_arg(sm_rd_batch *b, sm_str s)
{
    put_arg(b, s, (sm_str){0});
}

void sm_rd_arg_text(sm_rd_batch *b, const char *text)
{
    put_arg(b, sm_str_from(text), (sm_str){0});
}

void sm_rd_arg_int(sm_rd_batch *b, int64_t n)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)n);
    put_arg(b, (sm_str){text, (size_t)len}, (sm_str){0});
}

void sm_rd_argf(sm_rd_batch *b, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_arg(b, (sm_str){text, (size_t)n}, (sm_str){0});
}

/* The prefix, the hash tag and what is behind it. */
#define KEY_HEAD (SM_RD_PREFIX_MAX + 128u)
static sm_str key_head(const semel_store *st, char out[KEY_HEAD], unsigned shard, const char *kind)
{
    sm_str prefix = st->config.prefix;
    int n = shard == SM_RD_GLOBAL
                ? snprintf(out, KEY_HEAD, "%.*s{semel}%s", SM_FMT(prefix), kind)
                : snprintf(out, KEY_HEAD, "%.*s{%02x}%s", SM_FMT(prefix), shard, kind);
    return (sm_str){out, (size_t)n};
}

void sm_rd_key(sm_rd_batch *b, unsigned shard, const char *name)
{
    char head[KEY_HEAD];
    put_arg(b, key_head(b->st, head, shard, name), (sm_str){0});
}

void sm_rd_key_name(sm_rd_batch *b, unsigned shard, const char *kind, sm_str name)
{
    char head[KEY_HEAD];
    put_arg(b, key_head(b->st, head, shard, kind), name);
}

void sm_rd_key_id(sm_rd_batch *b, unsigned shard, const char *kind, uint64_t id,
                  uint64_t generation)
{
    char name[64];
    int n = generation == 0 ? snprintf(name, sizeof name, "%016llx", (unsigned long long)id)
                            : snprintf(name, sizeof name, "%016llx:%llx", (unsigned long long)id,
                                       (unsigned long long)generation);
    sm_rd_key_name(b, shard, kind, (sm_str){name, (size_t)n});
}

/* ---- what errors mean -------------------------------------------------------------------------*/

static bool says(const redisReply *r, const char *word)
{
    size_t n = strlen(word);
    return r->len >= n && memcmp(r->str, word, n) == 0 && (r->len == n || r->str[n] == ' ');
}

semel_err sm_rd_explain(sm_str error, semel_fault *fault)
{
    static const struct {
        const char *word, *sentence;
    } known[] = {
        {"OOM", "the Redis server is out of memory (maxmemory): nothing was recorded; give it more "
                "memory or purge the ledger"},
        {"MISCONF", "the Redis server cannot write to its disk and takes no writes; see its log"},
        {"NOAUTH", "the Redis server wants a password; put a user and password into the ledger's "
                   "URL, or name a password_file"},
        {"WRONGPASS", "the Redis server does not accept the user and password of the ledger's URL"},
        {"NOREPLICAS", "the Redis server takes no writes because too few replicas are connected"},
        {"READONLY", "the Redis server is a replica; the ledger needs the master"},
        {"LOADING", "the Redis server is loading its data"},
        {"BUSY", "the Redis server is busy with a script"},
        {"CLUSTERDOWN", "the Redis cluster is down: part of its slots has no server"},
        {"TRYAGAIN", "the Redis cluster is moving the slot of this effect; try again later"},
        {"MASTERDOWN", "the Redis server has lost its master"},
        {"MOVED", "the servers of the Redis cluster do not agree about who owns a slot"},
        {"ASK", "the servers of the Redis cluster do not agree about who owns a slot"},
    };
    redisReply r = {.str = (char *)(uintptr_t)error.p, .len = error.n};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (says(&r, known[i].word))
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s", known[i].sentence);
    }
    int n = (int)(error.n < 200 ? error.n : 200);
    if (says(&r, "NOPERM"))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger's user may not do what is needed on the Redis server: %.*s",
                            n, error.p);
    if (says(&r, "ERR") && memmem(error.p, error.n, "AUTH", 4) != NULL)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger's URL has a password, and the Redis server wants none");
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the Redis server refused: %.*s", n, error.p);
}

/* ---- running a batch -------------------------------------------------------------------------*/

/* What one pass over the batch has learned. */
typedef struct pass {
    int64_t deadline_ns;
    bool pause;   /* somebody said "not now" */
    bool relearn; /* a server is gone or is no master any more */
    bool down;    /* a server is fine, but does not know who has the slot */
    unsigned refused;
    semel_fault why;
} pass;

static unsigned node_of(sm_rd_batch *b, const sm_rd_ask *ask)
{
    return ask->node >= 0 ? (unsigned)ask->node : sm_rd_owner(b->st, ask->slot);
}

static void put_ask(sm_rd_batch *b, const sm_rd_ask *ask, const sm_rd_node *node, sm_buf *out)
{
    sm_rd_script script = ask->script;
    if (script == SM_RD_RECORD && !atomic_load(&node->modern))
        script = SM_RD_WRITE; /* which is the same but for a full server */
    if (ask->once)
        sm_buf_text(out, "*1\r\n$6\r\nASKING\r\n");
    if (script == SM_RD_NO_SCRIPT) {
        sm_buf_printf(out, "*%u\r\n", ask->argc);
    } else if (ask->whole) {
        sm_buf_printf(out, "*%u\r\n$4\r\nEVAL\r\n$%zu\r\n", ask->argc + 2,
                      sm_rd_script_put(script, NULL));
        sm_rd_script_put(script, out);
        sm_buf_text(out, "\r\n");
    } else {
        sm_buf_printf(out, "*%u\r\n$7\r\nEVALSHA\r\n$%u\r\n%s\r\n", ask->argc + 2, SM_RD_SHA,
                      b->st->scripts[script]);
    }
    sm_buf_bytes(out, b->bytes.p + ask->at, ask->len);
}

/* The node that "MOVED 3999 host:port" or "ASK ..." names; a missing host is the one that spoke. */
static sm_rd_node *redirection(semel_store *st, const redisReply *r, const sm_rd_node *from)
{
    const char *space = memchr(r->str, ' ', r->len);
    const char *address = space == NULL ? NULL : strchr(space + 1, ' ');
    const char *colon = address == NULL ? NULL : strrchr(address, ':');
    char host[256];
    int port = colon == NULL ? 0 : atoi(colon + 1);
    if (colon == NULL || port < 1 || port > 65535 || colon - address > (int)sizeof host)
        return NULL;
    size_t n = (size_t)(colon - address - 1);
    memcpy(host, address + 1, n);
    host[n] = '\0';
    return sm_rd_node_of(st, n == 0 ? from->host : host, port);
}

/* Looks at one answer: it is kept, or the question stays to be asked again. */
static void judge(sm_rd_batch *b, sm_rd_ask *ask, redisReply *r, const sm_rd_node *from, pass *p)
{
    static const char *const later[] = {"TRYAGAIN", "LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN"};
    if (ask->once) {
        ask->once = false;
        ask->node = -1;
    }
    if (r->type != REDIS_REPLY_ERROR) {
        ask->reply = r;
        return;
    }
    bool again = false, explains = true; /* it says what is wrong with the server */
    if (says(r, "MOVED") || says(r, "ASK")) {
        sm_rd_node *to = redirection(b->st, r, from);
        again = to != NULL && b->st->cluster;
        if (again && says(r, "MOVED")) {
            sm_rd_own(b->st, ask->slot, to);
        } else if (again) {
            ask->node = (int)sm_rd_node_index(b->st, to);
            ask->once = true;
        }
        explains = false;
    } else if (says(r, "NOSCRIPT") && !ask->whole && ask->script != SM_RD_NO_SCRIPT) {
        again = ask->whole = true;
        explains = false;
    } else if (says(r, "READONLY")) {
        again = p->pause = p->relearn = true;
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (says(r, later[i]))
            again = p->pause = true;
    }
    p->down = p->down || says(r, "CLUSTERDOWN");
    if (again && explains)
        sm_rd_explain((sm_str){r->str, r->len}, &p->why);
    if (again)
        freeReplyObject(r);
    else
        ask->reply = r;
}

/* Who was to be asked this once is gone: the owner of the slot may know better. */
static void forget_redirection(sm_rd_batch *b, size_t which)
{
    if (which == SIZE_MAX || !b->asks[which].once)
        return;
    b->asks[which].once = false;
    b->asks[which].node = -1;
}

/* Asks one node all that is for it. */
static semel_err ask_node(sm_rd_batch *b, unsigned index, pass *p)
{
    sm_rd_node *node = sm_rd_node_at(b->st, index);
    sm_buf out = {0};
    sm_rd_conn *c = NULL;
    redisReply **replies = NULL;
    size_t *which = NULL, n = 0, got = 0;
    const char *why = NULL;
    semel_err e = SEMEL_OK;
    sm_rd_talk talk = SM_RD_FINE;
    int64_t now = sm_clock_mono_ns(), until = p->deadline_ns;
    if (b->st->opened && sm_rd_has_others(b->st) && (until - now) / NODE_SHARE > LEAST_NS)
        until = now + (until - now) / NODE_SHARE;

    sm_buf_init(&out, SM_RD_BATCH_MAX * 2);
    replies = calloc(b->n * 2, sizeof(void *));
    which = calloc(b->n * 2, sizeof *which);
    for (size_t i = 0; which != NULL && i < b->n; i++) {
        sm_rd_ask *ask = &b->asks[i];
        if (ask->reply != NULL || node_of(b, ask) != index)
            continue;
        if (ask->once)
            which[n++] = SIZE_MAX; /* the answer to ASKING is nobody's */
        which[n++] = i;
        put_ask(b, ask, node, &out);
    }
    if (replies == NULL || which == NULL || out.err != SM_OK) {
        e = SEMEL_E_NOMEM;
        goto cleanup;
    }
    talk = sm_rd_borrow(b->st, node, until, &c, &p->why);
    if (talk != SM_RD_FINE) {
        p->refused += talk == SM_RD_REFUSED;
        p->pause = true;
        p->relearn = p->relearn || talk != SM_RD_BUSY;
        for (size_t i = 0; i < n; i++)
            forget_redirection(b, which[i]);
        goto cleanup;
    }
    if (!in_time(b->st, p->deadline_ns)) {
        p->pause = true;
        sm_rd_return(node, c);
        goto cleanup;
    }
    bool before = p->relearn;
    p->relearn = false;
    talk = sm_rd_exchange(c, sm_buf_view(&out), replies, n, &got, until, &why);
    for (size_t i = 0; i < got; i++) {
        if (which[i] == SIZE_MAX)
            freeReplyObject(replies[i]);
        else
            judge(b, &b->asks[which[i]], replies[i], node, p);
    }
    if (talk == SM_RD_FINE && !p->relearn) {
        p->relearn = before;
        sm_rd_return(node, c);
        goto cleanup;
    }
    for (size_t i = got; i < n; i++) {
        if (which[i] != SIZE_MAX)
            b->asks[which[i]].unsure = true;
        forget_redirection(b, which[i]);
    }
    if (talk != SM_RD_FINE) {
        char name[SM_RD_NODE_NAME];
        sm_rd_node_name(node, name);
        sm_fault_set(&p->why, SEMEL_E_UNAVAILABLE, "the Redis server at %s cannot be used: %s",
                     name, why);
        /* A connection that lay idle may break without any fault of the server. */
        if (!c->reused || sm_clock_mono_ns() >= until)
            sm_gate_bad(&node->gate, &p->why);
        p->relearn = true;
    }
    sm_rd_discard(node, c);
    sm_rd_forget_idle(node);

cleanup:
    sm_buf_fini(&out);
    free(replies);
    free(which);
    return e;
}

/* Somewhere between half of the pause and all of it, and no longer than there is time. */
static void take_a_pause(int64_t pause_ns, int64_t deadline_ns)
{
    int64_t now = sm_clock_mono_ns();
    int64_t ns = pause_ns / 2 + now / 1000 % (pause_ns / 2);
    if (ns > deadline_ns - now)
        ns = deadline_ns - now;
    if (ns <= 0)
        return;
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

/* The first node that has something to be asked, from `from` on; SM_RD_NODES_MAX: none. */
static unsigned next_node(sm_rd_batch *b, unsigned from)
{
    unsigned best = SM_RD_NODES_MAX;
    for (size_t i = 0; i < b->n; i++) {
        unsigned index = b->asks[i].reply == NULL ? node_of(b, &b->asks[i]) : SM_RD_NODES_MAX;
        if (index >= from && index < best)
            best = index;
    }
    return best;
}

/* What is left without an answer when the time is up. */
static semel_err give_up(const sm_rd_batch *b, const pass *p, semel_fault *fault)
{
    bool unsure = false;
    for (size_t i = 0; i < b->n; i++)
        unsure =
            unsure || (b->asks[i].reply == NULL && b->asks[i].unsure &&
                       (b->asks[i].script == SM_RD_WRITE || b->asks[i].script == SM_RD_RECORD));
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s%s",
                 p->why.text[0] == '\0' ? "the Redis server did not answer in time" : p->why.text,
                 unsure ? "; the write may or may not have been recorded" : "");
    if (fault != NULL && p->why.code == SEMEL_E_BAD_ARGUMENTS)
        fault->code = p->why.code; /* trying again does not help */
    return SEMEL_E_UNAVAILABLE;
}

static semel_err first_error(const sm_rd_batch *b, semel_fault *fault)
{
    for (size_t i = 0; i < b->n; i++) {
        const redisReply *r = b->asks[i].reply;
        if (r->type == REDIS_REPLY_ERROR && !b->asks[i].tolerant)
            return sm_rd_explain((sm_str){r->str, r->len}, fault);
        if (r->type != REDIS_REPLY_ERROR && !sm_rd_fits(&b->asks[i]))
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                "the Redis server gave an unexpected answer");
    }
    return SEMEL_OK;
}

semel_err sm_rd_run(sm_rd_batch *b, int64_t deadline_ns, semel_fault *fault)
{
    pass p = {.deadline_ns = deadline_ns};
    int64_t pause_ns = PAUSE_FIRST_NS;
    /* Another server may have taken over from the one that refuses. */
    unsigned refusals = sm_rd_has_others(b->st) && b->st->opened ? REFUSALS_MAX : 0;
    if (b->err != SEMEL_OK || b->bytes.err != SM_OK)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    if (!b->evidence && sm_rd_lost(b->st, fault))
        return SEMEL_E_UNAVAILABLE;
    if (!in_time(b->st, deadline_ns)) /* no server is to blame for that */
        return give_up(b, &p, fault);
    for (unsigned follow = 0; next_node(b, 0) < SM_RD_NODES_MAX; follow++) {
        p.pause = p.relearn = p.down = false;
        for (unsigned i = next_node(b, 0); i < SM_RD_NODES_MAX; i = next_node(b, i + 1)) {
            if (ask_node(b, i, &p) != SEMEL_OK)
                return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        }
        if (next_node(b, 0) == SM_RD_NODES_MAX)
            break;
        if (p.refused > refusals || (!b->st->opened && p.relearn))
            return give_up(b, &p, fault);
        if (p.pause || follow >= FOLLOW_MAX) {
            take_a_pause(pause_ns, deadline_ns);
            pause_ns = pause_ns * 2 < PAUSE_MOST_NS ? pause_ns * 2 : PAUSE_MOST_NS;
        }
        if ((p.relearn || p.down) && sm_rd_has_others(b->st))
            sm_rd_map_learn(b->st, deadline_ns, NULL);
        if (!in_time(b->st, deadline_ns))
            return give_up(b, &p, fault);
    }
    return first_error(b, fault);
}
