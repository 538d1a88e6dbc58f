/*
 * Effects, and what the ledger said about each.
 *
 *     tool_load [--url URL] [--from N] [--count N] [--bytes N] [--hold]
 *     tool_load [--url URL] [--from N] [--count N] [--bytes N] --patience MS [--threads N]
 *     tool_load [--url URL] --check <LINES
 *
 * Prints a line as soon as something is so:
 *
 *     executed KEY             the work was done: the claim had been recorded before
 *     acknowledged KEY HASH    its commit was acknowledged; HASH is of the value's bytes
 *     replayed KEY HASH        somebody had done it before
 *     doubtful KEY             nobody knows: IN_DOUBT
 *     refused CODE STAGE KEY   at the stage begin or commit
 *
 * After a refusal it waits for a line on stdin and then tries the same again; at the end of stdin
 * it ends, with the code's exit status. So a test can mend the world, or see that it stays broken,
 * without the process being another one. With --hold it also waits for a line between the work and
 * its commit.
 *
 * With --patience nobody need say anything: it tries the same key again and again for so long, as
 * an agent does. A begin whose answer was lost may have been recorded; its lease then ends, and the
 * effect is in doubt. Nobody else has this key, so that the one who is here knows that it was not
 * done, and resolves it so.
 *
 * --check reads such lines, of one run or of several, and tells whether they and the ledger agree:
 * nothing ran twice, what ran has its record, and what was acknowledged is there with its value.
 *
 * Without --url the ledger is that of the environment.
 */
#include "tool.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>

static const char *url;
static unsigned from, count = 100, threads = 1;
static size_t value_bytes = 2000;
static int64_t patience_ms; /* 0: stdin says when to try again */
static bool check, hold;

/* A claim whose answer was lost is not in the way for long. */
static const char short_leases[] = "{version: 1, tools: {load: {class: write, lease: 2s}}}";

static semel *ledger;
static atomic_uint next_key;

typedef struct name_text {
    char scope[32], key[32];
} name_text;

/* Scope and key: a few scopes, so that several shards have some of it. */
static semel_name name_of(unsigned key, name_text *text)
{
    int n = snprintf(text->scope, sizeof text->scope, "load-%u", key % 16);
    int m = snprintf(text->key, sizeof text->key, "load-%u", key);
    return (semel_name){.size = sizeof(semel_name),
                        .scope = {text->scope, (size_t)n},
                        .key = {text->key, (size_t)m}};
}

/* ---- the load --------------------------------------------------------------------------------*/

/* What one thread does. */
typedef struct worker {
    pthread_t thread;
    semel_answer *a;
    char *value;
    unsigned key;
    int64_t refused_at; /* since when this key is refused; 0: it is not */
} worker;

/* False at the end of stdin. */
static bool told_to_go_on(void)
{
    char line[256];
    return fgets(line, sizeof line, stdin) != NULL;
}

/* Prints a refusal, waits, and ends the program if it is not to go on. */
static void refused(worker *w, const char *stage)
{
    const semel_answer *a = w->a;
    fprintf(stderr, "%.*s\n", FMT(a->message)); /* first: who reads the next line may look for it */
    printf("refused %s %s %u\n", semel_code_name(a->code), stage, w->key);
    if (patience_ms == 0) {
        if (!told_to_go_on())
            exit(semel_code_exit(a->code));
        return;
    }
    int64_t now = now_ms();
    if (w->refused_at == 0)
        w->refused_at = now;
    if (!a->retriable || now - w->refused_at > patience_ms)
        exit(semel_code_exit(a->code));
    usleep(50000);
}

/* A value that no other process and no other key returns. */
static semel_str make_value(worker *w)
{
    int n = snprintf(w->value, value_bytes, "%u %ld ", w->key, (long)getpid());
    memset(w->value + n, 'x', value_bytes - (size_t)n);
    return (semel_str){w->value, value_bytes};
}

static void commit(worker *w)
{
    char claim[256];
    int n = snprintf(claim, sizeof claim, "%.*s", FMT(w->a->claim));
    semel_str value = make_value(w);
    semel_outcome o = {.size = sizeof o, .value = value};
    while (semel_commit(ledger, (semel_str){claim, (size_t)n}, &o, w->a) != SEMEL_OK ||
           w->a->verdict != SEMEL_DONE)
        refused(w, "commit");
    printf("acknowledged %u %" PRIx64 "\n", w->key, hash_bytes(value));
}

/* We hold the key alone and have not done it. The ledger takes back what it knows to be lost, and
 * may have done so in the meantime: then there is nothing to resolve. */
static void resolve(worker *w)
{
    char effect[64];
    int n = snprintf(effect, sizeof effect, "%.*s", FMT(w->a->effect));
    semel_err e = semel_resolve(ledger, (semel_str){effect, (size_t)n}, SEMEL_RESOLVE_NOT_APPLIED,
                                NULL, TEXT("its claim was lost"), (semel_str){0}, w->a);
    if (e == SEMEL_OK && w->a->verdict == SEMEL_DONE)
        printf("resolved %u\n", w->key);
    else if (w->a->code != SEMEL_C_ILLEGAL_STATE)
        refused(w, "resolve");
}

