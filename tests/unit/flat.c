/* The flat door: requests and answers as texts, many at once, and forks. */
#include "ledger.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "semel/flat.h"

/* ---- a door for each test --------------------------------------------------------------------*/

static semel_flat *open_door(const char *url, const char *more)
{
    char options[1200], *problem;
    int n = snprintf(options, sizeof options, "{\"url\":\"%s\"%s}", url, more);
    semel_flat *f = semel_flat_open(options, (size_t)n, &problem);
    expect(f != NULL, "%s", problem);
    return f;
}

static semel_flat *new_door(void)
{
    return open_door(fresh_url(), "");
}

static const char *ask(semel_flat *f, const char *request)
{
    const char *answer = semel_flat_ask(f, request, strlen(request), NULL);
    assert_non_null(answer);
    return answer;
}

/* A member of an answer, as text; "" if it has none. */
static const char *member(const char *answer, const char *name)
{
    static _Thread_local char out[8][512];
    static _Thread_local unsigned next;
    char *text = out[next++ % 8];
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    const sm_json *v = sm_json_find(document(&a, answer), sm_str_from(name));
    text[0] = '\0';
    if (v != NULL && (v->type == SM_JSON_STRING || v->type == SM_JSON_NUMBER))
        snprintf(text, 512, "%.*s", SM_FMT(sm_json_text(v)));
    sm_arena_fini(&a);
    return text;
}

#define expect_member(answer, name, value)                                                         \
    do {                                                                                           \
        const char *answer_ = (answer);                                                            \
        expect(strcmp(member(answer_, name), value) == 0, "%s is not %s: %s", name, value,         \
               answer_);                                                                           \
    } while (0)

static const char begin_it[] =
    "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":1}}";
static const char begin_waiting[] =
    "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":1},"
    "\"wait_ms\":60000}";

/* Commits a claim as a success with this value. */
static const char *succeed(semel_flat *f, const char *claim, const char *value)
{
    char request[700];
    snprintf(request, sizeof request,
             "{\"op\":\"commit\",\"claim\":\"%s\",\"kind\":\"success\",\"value\":%s}", claim,
             value);
    return ask(f, request);
}

static const char *claim_of(const char *answer)
{
    expect_member(answer, "verdict", "execute");
    return member(answer, "claim");
}

/* ---- one at a time ---------------------------------------------------------------------------*/

static void a_call_runs_once_and_its_value_is_replayed(void **state)
{
    (void)state;
    semel_flat *f = new_door();
    expect_member(succeed(f, claim_of(ask(f, begin_it)), "{\"id\": 17.0}"), "result", "committed");
    const char *again = ask(f, begin_it);
    expect_member(again, "verdict", "replay");
    expect(strstr(again, "\"value\":{\"id\": 17.0}") != NULL, "%s", again);
    semel_flat_close(f);
}

static void what_is_wrong_with_a_request_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *request, *says;
    } rows[] = {
        {"", "empty"},
        {"[]", "must be a JSON object"},
        {"{\"op\":\"begin\"", "ends"},
        {"{}", "\\\"op\\\" is missing"},
        {"{\"op\":7}", "\\\"op\\\" is missing"},
        {"{\"op\":\"bgin\"}", "did you mean \\\"begin\\\""},
        {"{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\"}", "\\\"args\\\" is missing"},
        {"{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{},\"detached\":1}",
         "true or false"},
        {"{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{},\"arg\":{}}",
         "did you mean \\\"args\\\""},
        {"{\"op\":\"commit\",\"claim\":\"x\"}", "\\\"kind\\\" is missing"},
        {"{\"op\":\"effect\"}", "\\\"effect\\\" is missing"},
        {"{\"op\":\"scope\"}", "\\\"scope\\\" is missing"},
        {"{\"op\":\"effects\",\"limt\":1}", "did you mean \\\"limit\\\""},
        {"{\"op\":\"effects\",\"limit\":\"many\"}", "limit"},
        {"{\"op\":\"import\",\"lines\":[1]}", "line 1 is not a string"},
        {"{\"op\":\"passed\",\"pass\":\"x\",\"scope\":\"s\",\"tool\":\"t\"}", "pass"},
        {"{\"op\":\"declare\",\"tools\":{\"t\":{\"class\":\"wirte\"}}}", "wirte"},
    };
    semel_flat *f = new_door();
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *answer = ask(f, rows[i].request);
        expect(strstr(answer, rows[i].says) != NULL, "%s: %s", rows[i].request, answer);
        expect_member(answer, "status", "400");
        expect_member(answer, "code", "BAD_ARGUMENTS");
    }
    semel_flat_close(f);
}

