/* A ledger for each test, over each store that the library has. */
#ifndef SM_TEST_LEDGER_H
#define SM_TEST_LEDGER_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "semel/semel.h"

/* The store that the tests run on: run_on_stores sets it, once for each. A # in it becomes a
 * number, so that each test has a ledger of its own. */
static const char *ledger_url = "memory:";

static inline bool in_memory(void)
{
    return strcmp(ledger_url, "memory:") == 0;
}

static inline bool in_file(void)
{
    return strncmp(ledger_url, "sqlite:", 7) == 0;
}

/* A directory of this test's own, for stores that keep files. */
static inline const char *ledger_scratch(void)
{
    static char path[64];
    if (path[0] == '\0') {
        strcpy(path, "/tmp/semel-unit-XXXXXX");
        assert_non_null(mkdtemp(path));
        setenv("XDG_STATE_HOME", path, 1); /* what handles note there goes too */
    }
    return path;
}

/* Where the user's notes of the newest events are, for all ledgers of this test. */
static inline const char *notes_path(void)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/semel/seen", ledger_scratch());
    return path;
}

/* Removes what is noted of a ledger in a file, as a person does who has looked at what ran. */
static inline void forget_notes(const char *url)
{
    char command[1000];
    snprintf(command, sizeof command, "rm -rf '%s-semel' '%s'", url + strlen("sqlite:"),
             notes_path());
    assert_int_equal(system(command), 0);
}

/* The URL of a fresh ledger. */
static inline const char *fresh_url(void)
{
    static char url[512];
    static int count;
    const char *mark = strchr(ledger_url, '#');
    if (in_file())
        snprintf(url, sizeof url, "sqlite:%s/%d.db", ledger_scratch(), count++);
    else if (mark == NULL)
        return ledger_url;
    else /* other programs use the same server */
        snprintf(url, sizeof url, "%.*s%dx%d%s", (int)(mark - ledger_url), ledger_url,
                 (int)getpid(), count++, mark + 1);
    return url;
}

static inline void ledger_cleanup(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", ledger_scratch());
    assert_int_equal(system(command), 0);
}

/* Runs tests on the store that SEMEL_STORE_URL names; without it, in memory and in a file. Those
 * that need a ledger which outlives its process are `lasting`, those that look into its file
 * `filed`. */
static inline int run_on_stores(const struct CMUnitTest *tests, size_t n,
                                const struct CMUnitTest *lasting, size_t n_lasting,
                                const struct CMUnitTest *filed, size_t n_filed)
{
    const char *given = getenv("SEMEL_STORE_URL");
    const char *const urls[] = {given != NULL ? given : "memory:",
                                given != NULL ? NULL : "sqlite:"};
    int failed = 0;
    for (size_t i = 0; i < 2 && urls[i] != NULL; i++) {
        char name[32];
        ledger_url = urls[i];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(ledger_url, ":"), ledger_url);
        failed += _cmocka_run_group_tests(name, tests, n, NULL, NULL);
        if (n_lasting > 0 && !in_memory())
            failed += _cmocka_run_group_tests(name, lasting, n_lasting, NULL, NULL);
        if (n_filed > 0 && in_file())
            failed += _cmocka_run_group_tests(name, filed, n_filed, NULL, NULL);
    }
    ledger_cleanup();
    return failed;
}

typedef struct ledger {
    semel *s;
    semel_answer *a;
    char claim[128];  /* of the newest execute */
    char effect[128]; /* of the newest answer */
    char request[128];
} ledger;

static inline semel *open_ledger(const char *url, const char *contract, bool one_shot)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .contract = sm_str_from(contract),
                       .actor = SM_STR("tester"),
                       .one_shot = one_shot};
    semel_err e = semel_open(&o, &s, &fault);
    expect(e == SEMEL_OK, "the ledger was not opened: %s", fault.text);
    return s;
}

static inline ledger new_ledger(const char *contract)
{
    ledger l = {.s = open_ledger(fresh_url(), contract, true), .a = semel_answer_new()};
    assert_non_null(l.a);
    return l;
}

static inline void end_ledger(ledger *l)
{
    semel_answer_free(l->a);
    semel_close(l->s);
}

static inline void keep_text(char out[128], sm_str text)
{
    snprintf(out, 128, "%.*s", SM_FMT(text));
}

static inline semel_err take(ledger *l, semel_err e)
{
    keep_text(l->effect, l->a->effect);
    if (l->a->claim.p != NULL)
        keep_text(l->claim, l->a->claim);
    if (l->a->request.p != NULL)
        keep_text(l->request, l->a->request);
    return e;
}

static inline semel_call call_of(const char *tool, const char *args)
{
    return (semel_call){.size = sizeof(semel_call),
                        .scope = SM_STR("test"),
                        .tool = sm_str_from(tool),
                        .args = sm_str_from(args)};
}

/* begin in scope "test"; the answer is in l->a. */
static inline semel_err begin(ledger *l, const char *tool, const char *args)
{
    semel_call c = call_of(tool, args);
    return take(l, semel_begin(l->s, &c, l->a));
}

static inline semel_err commit_as(ledger *l, const char *claim, semel_kind kind,
                                  semel_applied applied, const char *value)
{
    semel_outcome o = {
        .size = sizeof o, .kind = kind, .applied = applied, .value = sm_str_from(value)};
    return take(l, semel_commit(l->s, sm_str_from(claim), &o, l->a));
}

static inline semel_err commit(ledger *l, const char *value)
{
    return commit_as(l, l->claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, value);
}

typedef struct said {
    const char *text;
    int count;
} said;

static inline bool count_said(void *context, const semel_event *e)
{
    said *s = context;
    s->count += memmem(e->body.p, e->body.n, s->text, strlen(s->text)) != NULL;
    return true;
}

/* How many events of the effect of the newest answer have this text in their body. */
static inline int events_saying(ledger *l, const char *text)
{
    said s = {.text = text};
    uint64_t after = 0;
    assert_int_equal(
        semel_events(l->s, sm_str_from(l->effect), &after, 10000, count_said, &s, NULL), SEMEL_OK);
    return s.count;
}

/* Waits until a time is over that began a moment ago. What is known of a server's clock may be
 * wrong by as long as an answer took. */
static inline void outlive(int ms)
{
    bool server = strchr(ledger_url, '#') != NULL;
    usleep((useconds_t)(ms + (server ? 300 : 20)) * 1000);
}

/* A lease to outlive. A begin that takes longer than its lease runs nothing, so it is not shorter.
 */
#define SHORT_LEASE "lease: 1s"
static inline void outlive_lease(void)
{
    outlive(1000);
}

#define expect_verdict(l, verdict_, code_)                                                         \
    do {                                                                                           \
        const semel_answer *a_ = (l)->a;                                                           \
        expect(a_->verdict == (verdict_) && a_->code == (code_), "verdict %d, code %s (%.*s)",     \
               (int)a_->verdict, semel_code_name(a_->code), SM_FMT(a_->message));                  \
    } while (0)

#define expect_execute(l)        expect_verdict(l, SEMEL_EXECUTE, SEMEL_C_NONE)
#define expect_refused(l, code_) expect_verdict(l, SEMEL_REFUSED, code_)
#define expect_replay(l, value_)                                                                   \
    do {                                                                                           \
        expect_verdict(l, SEMEL_REPLAY, SEMEL_C_NONE);                                             \
        expect_text((l)->a->outcome.value, value_);                                                \
    } while (0)

#endif
