/*
 * One effect after the other, and what the ledger said about each.
 *
 *     tool_load --url URL [--from N] [--count N] [--bytes N]
 *     tool_load --url URL --check <LINES
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
 * without the process being another one.
 *
 * --check reads such lines, of one run or of several, and tells whether they and the ledger agree:
 * nothing ran twice, what ran has its record, and what was acknowledged is there with its value.
 */
#include "tool.h"

#include <getopt.h>

static const char *url;
static unsigned from, count = 100;
static size_t value_bytes = 2000;
static bool check;

/* ---- the load --------------------------------------------------------------------------------*/

/* False at the end of stdin. */
static bool may_try_again(void)
{
    char line[256];
    return fgets(line, sizeof line, stdin) != NULL;
}

/* Prints a refusal, waits, and ends the program if nobody wants it to go on. */
static void refused(const semel_answer *a, const char *stage, unsigned key)
{
    printf("refused %s %s %u\n", semel_code_name(a->code), stage, key);
    fprintf(stderr, "%.*s\n", FMT(a->message));
    if (!may_try_again())
        exit(semel_code_exit(a->code));
}

/* A value that no other process and no other key returns. */
static semel_str make_value(char *out, unsigned key)
{
    int n = snprintf(out, value_bytes, "%u %ld ", key, (long)getpid());
    memset(out + n, 'x', value_bytes - (size_t)n);
    return (semel_str){out, value_bytes};
}

static void commit(semel *s, const semel_answer *execute, unsigned key, semel_str value)
{
    char claim[256];
    int n = snprintf(claim, sizeof claim, "%.*s", FMT(execute->claim));
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    semel_outcome o = {.size = sizeof o, .value = value};
    while (semel_commit(s, (semel_str){claim, (size_t)n}, &o, a) != SEMEL_OK ||
           a->verdict != SEMEL_DONE)
        refused(a, "commit", key);
    printf("acknowledged %u %" PRIx64 "\n", key, hash_bytes(value));
    semel_answer_free(a);
}

static void run_effect(semel *s, unsigned key, char *room)
{
    char name[32];
    int n = snprintf(name, sizeof name, "load-%u", key);
    semel_call call = {
        .size = sizeof call, .scope = TEXT("load"), .tool = TEXT("load"), .key = {name, (size_t)n}};
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    for (;;) {
        semel_begin(s, &call, a);
        if (a->verdict != SEMEL_REFUSED || a->code == SEMEL_C_IN_DOUBT)
            break;
        refused(a, "begin", key);
    }
    if (a->verdict == SEMEL_REPLAY) {
        printf("replayed %u %" PRIx64 "\n", key, hash_bytes(a->outcome.value));
    } else if (a->verdict == SEMEL_REFUSED) {
        printf("doubtful %u\n", key);
    } else {
        printf("executed %u\n", key);
        commit(s, a, key, make_value(room, key));
    }
    semel_answer_free(a);
}

static int run_load(void)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .actor = TEXT("test")};
    semel_err e = semel_open(&o, &s, &fault);
    if (e != SEMEL_OK) {
        printf("refused %s open\n", semel_err_name(e));
        fprintf(stderr, "%s\n", fault.text);
        return semel_code_exit(SEMEL_C_LEDGER_UNAVAILABLE);
    }
    char *room = malloc(value_bytes);
    if (room == NULL)
        die("out of memory");
    for (unsigned key = from; key < from + count; key++)
        run_effect(s, key, room);
    free(room);
    semel_close(s);
    return 0;
}

/* ---- the check -------------------------------------------------------------------------------*/

/* Whether the ledger knows this effect, and with this value if `hash` is not 0. */
static bool agrees(semel *s, semel_answer *a, unsigned key, uint64_t hash)
{
    char name[32];
    int n = snprintf(name, sizeof name, "load-%u", key);
    semel_name which = {.size = sizeof which, .scope = TEXT("load"), .key = {name, (size_t)n}};
    semel_err e = semel_get(s, &which, a);
    if (e != SEMEL_OK || a->verdict == SEMEL_REFUSED) {
        printf("key %u: %s %s\n", key, semel_err_name(e), semel_code_name(a->code));
        return false;
    }
    if (hash == 0)
        return true;
    if (a->state == SEMEL_S_SUCCEEDED && a->outcome.kept && hash_bytes(a->outcome.value) == hash)
        return true;
    printf("key %u: %s, %s value\n", key, semel_state_name(a->state),
           a->has_outcome ? "another" : "no");
    return false;
}

static int run_check(void)
{
    enum { KEYS_MAX = 100000 };
    static uint8_t executed[KEYS_MAX];
    semel *s = open_ledger(url, NULL);
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    char line[256];
    unsigned wrong = 0, checked = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned key;
        uint64_t hash;
        if (sscanf(line, "executed %u", &key) == 1 && key < KEYS_MAX) {
            checked++;
            wrong += ++executed[key] > 1 || !agrees(s, a, key, 0);
            if (executed[key] > 1)
                printf("key %u was executed %u times\n", key, executed[key]);
        } else if (sscanf(line, "acknowledged %u %" SCNx64, &key, &hash) == 2 ||
                   sscanf(line, "replayed %u %" SCNx64, &key, &hash) == 2) {
            checked++;
            wrong += !agrees(s, a, key, hash);
        }
    }
    printf("checked %u lines, %u wrong\n", checked, wrong);
    bool sound = verify_ledger(s);
    semel_answer_free(a);
    semel_close(s);
    return wrong == 0 && checked > 0 && sound ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},   {"from", required_argument, NULL, 'f'},
        {"count", required_argument, NULL, 'n'}, {"bytes", required_argument, NULL, 'b'},
        {"check", no_argument, NULL, 'c'},       {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': url = optarg; break;
        case 'f': from = (unsigned)atoi(optarg); break;
        case 'n': count = (unsigned)atoi(optarg); break;
        case 'b': value_bytes = (size_t)atol(optarg); break;
        case 'c': check = true; break;
        default: return 64;
        }
    }
    if (url == NULL || value_bytes < 64)
        die("usage: tool_load --url URL [--from N] [--count N] [--bytes N] | --check");
    setvbuf(stdout, NULL, _IOLBF, 0);
    return check ? run_check() : run_load();
}