static void options_that_are_wrong_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } rows[] = {
        {"{\"uri\":\"memory:\"}", "did you mean"},
        {"{\"url\":\"mysql://x\"}", "names no store"},
        {"{\"url\":\"memory:\",\"contract\":\"version: 1\\ntools: {t: {class: wirte}}\"}", "wirte"},
        {"{\"url\":\"memory:\",\"contract_path\":\"/nowhere/at/all.yaml\"}", "/nowhere"},
        {"[1]", "must be a JSON object"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *problem;
        assert_null(semel_flat_open(rows[i].options, strlen(rows[i].options), &problem));
        expect(strstr(problem, rows[i].says) != NULL, "%s: %s", rows[i].options, problem);
        semel_flat_free(problem);
    }
}

static void a_claim_under_which_nothing_was_done_is_free_again(void **state)
{
    (void)state;
    char request[300];
    semel_flat *f = new_door();
    char first[200];
    strcpy(first, claim_of(ask(f, begin_it)));
    snprintf(request, sizeof request, "{\"op\":\"release\",\"claim\":\"%s\"}", first);
    ask(f, request);
    expect_member(ask(f, request), "code", "BAD_CLAIM");
    char second[200];
    strcpy(second, claim_of(ask(f, begin_it)));
    expect(strcmp(first, second) != 0, "the same claim was given twice");
    ask(f, request); /* late: it has nothing to do with that one */
    expect_member(succeed(f, second, "1"), "result", "committed");
    semel_flat_close(f);
}

static void a_detached_claim_outlives_its_door(void **state)
{
    (void)state;
    char url[600], claim[200];
    strcpy(url, fresh_url());
    semel_flat *f = open_door(url, "");
    strcpy(claim,
           claim_of(ask(f, "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":1},"
                           "\"detached\":true}")));
    semel_flat_close(f);
    f = open_door(url, "");
    expect_member(ask(f, begin_it), "code", "RETRY_IN_FLIGHT");
    expect_member(succeed(f, claim, "1"), "result", "committed");
    semel_flat_close(f);
}

static void a_failure_and_a_doubt_are_committed_as_they_are_told(void **state)
{
    (void)state;
    char request[300], effect[100];
    semel_flat *f = open_door(
        fresh_url(),
        ",\"contract\":\"{version: 1, tools: {t: {class: irreversible, key: {fields: [/n]}}}}\"");
    const char *begun = ask(f, begin_it);
    strcpy(effect, member(begun, "effect"));
    snprintf(request, sizeof request,
             "{\"op\":\"commit\",\"claim\":\"%s\",\"kind\":\"failure\",\"applied\":\"unknown\","
             "\"value\":{\"type\":\"Timeout\"}}",
             claim_of(begun));
    expect_member(ask(f, request), "state", "in_doubt");
    expect_member(ask(f, begin_it), "code", "IN_DOUBT");
    snprintf(request, sizeof request,
             "{\"op\":\"resolve\",\"effect\":\"%s\",\"result\":\"applied\",\"evidence\":\"seen\","
             "\"outcome\":{\"value\":{\"id\":1}}}",
             effect);
    expect_member(ask(f, request), "state", "succeeded");
    expect_member(ask(f, begin_it), "verdict", "replay");
    semel_flat_close(f);
}

static void a_value_that_is_too_large_to_keep_is_recorded_as_done(void **state)
{
    (void)state;
    size_t n = (1u << 20) + 100;
    char *request = malloc(n + 400);
    semel_flat *f = new_door();
    int at =
        sprintf(request, "{\"op\":\"commit\",\"kind\":\"success\",\"claim\":\"%s\",\"value\":\"",
                claim_of(ask(f, begin_it)));
    memset(request + at, 'x', n);
    strcpy(request + at + n, "\"}");
    expect_member(ask(f, request), "result", "committed");
    const char *again = ask(f, begin_it);
    expect_member(again, "verdict", "replay");
    expect(strstr(again, "\"kept\":false") != NULL, "%s", again);
    free(request);
    semel_flat_close(f);
}