static void run_effect(worker *w)
{
    name_text text;
    semel_name name = name_of(w->key, &text);
    semel_call call = {
        .size = sizeof call, .scope = name.scope, .tool = TEXT("load"), .key = name.key};
    const semel_answer *a = w->a;
    w->refused_at = 0;
    for (;;) {
        semel_begin(ledger, &call, w->a);
        if (a->verdict != SEMEL_REFUSED)
            break;
        if (a->code != SEMEL_C_IN_DOUBT) {
            refused(w, "begin");
        } else if (patience_ms > 0) {
            resolve(w);
        } else {
            printf("doubtful %u\n", w->key);
            return;
        }
    }
    if (a->verdict == SEMEL_REPLAY) {
        printf("replayed %u %" PRIx64 "\n", w->key, hash_bytes(a->outcome.value));
        return;
    }
    printf("executed %u\n", w->key);
    w->refused_at = 0;
    if (hold && !told_to_go_on())
        exit(0);
    commit(w);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    w->a = semel_answer_new();
    w->value = malloc(value_bytes);
    if (w->a == NULL || w->value == NULL)
        die("out of memory");
    while ((w->key = atomic_fetch_add(&next_key, 1)) < from + count)
        run_effect(w);
    free(w->value);
    semel_answer_free(w->a);
    return NULL;
}

static int run_load(void)
{
    semel_fault fault = {0};
    semel_options o = {
        .size = sizeof o, .url = url, .actor = TEXT("test"), .contract = text_of(short_leases)};
    semel_err e = semel_open(&o, &ledger, &fault);
    if (e != SEMEL_OK) {
        printf("refused %s open\n", semel_err_name(e));
        fprintf(stderr, "%s\n", fault.text);
        return semel_code_exit(SEMEL_C_LEDGER_UNAVAILABLE);
    }
    worker *workers = calloc(threads, sizeof *workers);
    if (workers == NULL)
        die("out of memory");
    atomic_store(&next_key, from);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            die("a thread could not be started");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    free(workers);
    semel_close(ledger);
    return 0;
}

/* ---- the check -------------------------------------------------------------------------------*/

/* Whether the ledger knows this effect, and with this value if `hash` is not 0. With `tell`, says
 * if not. */
static bool agrees(semel *s, semel_answer *a, unsigned key, uint64_t hash, bool tell)
{
    name_text text;
    semel_name which = name_of(key, &text);
    semel_err e = semel_get(s, &which, a);
    if (e != SEMEL_OK || a->verdict == SEMEL_REFUSED) {
        if (tell)
            printf("key %u: %s %s\n", key, semel_err_name(e), semel_code_name(a->code));
        return false;
    }
    if (hash == 0)
        return true;
    if (a->state == SEMEL_S_SUCCEEDED && a->outcome.kept && hash_bytes(a->outcome.value) == hash)
        return true;
    if (tell)
        printf("key %u: %s, %s value\n", key, semel_state_name(a->state),
               a->has_outcome ? "another" : "no");
    return false;
}

enum { KEYS_MAX = 100000 };

/* What the lines say about a key. */
typedef struct told {
    unsigned executed; /* times */
    bool seen;
    uint64_t hash; /* of its value; 0: nobody was told of one */
} told;

/* Returns how many lines cannot be true together. */
static unsigned read_lines(told *keys)
{
    char line[256];
    unsigned wrong = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned key;
        uint64_t hash = 0;
        bool executed = sscanf(line, "executed %u", &key) == 1;
        if (!executed && sscanf(line, "acknowledged %u %" SCNx64, &key, &hash) != 2 &&
            sscanf(line, "replayed %u %" SCNx64, &key, &hash) != 2)
            continue;
        if (key >= KEYS_MAX)
            die("the lines name key %u", key);
        told *t = &keys[key];
        t->seen = true;
        t->executed += executed;
        if (executed && t->executed > 1)
            printf("key %u was executed %u times\n", key, t->executed);
        if (hash != 0 && t->hash != 0 && hash != t->hash)
            printf("key %u has two values\n", key);
        wrong += (executed && t->executed > 1) || (hash != 0 && t->hash != 0 && hash != t->hash);
        if (hash != 0)
            t->hash = hash;
    }
    return wrong;
}

static int run_check(void)
{
    static told keys[KEYS_MAX];
    semel *s = open_ledger(url, NULL);
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    unsigned wrong = read_lines(keys), checked = 0;
    for (unsigned key = 0; key < KEYS_MAX; key++) {
        if (!keys[key].seen)
            continue;
        checked++;
        wrong += !agrees(s, a, key, keys[key].hash, wrong < 10);
    }
    printf("checked %u keys, %u wrong\n", checked, wrong);
    bool sound = verify_ledger(s);
    semel_answer_free(a);
    semel_close(s);
    return wrong == 0 && checked > 0 && sound ? 0 : 1;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"from", required_argument, NULL, 'f'},
        {"count", required_argument, NULL, 'n'},
        {"bytes", required_argument, NULL, 'b'},
        {"threads", required_argument, NULL, 't'},
        {"patience", required_argument, NULL, 'p'},
        {"hold", no_argument, NULL, 'h'},
        {"check", no_argument, NULL, 'c'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': url = optarg; break;
        case 'f': from = (unsigned)atoi(optarg); break;
        case 'n': count = (unsigned)atoi(optarg); break;
        case 'b': value_bytes = (size_t)atol(optarg); break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'p': patience_ms = atol(optarg); break;
        case 'h': hold = true; break;
        case 'c': check = true; break;
        default: exit(64);
        }
    }
    /* Only one can listen to stdin. */
    if (value_bytes < 64 || threads == 0 || (threads > 1 && (patience_ms == 0 || hold)))
        die("usage: tool_load [--url URL] [--from N] [--count N] [--bytes N] [--hold] |"
            " --patience MS [--threads N] | --check");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return check ? run_check() : run_load();
}