static void what_was_declared_counts(void **state)
{
    (void)state;
    static const char once[] =
        "{\"op\":\"declare\",\"tools\":{\"pay\":{\"class\":\"irreversible\",\"key\":{\"fields\":[\"/id\"]}}}}";
    static const char other[] = "{\"op\":\"declare\",\"tools\":{\"pay\":{\"class\":\"write\"}}}";
    static const char listed[] =
        "{\"op\":\"declare\",\"unless_listed\":true,\"tools\":{\"pay\":{"
        "\"class\":\"write\"},\"get_x\":{\"class\":\"write\"},\"put\":{\"class\":\"write\",\"window\":\"1h\"}}}";
    semel_flat *f =
        open_door(fresh_url(), ",\"contract\":\"{version: 1, tools: {'get_*': {class: read}}}\"");
    expect(strstr(ask(f, once), "\"declared\":true") != NULL, "%s", ask(f, once));
    expect(strstr(ask(f, once), "\"declared\":true") != NULL, "%s", ask(f, once));
    expect(strstr(ask(f, other), "has another contract already") != NULL, "%s", ask(f, other));
    expect(strstr(ask(f, listed), "\"declared\":true") != NULL, "%s", ask(f, listed));
    const char *tools = ask(f, "{\"op\":\"tools\"}");
    expect(strstr(tools, "get_*") != NULL && strstr(tools, "get_x") == NULL &&
               strstr(tools, "\"put\"") != NULL,
           "%s", tools);
    static const char two[] =
        "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"pay\",\"args\":{\"id\":1,\"note\":\"%d\"}}";
    char request[200];
    snprintf(request, sizeof request, two, 1);
    succeed(f, claim_of(ask(f, request)), "1");
    snprintf(request, sizeof request, two, 2);
    expect_member(ask(f, request), "verdict", "replay");
    semel_flat_close(f);
}

static void a_checkpoint_is_replayed_elsewhere(void **state)
{
    (void)state;
    semel_flat *f = new_door(), *g = open_door("memory:", "");
    succeed(f, claim_of(ask(f, begin_it)), "{\"id\": 1}");
    const char *export = ask(f, "{\"op\":\"export\",\"scope\":\"s\"}");
    char *import = malloc(strlen(export) + 100);
    sprintf(import, "{\"op\":\"import\",%s", export + 1);
    expect_member(ask(g, import), "added", "1");
    const char *again = ask(g, begin_it);
    expect_member(again, "verdict", "replay");
    expect(strstr(again, "{\"id\": 1}") != NULL, "%s", again);
    free(import);
    semel_flat_close(g);
    semel_flat_close(f);
}

static void a_key_is_told(void **state)
{
    (void)state;
    semel_flat *f = new_door();
    const char *key =
        ask(f, "{\"op\":\"key\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"b\":1.0,\"a\":[]}}");
    assert_int_equal(strlen(member(key, "key")), 43);
    expect(strstr(key, "\"args\":{\"a\":[],\"b\":1}") != NULL, "%s", key);
    semel_flat_close(f);
}

static void detectors_of_their_own_find_loops(void **state)
{
    (void)state;
    static const char add[] =
        "{\"op\":\"loop_add\",\"loop\":1,\"tool\":\"t\",\"args\":{\"n\":1},\"result\":2}";
    semel_flat *f = new_door();
    expect_member(ask(f, "{\"op\":\"loop_new\",\"repeats\":3}"), "loop", "1");
    expect_member(ask(f, "{\"op\":\"loop_new\",\"repeats\":2}"), "loop", "2");
    for (int i = 0; i < 2; i++)
        expect_text(sm_str_from(ask(f, add)), "{\"looping\":false}");
    expect_text(sm_str_from(ask(f, add)),
                "{\"looping\":true,\"detector\":\"repeat\",\"period\":1,\"count\":3}");
    ask(f, "{\"op\":\"loop_free\",\"loop\":1}");
    expect_member(ask(f, add), "code", "NOT_FOUND");
    expect_member(ask(f, "{\"op\":\"loop_new\",\"repeats\":1}"), "code", "BAD_ARGUMENTS");
    expect_member(ask(f, "{\"op\":\"loop_new\",\"max_cycle\":33}"), "code", "BAD_ARGUMENTS");
    semel_flat_close(f); /* with one of them */
}

static void a_read_has_no_claim_and_its_repeats_are_noticed(void **state)
{
    (void)state;
    static const char look[] = "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"look\",\"args\":{}}";
    semel_flat *f =
        open_door(fresh_url(), ",\"contract\":\"{version: 1, tools: {look: {class: read}}}\"");
    char request[300], warning[400] = "";
    for (int i = 0; i < 4; i++) {
        const char *begun = ask(f, look);
        expect_member(begun, "verdict", "execute");
        expect_member(begun, "claim", "");
        snprintf(
            request, sizeof request,
            "{\"op\":\"passed\",\"pass\":\"%s\",\"scope\":\"s\",\"tool\":\"look\",\"value\":{\"x\":1}}",
            member(begun, "pass"));
        strcpy(warning, member(ask(f, request), "warning"));
    }
    expect(strstr(warning, "The same call returned the same result") != NULL, "%s", warning);
    semel_flat_close(f);
}

/* ---- many at once ----------------------------------------------------------------------------*/

/* The next answer, waiting for it on the descriptor; freed by the caller. */
static char *next_answer(semel_flat *f, uint64_t *tag)
{
    for (;;) {
        char *answer = semel_flat_take(f, tag, NULL);
        if (answer != NULL)
            return answer;
        struct pollfd on = {.fd = semel_flat_fd(f), .events = POLLIN};
        expect(poll(&on, 1, 60000) == 1, "no answer came");
    }
}

static bool is_readable(semel_flat *f)
{
    struct pollfd on = {.fd = semel_flat_fd(f), .events = POLLIN};
    return poll(&on, 1, 0) == 1;
}

static unsigned threads_now(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static void an_effect_is_found_by_its_key_and_all_events_are_read(void **state)
{
    (void)state;
    char request[300], effect[100];
    semel_flat *f = new_door();
    const char *begun =
        ask(f, "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{},\"key\":\"mine\"}");
    strcpy(effect, member(begun, "effect"));
    succeed(f, claim_of(begun), "1");
    expect_member(ask(f, "{\"op\":\"effect\",\"scope\":\"s\",\"key\":\"mine\"}"), "effect", effect);
    expect_member(ask(f, "{\"op\":\"effect\",\"scope\":\"s\",\"key\":\"other\"}"), "code",
                  "NOT_FOUND");
    const char *key =
        ask(f, "{\"op\":\"key\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{},\"key\":\"mine\"}");
    snprintf(request, sizeof request, "{\"op\":\"effect\",\"effect\":\"%s\"}", member(key, "key"));
    expect_member(ask(f, request), "effect", effect);
    expect_member(ask(f, "{\"op\":\"effect\",\"effect\":7}"), "code", "BAD_ARGUMENTS");
    const char *events = ask(f, "{\"op\":\"events\",\"after\":0}");
    expect(strstr(events, effect) != NULL && strstr(events, "settled") != NULL, "%s", events);
    semel_flat_close(f);
}

static void who_decides_is_written_down(void **state)
{
    (void)state;
    char request[300], effect[100];
    semel_flat *f = open_door(
        fresh_url(), ",\"contract\":\"{version: 1, tools: {t: {class: write, approval: {}}}}\"");
    const char *begun = ask(f, begin_it);
    expect_member(begun, "code", "AWAITING_APPROVAL");
    strcpy(effect, member(begun, "effect"));
    snprintf(request, sizeof request,
             "{\"op\":\"approve\",\"request\":\"%s\",\"actor\":\"ann of slack\"}",
             member(begun, "request"));
    expect_member(ask(f, request), "state", "ready");
    ask(f, "{\"op\":\"stop\",\"scope\":\"s\",\"reason\":\"a test\",\"actor\":\"bob of slack\"}");
    snprintf(request, sizeof request, "{\"op\":\"events\",\"effect\":\"%s\"}", effect);
    const char *events = ask(f, request);
    expect(strstr(events, "ann of slack") != NULL, "%s", events);
    const char *stops = ask(f, "{\"op\":\"stops\"}");
    expect(strstr(stops, "bob of slack") != NULL, "%s", stops);
    semel_flat_close(f);
}

static void a_thousand_wait_for_one_without_a_thread_each(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    semel_flat *f = new_door();
    for (uint64_t i = 0; i < MANY; i++)
        assert_true(semel_flat_submit(f, i, begin_waiting, strlen(begin_waiting)));
    uint64_t tag;
    char *first = next_answer(f, &tag), claim[200];
    strcpy(claim, claim_of(first));
    semel_flat_free(first);
    unsigned most = threads_now();
    expect(most < 100, "%u threads", most);
    assert_false(is_readable(f));
    expect_member(succeed(f, claim, "{\"id\":1}"), "result", "committed");
    bool seen[MANY] = {[0] = false};
    seen[tag] = true;
    for (int i = 1; i < MANY; i++) {
        char *answer = next_answer(f, &tag);
        expect_member(answer, "verdict", "replay");
        assert_true(tag < MANY && !seen[tag]);
        seen[tag] = true;
        semel_flat_free(answer);
    }
    assert_false(is_readable(f));
    semel_flat_close(f);
}

static void what_memory_knows_needs_no_worker(void **state)
{
    (void)state;
    semel_flat *f = new_door();
    assert_null(semel_flat_recall(f, begin_it, strlen(begin_it), NULL));
    succeed(f, claim_of(ask(f, begin_it)), "1");
    const char *known = semel_flat_recall(f, begin_it, strlen(begin_it), NULL);
    if (in_file())
        assert_non_null(known);
    if (known != NULL)
        expect_member(known, "verdict", "replay");
    semel_flat_close(f);
}

static void a_begin_that_waits_can_be_given_up(void **state)
{
    (void)state;
    semel_flat *f = new_door();
    char claim[200];
    strcpy(claim, claim_of(ask(f, begin_it)));
    assert_true(semel_flat_submit(f, 7, begin_waiting, strlen(begin_waiting)));
    while (!semel_flat_cancel(f, 7)) /* once the ledger has told it to wait */
        usleep(1000);
    uint64_t tag;
    char *answer = next_answer(f, &tag);
    assert_int_equal(tag, 7);
    expect_member(answer, "code", "CANCELED");
    semel_flat_free(answer);
    assert_false(semel_flat_cancel(f, 7));
    expect_member(succeed(f, claim, "1"), "result", "committed");
    semel_flat_close(f);
}

/* Who decides gets the answer to that, and not the one of a waiter that it wakes. */
static void who_waits_and_who_approves_get_their_own_answers(void **state)
{
    (void)state;
    char request[300], asked[200] = "";
    semel_flat *f = open_door(
        fresh_url(), ",\"contract\":\"{version: 1, tools: {t: {class: write, approval: {}}}}\"");
    assert_true(semel_flat_submit(f, 7, begin_waiting, strlen(begin_waiting)));
    while (asked[0] == '\0') { /* until it waits */
        const char *begun = ask(f, begin_it);
        expect_member(begun, "code", "AWAITING_APPROVAL");
        strcpy(asked, member(begun, "request"));
    }
    snprintf(request, sizeof request, "{\"op\":\"approve\",\"request\":\"%s\"}", asked);
    const char *approved = ask(f, request);
    expect_member(approved, "verdict", "done");
    expect_member(approved, "claim", "");
    uint64_t tag;
    char *answer = next_answer(f, &tag);
    assert_int_equal(tag, 7);
    expect_member(succeed(f, claim_of(answer), "1"), "result", "committed");
    semel_flat_free(answer);
    semel_flat_close(f);
}

/* ---- threads ---------------------------------------------------------------------------------*/

typedef struct crowd {
    semel_flat *f;
    atomic_int ran, replayed;
} crowd;

static void *call_many(void *context)
{
    crowd *c = context;
    char request[300];
    for (int i = 0; i < 40; i++) {
        snprintf(
            request, sizeof request,
            "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":%d},\"wait_ms\":60000}",
            i);
        const char *begun = ask(c->f, request);
        if (strcmp(member(begun, "verdict"), "execute") == 0) {
            char claim[200];
            strcpy(claim, member(begun, "claim"));
            atomic_fetch_add(&c->ran, 1);
            expect_member(succeed(c->f, claim, "1"), "result", "committed");
        } else {
            expect_member(begun, "verdict", "replay");
            atomic_fetch_add(&c->replayed, 1);
        }
    }
    return NULL;
}

static void eight_threads_run_each_call_once(void **state)
{
    (void)state;
    crowd c = {.f = new_door()};
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, call_many, &c);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c.ran, 40);
    assert_int_equal(c.replayed, 7 * 40);
    semel_flat_close(c.f);
}

/* ---- forks -----------------------------------------------------------------------------------*/

/* Waits for a child that has to end well. */
static void join_child(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
}

/* What a child found, as its exit status: cmocka's checks do not work there. */
#define child_expects(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so in a child: %s\n", __FILE__, __LINE__, #condition);     \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static bool answers(semel_flat *f, const char *request, const char *text)
{
    const char *answer = semel_flat_ask(f, request, strlen(request), NULL);
    if (answer != NULL && strstr(answer, text) != NULL)
        return true;
    fprintf(stderr, "%s: %s\n", request, answer);
    return false;
}

static void a_child_opens_the_ledger_anew(void **state)
{
    (void)state;
    semel_flat *f = new_door();
    succeed(f, claim_of(ask(f, begin_it)), "{\"id\":1}");
    pid_t pid = fork();
    if (pid == 0) {
        if (in_memory()) {
            child_expects(answers(f, begin_it, "is a child of that process"));
        } else {
            child_expects(answers(f, begin_it, "\"verdict\":\"replay\""));
            child_expects(
                answers(f, "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":2}}",
                        "\"verdict\":\"execute\""));
        }
        semel_flat_close(f);
        _exit(0);
    }
    join_child(pid);
    expect_member(ask(f, begin_it), "verdict", "replay");
    /* What the child held ended with it. */
    if (!in_memory())
        expect_member(
            ask(f, "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":2}}"), "code",
            "IN_DOUBT");
    semel_flat_close(f);
}

static void an_inherited_claim_is_committed_once(void **state)
{
    (void)state;
    if (in_memory())
        return;
    semel_flat *f = new_door();
    char claim[200], request[400];
    strcpy(claim, claim_of(ask(f, begin_it)));
    snprintf(request, sizeof request,
             "{\"op\":\"commit\",\"claim\":\"%s\",\"kind\":\"success\",\"value\":\"child\"}",
             claim);
    pid_t pid = fork();
    if (pid == 0) {
        child_expects(answers(f, request, "\"result\":\"committed\""));
        semel_flat_close(f);
        _exit(0);
    }
    join_child(pid);
    expect_member(succeed(f, claim, "\"parent\""), "result", "late_evidence");
    const char *again = ask(f, begin_it);
    expect(strstr(again, "\"value\":\"child\"") != NULL, "%s", again);
    semel_flat_close(f);
}

/* An irreversible tool must not become an unlisted one in a child. */
static void what_was_declared_counts_in_a_child_too(void **state)
{
    (void)state;
    static const char once[] =
        "{\"op\":\"declare\",\"tools\":{\"pay\":{\"class\":\"irreversible\"}}}";
    if (in_memory())
        return;
    semel_flat *f = new_door();
    expect(strstr(ask(f, once), "true") != NULL, "%s", ask(f, once));
    pid_t pid = fork();
    if (pid == 0) {
        child_expects(answers(f, "{\"op\":\"tools\"}", "\"class\":\"irreversible\""));
        child_expects(answers(f, once, "\"declared\":true"));
        pid_t grandchild = fork();
        if (grandchild == 0) {
            child_expects(answers(f, "{\"op\":\"tools\"}", "\"class\":\"irreversible\""));
            semel_flat_close(f);
            _exit(0);
        }
        int status;
        waitpid(grandchild, &status, 0);
        child_expects(status == 0);
        semel_flat_close(f);
        _exit(0);
    }
    join_child(pid);
    semel_flat_close(f);
}

/* The parent has the ledger open twice. When it has closed both, the log is moved into the file,
 * unless the child's connection holds what it believes to hold. */
static void a_child_keeps_what_it_writes_when_its_parent_closes(void **state)
{
    (void)state;
    char url[600], request[200];
    int go[2];
    if (in_memory())
        return;
    strcpy(url, fresh_url());
    semel_flat *f = open_door(url, ""), *g = open_door(url, "");
    succeed(f, claim_of(ask(f, begin_it)), "1");
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        child_expects(answers(f, begin_it, "replay"));
        child_expects(read(go[0], &c, 1) == 1); /* the parent has closed both */
        for (int i = 10; i < 15; i++) {
            snprintf(request, sizeof request,
                     "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":%d}}", i);
            child_expects(answers(f, request, "execute"));
        }
        semel_flat_close(f);
        _exit(0);
    }
    semel_flat_close(f);
    semel_flat_close(g);
    assert_int_equal(write(go[1], "x", 1), 1);
    join_child(pid);
    f = open_door(url, "");
    for (int i = 10; i < 15; i++) {
        snprintf(request, sizeof request,
                 "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":%d}}", i);
        expect_member(ask(f, request), "code", "IN_DOUBT"); /* it ended with the child */
    }
    semel_flat_close(f);
    close(go[0]);
    close(go[1]);
}

typedef struct forking {
    semel_flat *f;
    atomic_bool stop;
    atomic_int done;
} forking;

static void *write_on(void *context)
{
    forking *x = context;
    static atomic_int number;
    char request[300];
    while (!atomic_load(&x->stop)) {
        snprintf(request, sizeof request,
                 "{\"op\":\"begin\",\"scope\":\"p\",\"tool\":\"t\",\"args\":{\"n\":%d}}",
                 atomic_fetch_add(&number, 1));
        char claim[200];
        strcpy(claim, claim_of(ask(x->f, request)));
        expect_member(succeed(x->f, claim, "1"), "result", "committed");
        expect_member(ask(x->f, request), "verdict", "replay");
        atomic_fetch_add(&x->done, 1);
    }
    return NULL;
}

/* Children are forked in the midst of writes, and write themselves. */
static void forks_amid_writes_lose_nothing(void **state)
{
    (void)state;
    enum { CHILDREN = 12, EACH = 5 };
    if (in_memory())
        return;
    forking x = {.f = new_door()};
    pthread_t threads[4];
    pid_t pids[CHILDREN];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, write_on, &x);
    for (int c = 0; c < CHILDREN; c++) {
        int before = atomic_load(&x.done);
        while (atomic_load(&x.done) == before) /* they are at it */
            usleep(200);
        pids[c] = fork();
        if (pids[c] != 0)
            continue;
        for (int i = 0; i < EACH; i++) {
            char request[300], end[400];
            snprintf(request, sizeof request,
                     "{\"op\":\"begin\",\"scope\":\"c\",\"tool\":\"t\",\"args\":{\"n\":%d}}",
                     c * EACH + i);
            const char *begun = semel_flat_ask(x.f, request, strlen(request), NULL);
            const char *claim = begun == NULL ? NULL : strstr(begun, "cl_");
            if (claim == NULL)
                fprintf(stderr, "%s\n", begun);
            child_expects(claim != NULL);
            snprintf(end, sizeof end,
                     "{\"op\":\"commit\",\"claim\":\"%.*s\",\"kind\":\"success\",\"value\":1}",
                     (int)strcspn(claim, "\""), claim);
            child_expects(answers(x.f, end, "\"result\":\"committed\""));
        }
        semel_flat_close(x.f);
        _exit(0);
    }
    for (int c = 0; c < CHILDREN; c++)
        join_child(pids[c]);
    atomic_store(&x.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const char *all =
        ask(x.f, "{\"op\":\"effects\",\"scope\":\"c\",\"state\":\"succeeded\",\"limit\":1000}");
    int found = 0;
    for (const char *at = all; (at = strstr(at, "\"verdict\"")) != NULL; at++)
        found++;
    assert_int_equal(found, CHILDREN * EACH);
    const char *verified = ask(x.f, "{\"op\":\"verify\"}");
    expect(strstr(verified, "\"flaws\":[]") != NULL, "%s", verified);
    semel_flat_close(x.f);
}

/* ---- the end ---------------------------------------------------------------------------------*/

static void a_door_closes_with_calls_that_wait_and_claims_that_are_held(void **state)
{
    (void)state;
    char url[600];
    strcpy(url, fresh_url());
    semel_flat *f = open_door(url, "");
    claim_of(ask(f, begin_it));
    for (uint64_t i = 0; i < 10; i++)
        assert_true(semel_flat_submit(f, i, begin_waiting, strlen(begin_waiting)));
    semel_flat_close(f);
    if (in_memory())
        return;
    f = open_door(url, "");
    expect_member(ask(f, begin_it), "code",
                  "RETRY_IN_FLIGHT"); /* its process is there, and its lease */
    semel_flat_close(f);
}

/* Many begins are under way when the door closes. What has begun was either told to somebody, or is
 * given back: it does not stay in doubt for nothing. */
static void what_begins_while_a_door_closes_is_given_back_or_told(void **state)
{
    (void)state;
    enum { MANY = 200 };
    char url[600], request[200];
    if (in_memory())
        return;
    strcpy(url, fresh_url());
    semel_flat *f = open_door(url, "");
    for (int i = 0; i < MANY; i++) {
        snprintf(request, sizeof request,
                 "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":%d}}", i);
        assert_true(semel_flat_submit(f, (uint64_t)i, request, strlen(request)));
    }
    semel_flat_close(f);
    f = open_door(url, "");
    for (int i = 0; i < MANY; i++) {
        snprintf(request, sizeof request,
                 "{\"op\":\"begin\",\"scope\":\"s\",\"tool\":\"t\",\"args\":{\"n\":%d}}", i);
        const char *answer = ask(f, request);
        bool held = strcmp(member(answer, "code"), "RETRY_IN_FLIGHT") == 0;
        expect(held || strcmp(member(answer, "verdict"), "execute") == 0, "%s", answer);
    }
    semel_flat_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_runs_once_and_its_value_is_replayed),
        cmocka_unit_test(what_is_wrong_with_a_request_is_told),
        cmocka_unit_test(options_that_are_wrong_are_told),
        cmocka_unit_test(a_claim_under_which_nothing_was_done_is_free_again),
        cmocka_unit_test(a_failure_and_a_doubt_are_committed_as_they_are_told),
        cmocka_unit_test(a_value_that_is_too_large_to_keep_is_recorded_as_done),
        cmocka_unit_test(what_was_declared_counts),
        cmocka_unit_test(a_checkpoint_is_replayed_elsewhere),
        cmocka_unit_test(a_key_is_told),
        cmocka_unit_test(detectors_of_their_own_find_loops),
        cmocka_unit_test(a_read_has_no_claim_and_its_repeats_are_noticed),
        cmocka_unit_test(an_effect_is_found_by_its_key_and_all_events_are_read),
        cmocka_unit_test(who_decides_is_written_down),
        cmocka_unit_test(a_thousand_wait_for_one_without_a_thread_each),
        cmocka_unit_test(what_memory_knows_needs_no_worker),
        cmocka_unit_test(a_begin_that_waits_can_be_given_up),
        cmocka_unit_test(who_waits_and_who_approves_get_their_own_answers),
        cmocka_unit_test(eight_threads_run_each_call_once),
        cmocka_unit_test(a_child_opens_the_ledger_anew),
        cmocka_unit_test(an_inherited_claim_is_committed_once),
        cmocka_unit_test(a_child_keeps_what_it_writes_when_its_parent_closes),
        cmocka_unit_test(what_was_declared_counts_in_a_child_too),
        cmocka_unit_test(forks_amid_writes_lose_nothing),
        cmocka_unit_test(a_door_closes_with_calls_that_wait_and_claims_that_are_held),
        cmocka_unit_test(what_begins_while_a_door_closes_is_given_back_or_told),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(a_detached_claim_outlives_its_door),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
