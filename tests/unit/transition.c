/*
 * The life of an effect: every event in every state, and a long random walk that checks I1, I2, I5,
 * I6, I7 and I16 against a model of its own after each step.
 */
#include "contracts.h"

#include "base/duration.h"
#include "core/transition.h"

#define DIGEST(n) ((sm_hash){{(uint8_t)(n)}})
#define MINUTE    ((int64_t)60000)
#define T0        ((int64_t)1000000000)

/* ---- every pair of state and event -----------------------------------------------------------*/

static const char plain[] = "version: 1\ntools: {t: {on_in_doubt: hold, approval: {quorum: 1}}}\n";

/* An effect in each state, made by the shortest way that leads there. */
static sm_effect in_state(const sm_contract *c, semel_state state)
{
    sm_effect e = {0};
    sm_move s;
    sm_life_event begin = {.kind = SM_EV_BEGIN, .lease_ms = MINUTE, .digest = DIGEST(1)};
    sm_life_event asked = begin;
    asked.needs_approval = true;
    sm_life_event commit = {.kind = SM_EV_COMMIT, .fence = 1};
    switch (state) {
    case SEMEL_S_NONE: return e;
    case SEMEL_S_PENDING:
    case SEMEL_S_READY:
    case SEMEL_S_DENIED:
    case SEMEL_S_EXPIRED:
    case SEMEL_S_CANCELED:
        sm_transition(&e, &asked, c, T0, &s);
        if (state == SEMEL_S_PENDING)
            return s.next;
        sm_life_event decide = {.kind = state == SEMEL_S_READY      ? SM_EV_APPROVE
                                        : state == SEMEL_S_DENIED   ? SM_EV_DENY
                                        : state == SEMEL_S_CANCELED ? SM_EV_CANCEL
                                                                    : SM_EV_LOOK,
                                .request = 1,
                                .actor = DIGEST(9)};
        e = s.next;
        sm_transition(&e, &decide, c, state == SEMEL_S_EXPIRED ? T0 + 60 * MINUTE : T0, &s);
        return s.next;
    default: break;
    }
    sm_transition(&e, &begin, c, T0, &s);
    e = s.next;
    if (state == SEMEL_S_RUNNING)
        return e;
    commit.outcome = state == SEMEL_S_SUCCEEDED ? SEMEL_SUCCESS
                     : state == SEMEL_S_PARTIAL ? SEMEL_PARTIAL
                                                : SEMEL_FAILURE;
    commit.applied = state == SEMEL_S_IN_DOUBT ? SEMEL_APPLIED_UNKNOWN : SEMEL_APPLIED_NO;
    sm_transition(&e, &commit, c, T0, &s);
    return s.next;
}

typedef struct expected {
    semel_state state;
    sm_reaction answer;
    semel_code code;
} expected;

#define ILLEGAL(s)                                                                                 \
    {                                                                                              \
        SEMEL_S_##s, SM_REFUSED, SEMEL_C_ILLEGAL_STATE                                             \
    }
#define BAD_CLAIM(s)                                                                               \
    {                                                                                              \
        SEMEL_S_##s, SM_REFUSED, SEMEL_C_BAD_CLAIM                                                 \
    }
#define TO(s, a, c)                                                                                \
    {                                                                                              \
        SEMEL_S_##s, SM_##a, SEMEL_C_##c                                                           \
    }

static void every_event_in_every_state(void **state)
{
    (void)state;
    sm_contracts *set = contracts(plain);
    const sm_contract *c = &set->tools[0].contract;
    /* begin is without need of approval and with digest 1; renew and commit are by fence 1. */
    static const struct {
        sm_life_event event;
        const char *name;
        expected in[SEMEL_S_COUNT];
    } rows[] = {
        {{.kind = SM_EV_BEGIN, .digest = {{1}}, .lease_ms = MINUTE},
         "begin",
         {TO(RUNNING, EXECUTE, NONE), TO(PENDING, WAIT, AWAITING_APPROVAL),
          TO(RUNNING, EXECUTE, NONE), TO(RUNNING, WAIT, RETRY_IN_FLIGHT),
          TO(IN_DOUBT, REFUSED, IN_DOUBT), TO(SUCCEEDED, REPLAY, NONE), TO(RUNNING, EXECUTE, NONE),
          TO(PARTIAL, REPLAY, PARTIAL_SUCCESS), TO(DENIED, REFUSED, DENIED),
          TO(RUNNING, EXECUTE, NONE), TO(RUNNING, EXECUTE, NONE)}},
        {{.kind = SM_EV_BEGIN, .digest = {{2}}, .lease_ms = MINUTE, .drift = SM_CONFLICTS},
         "begin that conflicts",
         {TO(RUNNING, EXECUTE, NONE), TO(PENDING, REFUSED, KEY_CONFLICT),
          TO(READY, REFUSED, KEY_CONFLICT), TO(RUNNING, REFUSED, KEY_CONFLICT),
          TO(IN_DOUBT, REFUSED, KEY_CONFLICT), TO(SUCCEEDED, REFUSED, KEY_CONFLICT),
          TO(FAILED, REFUSED, KEY_CONFLICT), TO(PARTIAL, REFUSED, KEY_CONFLICT),
          TO(DENIED, REFUSED, KEY_CONFLICT), TO(EXPIRED, REFUSED, KEY_CONFLICT),
          TO(CANCELED, REFUSED, KEY_CONFLICT)}},
        {{.kind = SM_EV_BEGIN,
          .digest = {{2}},
          .lease_ms = MINUTE,
          .drift = SM_DRIFTED,
          .needs_approval = true},
         "begin that drifted and needs approval",
         {TO(PENDING, WAIT, AWAITING_APPROVAL), TO(PENDING, WAIT, AWAITING_APPROVAL),
          TO(PENDING, WAIT, AWAITING_APPROVAL), TO(RUNNING, WAIT, RETRY_IN_FLIGHT),
          TO(IN_DOUBT, REFUSED, IN_DOUBT), TO(SUCCEEDED, REPLAY, NONE),
          TO(PENDING, WAIT, AWAITING_APPROVAL), TO(PARTIAL, REPLAY, PARTIAL_SUCCESS),
          TO(DENIED, REFUSED, DENIED), TO(PENDING, WAIT, AWAITING_APPROVAL),
          TO(PENDING, WAIT, AWAITING_APPROVAL)}},
        {{.kind = SM_EV_BEGIN, .digest = {{1}}, .lease_ms = MINUTE, .barred = true},
         "begin behind a barrier",
         {TO(NONE, REFUSED, IN_DOUBT), TO(PENDING, WAIT, AWAITING_APPROVAL),
          TO(READY, REFUSED, IN_DOUBT), TO(RUNNING, WAIT, RETRY_IN_FLIGHT),
          TO(IN_DOUBT, REFUSED, IN_DOUBT), TO(SUCCEEDED, REPLAY, NONE),
          TO(FAILED, REFUSED, IN_DOUBT), TO(PARTIAL, REPLAY, PARTIAL_SUCCESS),
          TO(DENIED, REFUSED, DENIED), TO(EXPIRED, REFUSED, IN_DOUBT),
          TO(CANCELED, REFUSED, IN_DOUBT)}},
        {{.kind = SM_EV_BEGIN, .digest = {{1}}, .lease_ms = MINUTE, .overwritten = true},
         "begin of what was overwritten",
         {TO(RUNNING, EXECUTE, NONE), TO(PENDING, WAIT, AWAITING_APPROVAL),
          TO(RUNNING, EXECUTE, NONE), TO(RUNNING, WAIT, RETRY_IN_FLIGHT),
          TO(IN_DOUBT, REFUSED, IN_DOUBT), TO(RUNNING, EXECUTE, NONE), TO(RUNNING, EXECUTE, NONE),
          TO(RUNNING, EXECUTE, NONE), TO(DENIED, REFUSED, DENIED), TO(RUNNING, EXECUTE, NONE),
          TO(RUNNING, EXECUTE, NONE)}},
        {{.kind = SM_EV_LOOK},
         "look",
         {TO(NONE, DONE, NONE), TO(PENDING, DONE, NONE), TO(READY, DONE, NONE),
          TO(RUNNING, DONE, NONE), TO(IN_DOUBT, DONE, NONE), TO(SUCCEEDED, DONE, NONE),
          TO(FAILED, DONE, NONE), TO(PARTIAL, DONE, NONE), TO(DENIED, DONE, NONE),
          TO(EXPIRED, DONE, NONE), TO(CANCELED, DONE, NONE)}},
        {{.kind = SM_EV_RENEW, .fence = 1, .lease_ms = 2 * MINUTE},
         "renew",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(RUNNING, DONE, NONE),
          BAD_CLAIM(IN_DOUBT), BAD_CLAIM(SUCCEEDED), BAD_CLAIM(FAILED), BAD_CLAIM(PARTIAL),
          BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT, .fence = 1, .outcome = SEMEL_SUCCESS},
         "commit success",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(SUCCEEDED, DONE, NONE),
          TO(SUCCEEDED, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE), TO(FAILED, EVIDENCE, NONE),
          TO(PARTIAL, EVIDENCE, NONE), BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT, .fence = 1, .outcome = SEMEL_PARTIAL},
         "commit partial",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(PARTIAL, DONE, NONE),
          TO(PARTIAL, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE), TO(FAILED, EVIDENCE, NONE),
          TO(PARTIAL, EVIDENCE, NONE), BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT, .fence = 1, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_NO},
         "commit failure, not applied",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(FAILED, DONE, NONE),
          TO(FAILED, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE), TO(FAILED, EVIDENCE, NONE),
          TO(PARTIAL, EVIDENCE, NONE), BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT, .fence = 1, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_YES},
         "commit failure, applied",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(FAILED, DONE, NONE),
          TO(FAILED, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE), TO(FAILED, EVIDENCE, NONE),
          TO(PARTIAL, EVIDENCE, NONE), BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT,
          .fence = 1,
          .outcome = SEMEL_FAILURE,
          .applied = SEMEL_APPLIED_UNKNOWN},
         "commit failure, unknown",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), TO(IN_DOUBT, DONE, NONE),
          TO(IN_DOUBT, EVIDENCE, NONE), TO(SUCCEEDED, EVIDENCE, NONE), TO(FAILED, EVIDENCE, NONE),
          TO(PARTIAL, EVIDENCE, NONE), BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_COMMIT, .fence = 2, .outcome = SEMEL_SUCCESS},
         "commit by an attempt that never was",
         {BAD_CLAIM(NONE), BAD_CLAIM(PENDING), BAD_CLAIM(READY), BAD_CLAIM(RUNNING),
          BAD_CLAIM(IN_DOUBT), BAD_CLAIM(SUCCEEDED), BAD_CLAIM(FAILED), BAD_CLAIM(PARTIAL),
          BAD_CLAIM(DENIED), BAD_CLAIM(EXPIRED), BAD_CLAIM(CANCELED)}},
        {{.kind = SM_EV_STEP, .lease_ms = MINUTE},
         "step",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING),
          TO(IN_DOUBT, REFUSED, IN_DOUBT), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL),
          ILLEGAL(DENIED), ILLEGAL(EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_PROBED, .found = SM_FOUND_APPLIED},
         "probed while at hold",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING), ILLEGAL(IN_DOUBT),
          ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED), ILLEGAL(EXPIRED),
          ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_APPROVE, .request = 1, .actor = {{9}}},
         "approve",
         {ILLEGAL(NONE), TO(READY, DONE, NONE), ILLEGAL(READY), ILLEGAL(RUNNING), ILLEGAL(IN_DOUBT),
          ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED),
          TO(EXPIRED, REFUSED, APPROVAL_EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_DENY, .request = 1, .actor = {{9}}},
         "deny",
         {ILLEGAL(NONE), TO(DENIED, DONE, NONE), ILLEGAL(READY), ILLEGAL(RUNNING),
          ILLEGAL(IN_DOUBT), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED),
          TO(EXPIRED, REFUSED, APPROVAL_EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_CANCEL},
         "cancel",
         {ILLEGAL(NONE), TO(CANCELED, DONE, NONE), TO(CANCELED, DONE, NONE), ILLEGAL(RUNNING),
          ILLEGAL(IN_DOUBT), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED),
          ILLEGAL(EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_APPLIED},
         "resolve applied",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING),
          TO(SUCCEEDED, DONE, NONE), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL),
          ILLEGAL(DENIED), ILLEGAL(EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_NOT_APPLIED},
         "resolve not applied",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING), TO(READY, DONE, NONE),
          ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED), ILLEGAL(EXPIRED),
          ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_NOT_APPLIED, .needs_approval = true},
         "resolve not applied where approval is needed",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING),
          TO(PENDING, DONE, NONE), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL),
          ILLEGAL(DENIED), ILLEGAL(EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_ABANDON},
         "abandon",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING), TO(FAILED, DONE, NONE),
          ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED), ILLEGAL(EXPIRED),
          ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_WITHDRAW, .fence = 1},
         "withdraw",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), TO(NONE, DONE, NONE),
          TO(NONE, DONE, NONE), ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL),
          ILLEGAL(DENIED), ILLEGAL(EXPIRED), ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_WITHDRAW, .fence = 2},
         "withdraw what is not there",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING), ILLEGAL(IN_DOUBT),
          ILLEGAL(SUCCEEDED), ILLEGAL(FAILED), ILLEGAL(PARTIAL), ILLEGAL(DENIED), ILLEGAL(EXPIRED),
          ILLEGAL(CANCELED)}},
        {{.kind = SM_EV_STRAY, .outcome = SEMEL_SUCCESS},
         "success of a stray attempt",
         {BAD_CLAIM(NONE), TO(SUCCEEDED, DONE, NONE), TO(SUCCEEDED, DONE, NONE),
          TO(RUNNING, EVIDENCE, NONE), TO(SUCCEEDED, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE),
          TO(SUCCEEDED, DONE, NONE), TO(PARTIAL, EVIDENCE, NONE), TO(SUCCEEDED, DONE, NONE),
          TO(SUCCEEDED, DONE, NONE), TO(SUCCEEDED, DONE, NONE)}},
        {{.kind = SM_EV_STRAY, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_YES},
         "failure of a stray attempt, applied",
         {BAD_CLAIM(NONE), TO(FAILED, DONE, NONE), TO(FAILED, DONE, NONE),
          TO(RUNNING, EVIDENCE, NONE), TO(FAILED, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE),
          TO(FAILED, DONE, NONE), TO(PARTIAL, EVIDENCE, NONE), TO(FAILED, DONE, NONE),
          TO(FAILED, DONE, NONE), TO(FAILED, DONE, NONE)}},
        {{.kind = SM_EV_STRAY, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_UNKNOWN},
         "failure of a stray attempt, unknown",
         {BAD_CLAIM(NONE), TO(IN_DOUBT, DONE, NONE), TO(IN_DOUBT, DONE, NONE),
          TO(RUNNING, EVIDENCE, NONE), TO(IN_DOUBT, DONE, NONE), TO(SUCCEEDED, EVIDENCE, NONE),
          TO(IN_DOUBT, DONE, NONE), TO(PARTIAL, EVIDENCE, NONE), TO(IN_DOUBT, DONE, NONE),
          TO(IN_DOUBT, DONE, NONE), TO(IN_DOUBT, DONE, NONE)}},
        {{.kind = SM_EV_STRAY, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_NO},
         "failure of a stray attempt, not applied",
         {BAD_CLAIM(NONE), TO(PENDING, EVIDENCE, NONE), TO(READY, EVIDENCE, NONE),
          TO(RUNNING, EVIDENCE, NONE), TO(IN_DOUBT, EVIDENCE, NONE), TO(SUCCEEDED, EVIDENCE, NONE),
          TO(FAILED, EVIDENCE, NONE), TO(PARTIAL, EVIDENCE, NONE), TO(DENIED, EVIDENCE, NONE),
          TO(EXPIRED, EVIDENCE, NONE), TO(CANCELED, EVIDENCE, NONE)}},
        {{.kind = SM_EV_FORGET},
         "forget",
         {ILLEGAL(NONE), ILLEGAL(PENDING), ILLEGAL(READY), ILLEGAL(RUNNING), ILLEGAL(IN_DOUBT),
          TO(NONE, DONE, NONE), TO(NONE, DONE, NONE), TO(NONE, DONE, NONE), TO(NONE, DONE, NONE),
          TO(NONE, DONE, NONE), TO(NONE, DONE, NONE)}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int s = 0; s < SEMEL_S_COUNT; s++) {
            sm_effect e = in_state(c, (semel_state)s);
            expect(e.state == (semel_state)s, "could not make %s",
                   semel_state_name((semel_state)s));
            int64_t now = s == SEMEL_S_EXPIRED ? T0 + 60 * MINUTE : T0;
            sm_move out;
            sm_transition(&e, &rows[i].event, c, now, &out);
            const expected *x = &rows[i].in[s];
            expect(out.next.state == x->state && out.answer == x->answer && out.code == x->code,
                   "%s in %s: %s, answer %d, %s", rows[i].name, semel_state_name((semel_state)s),
                   semel_state_name(out.next.state), (int)out.answer, semel_code_name(out.code));
            if (out.answer == SM_REFUSED)
                expect(!out.changed, "%s in %s was refused and changed something", rows[i].name,
                       semel_state_name((semel_state)s));
        }
    }
    sm_contracts_free(set);
}

/* ---- stories ---------------------------------------------------------------------------------*/

/* A contract and an effect that events are thrown at. */
typedef struct story {
    sm_contracts *set;
    const sm_contract *c;
    sm_effect e;
    int64_t now;
    sm_move s;
} story;

static void tell(story *t, const char *fields)
{
    *t = (story){.now = T0};
    char text[512];
    snprintf(text, sizeof text, "version: 1\ntools: {p: {class: read}, t: %s}\n", fields);
    t->set = contracts(text);
    t->c = &sm_contracts_tool(t->set, SM_STR("t"))->contract;
}

static void happens(story *t, sm_life_event ev, sm_reaction answer, semel_state state)
{
    sm_transition(&t->e, &ev, t->c, t->now, &t->s);
    expect(t->s.answer == answer && t->s.next.state == state, "answer %d %s, %s", (int)t->s.answer,
           semel_code_name(t->s.code), semel_state_name(t->s.next.state));
    t->e = t->s.next;
}

static bool noted(const story *t, sm_history n)
{
    for (uint32_t i = 0; i < t->s.note_count; i++) {
        if (t->s.notes[i] == n)
            return true;
    }
    return false;
}

static sm_life_event begins(int digest)
{
    return (sm_life_event){.kind = SM_EV_BEGIN, .digest = DIGEST(digest), .lease_ms = MINUTE};
}

static sm_life_event commits(uint64_t fence, semel_kind outcome, semel_applied applied)
{
    return (sm_life_event){
        .kind = SM_EV_COMMIT, .fence = fence, .outcome = outcome, .applied = applied};
}

static const sm_life_event look = {.kind = SM_EV_LOOK};

static void a_lost_lease_is_doubt_and_never_a_second_execution(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += MINUTE - 1;
    happens(&t, begins(1), SM_WAIT, SEMEL_S_RUNNING);
    t.now += 1;
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    assert_int_equal(t.s.code, SEMEL_C_IN_DOUBT);
    t.now += 1000 * MINUTE; /* what is unresolved never expires (I17) */
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    sm_contracts_free(t.set);
}

static void a_renewal_or_commit_comes_in_time_until_somebody_looks(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 5 * MINUTE;
    happens(&t, (sm_life_event){.kind = SM_EV_RENEW, .fence = 1, .lease_ms = MINUTE}, SM_DONE,
            SEMEL_S_RUNNING);
    t.now += 5 * MINUTE;
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    sm_contracts_free(t.set);
}

static void a_late_success_settles_what_is_in_doubt(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 2 * MINUTE;
    happens(&t, look, SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    happens(&t, begins(1), SM_REPLAY, SEMEL_S_SUCCEEDED);
    sm_contracts_free(t.set);
}

/* Two attempts of a tool that may be rerun; the first comes back while the second runs. */
static void a_stale_fence_never_decides(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write_idempotent}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 2 * MINUTE;
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    assert_int_equal(t.e.fence, 2);
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_EVIDENCE, SEMEL_S_RUNNING);
    sm_effect fork = t.e;
    happens(&t, commits(2, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_SUCCEEDED);
    t.e = fork; /* or the second succeeds as well */
    happens(&t, commits(2, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    assert_true(noted(&t, SM_N_DOUBLE_EFFECT));
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_EVIDENCE, SEMEL_S_SUCCEEDED);
    sm_contracts_free(t.set);
}

static void a_stray_success_is_not_lost_whatever_becomes_of_the_running_attempt(void **state)
{
    (void)state;
    static const struct {
        semel_kind outcome;
        semel_applied applied;
        bool both;
    } ends[] = {{SEMEL_SUCCESS, SEMEL_APPLIED_YES, true},
                {SEMEL_FAILURE, SEMEL_APPLIED_NO, false},
                {SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, true}};
    for (size_t i = 0; i < COUNT(ends); i++) {
        story t;
        tell(&t, "{class: write}");
        happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, (sm_life_event){.kind = SM_EV_STRAY}, SM_EVIDENCE, SEMEL_S_RUNNING);
        happens(&t, commits(1, ends[i].outcome, ends[i].applied), SM_DONE, SEMEL_S_SUCCEEDED);
        expect(noted(&t, SM_N_DOUBLE_EFFECT) == ends[i].both, "end %zu", i);
        happens(&t, begins(1), SM_REPLAY, SEMEL_S_SUCCEEDED);
        sm_contracts_free(t.set);
    }
}

static void a_stray_doubt_is_held_for_a_person(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write_idempotent}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_FAILED);
    happens(&t,
            (sm_life_event){
                .kind = SM_EV_STRAY, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_UNKNOWN},
            SM_DONE, SEMEL_S_IN_DOUBT);
    expect(t.e.fence == 2 && t.e.doubt_count == 1, "fence %llu", (unsigned long long)t.e.fence);
    sm_contracts_free(t.set);
}

static void a_stray_doubt_outlives_the_doubt_that_it_finds(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write_idempotent}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 2 * MINUTE;
    happens(&t,
            (sm_life_event){
                .kind = SM_EV_STRAY, .outcome = SEMEL_FAILURE, .applied = SEMEL_APPLIED_UNKNOWN},
            SM_DONE, SEMEL_S_IN_DOUBT);
    /* The recorded attempt surely failed, and the stray one may have been applied. */
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_IN_DOUBT);
    assert_int_equal(t.e.doubt_count, 1);
    assert_int_equal(t.e.doubts[0], 2);
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    sm_contracts_free(t.set);
}

static void more_doubts_than_a_record_holds_are_held_for_a_person(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write_idempotent}");
    for (uint64_t i = 1; i <= SM_DOUBTS_MAX + 1; i++) {
        happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, commits(i, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    }
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    for (uint64_t i = 1; i <= SM_DOUBTS_MAX; i++) /* the last one is in no list, and in doubt */
        happens(&t, commits(i, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    sm_contracts_free(t.set);
}

static void doubt_is_sticky(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write_idempotent}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 2 * MINUTE;
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    /* The second surely failed: that proves nothing about the first (I16). */
    happens(&t, commits(2, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_IN_DOUBT);
    assert_int_equal(t.e.doubt_count, 1);
    assert_int_equal(t.e.doubts[0], 1);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_FAILED);
    sm_contracts_free(t.set);
}

static void the_chain_is_followed_to_its_end(void **state)
{
    (void)state;
    story t;
    tell(&t, "{on_in_doubt: [resend, probe, hold], lease: 1m, probe: {tool: p, applied: {when: "
             "[{field: /a, exists: true}]}, settle: 30s}, upstream: {url: 'http://x', "
             "idempotency: {header: K, window: 10m}}}");
    const sm_life_event step = {.kind = SM_EV_STEP, .lease_ms = MINUTE};
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, begins(1), SM_WAIT, SEMEL_S_IN_DOUBT);
    assert_int_equal(t.s.code, SEMEL_C_UPSTREAM_TIMEOUT);
    sm_effect fork = t.e;
    happens(&t, step, SM_EXECUTE, SEMEL_S_RUNNING); /* the resend */
    happens(&t, commits(2, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    assert_int_equal(sm_effect_doubt_step(&t.e, t.c, t.now), SM_DOUBT_PROBE);
    happens(&t, (sm_life_event){.kind = SM_EV_PROBED, .found = SM_FOUND_ABSENT}, SM_WAIT,
            SEMEL_S_IN_DOUBT);
    t.now += 31000;
    sm_effect settled = t.e;
    happens(&t, (sm_life_event){.kind = SM_EV_PROBED, .found = SM_FOUND_ABSENT}, SM_DONE,
            SEMEL_S_READY);
    t.e = settled;
    happens(&t, (sm_life_event){.kind = SM_EV_PROBED, .found = SM_FOUND_UNKNOWN}, SM_DONE,
            SEMEL_S_IN_DOUBT);
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    assert_int_equal(t.s.code, SEMEL_C_IN_DOUBT);
    /* Beyond the downstream's window a resend is no longer safe. */
    t.e = fork;
    t.now = T0 + 10 * MINUTE;
    assert_int_equal(sm_effect_doubt_step(&t.e, t.c, t.now), SM_DOUBT_PROBE);
    sm_contracts_free(t.set);
}

/* A call that may be sent again for ten minutes, and whose first attempt is in doubt. */
static story first_attempt_lost(void)
{
    story t;
    tell(&t, "{on_in_doubt: [resend, hold], lease: 1m, upstream: {url: 'http://x', idempotency: "
             "{header: K, window: 10m}}}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    return t;
}

static void a_resend_goes_on_while_nothing_but_a_person_comes_after_it(void **state)
{
    (void)state;
    story t = first_attempt_lost();
    const sm_life_event step = {.kind = SM_EV_STEP, .lease_ms = MINUTE};
    for (uint64_t fence = 2; fence < 6; fence++) {
        happens(&t, step, SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t,
                commits(fence, SEMEL_FAILURE,
                        fence % 2 == 0 ? SEMEL_APPLIED_UNKNOWN : SEMEL_APPLIED_NO),
                SM_DONE, SEMEL_S_IN_DOUBT);
        assert_int_equal(sm_effect_doubt_step(&t.e, t.c, t.now), SM_DOUBT_RESEND);
    }
    sm_effect young = t.e;
    t.now = T0 + 10 * MINUTE; /* the downstream may have forgotten the key */
    assert_int_equal(sm_effect_doubt_step(&t.e, t.c, t.now), SM_DOUBT_HOLD);
    t.now = T0 + MINUTE;
    t.e = young;
    happens(&t, step, SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(6, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT), SM_DONE, SEMEL_S_SUCCEEDED);
    sm_contracts_free(t.set);
}

/* The downstream knows the key since it first saw it. */
static void the_window_of_a_resend_begins_when_it_was_first_sent(void **state)
{
    (void)state;
    story t = first_attempt_lost();
    const sm_life_event step = {.kind = SM_EV_STEP, .lease_ms = MINUTE};
    for (uint64_t fence = 2; fence < 6; fence++) {
        t.now += 2 * MINUTE;
        happens(&t, step, SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, commits(fence, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE,
                SEMEL_S_IN_DOUBT);
        assert_int_equal(t.e.first_sent, T0);
    }
    assert_int_equal(sm_effect_doubt_step(&t.e, t.c, T0 + 10 * MINUTE - 1), SM_DOUBT_RESEND);
    assert_int_equal(sm_effect_doubt_step(&t.e, t.c, T0 + 10 * MINUTE), SM_DOUBT_HOLD);
    sm_contracts_free(t.set);
}

static void an_absent_probe_is_not_the_last_word_on_an_irreversible_tool(void **state)
{
    (void)state;
    for (int authoritative = 0; authoritative < 2; authoritative++) {
        story t;
        tell(&t, authoritative
                     ? "{class: irreversible, key: {fields: [/a]}, on_in_doubt: probe, probe: "
                       "{tool: p, applied: {when: [{field: /a, exists: true}]}, authoritative: on}}"
                     : "{class: irreversible, key: {fields: [/a]}, on_in_doubt: probe, probe: "
                       "{tool: p, applied: {when: [{field: /a, exists: true}]}}}");
        happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
        t.now += MINUTE;
        happens(&t, (sm_life_event){.kind = SM_EV_PROBED, .found = SM_FOUND_ABSENT}, SM_DONE,
                authoritative ? SEMEL_S_READY : SEMEL_S_IN_DOUBT);
        sm_contracts_free(t.set);
    }
}

static void an_approval_is_bound_used_once_and_expires(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write, approval: {quorum: 2, expires: 10m}}");
    sm_life_event asks = begins(1);
    asks.needs_approval = true;
    happens(&t, asks, SM_WAIT, SEMEL_S_PENDING);
    sm_life_event ann = {.kind = SM_EV_APPROVE, .request = 1, .actor = DIGEST(7)}, bob = ann;
    bob.actor = DIGEST(8);
    happens(&t, ann, SM_DONE, SEMEL_S_PENDING);
    happens(&t, ann, SM_DONE, SEMEL_S_PENDING); /* one person, one voice */
    happens(&t, bob, SM_DONE, SEMEL_S_READY);
    sm_effect approved = t.e;
    /* Other arguments are another request, and the old one can no longer be decided. */
    sm_life_event other = asks;
    other.digest = DIGEST(2);
    happens(&t, other, SM_WAIT, SEMEL_S_PENDING);
    assert_true(noted(&t, SM_N_SUPERSEDED));
    assert_int_equal(t.e.request, 2);
    happens(&t, ann, SM_REFUSED, SEMEL_S_PENDING);
    assert_int_equal(t.s.code, SEMEL_C_KEY_CONFLICT);
    /* It runs once. */
    t.e = approved;
    happens(&t, asks, SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_NO), SM_DONE, SEMEL_S_FAILED);
    happens(&t, asks, SM_WAIT, SEMEL_S_PENDING);
    /* It expires, from the request and again from the approval, and may be asked for again. */
    t.e = approved;
    t.now += 10 * MINUTE;
    happens(&t, look, SM_DONE, SEMEL_S_EXPIRED);
    assert_true(noted(&t, SM_N_EXPIRED));
    happens(&t, asks, SM_WAIT, SEMEL_S_PENDING);
    sm_contracts_free(t.set);
}

static sm_life_event asks_as(int actor, int digest)
{
    sm_life_event ev = begins(digest);
    ev.needs_approval = ev.proven = true;
    ev.actor = DIGEST(actor);
    return ev;
}

static sm_life_event approves_as(int actor, uint64_t request)
{
    return (sm_life_event){
        .kind = SM_EV_APPROVE, .request = request, .actor = DIGEST(actor), .proven = true};
}

static void forbidden(story *t, sm_life_event ev)
{
    semel_state before = t->e.state;
    happens(t, ev, SM_REFUSED, before);
    assert_int_equal(t->s.code, SEMEL_C_FORBIDDEN);
    assert_false(t->s.changed);
}

static void nobody_who_asked_can_approve(void **state)
{
    (void)state;
    enum { ANN = 1, BOB, CAROL, DAVE };
    story t;
    tell(&t, "{class: write, on_in_doubt: hold, approval: {quorum: 2, expires: 10m}}");
    happens(&t, asks_as(ANN, 1), SM_WAIT, SEMEL_S_PENDING);
    happens(&t, asks_as(BOB, 1), SM_WAIT, SEMEL_S_PENDING);
    assert_true(noted(&t, SM_N_ASKED) && t.e.request == 1);
    happens(&t, asks_as(BOB, 1), SM_WAIT, SEMEL_S_PENDING);
    assert_false(t.s.changed); /* he is known */
    forbidden(&t, approves_as(ANN, 1));
    forbidden(&t, approves_as(BOB, 1));
    /* Neither other arguments in between, nor an expiry, make him somebody else. */
    happens(&t, asks_as(ANN, 2), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(BOB, 2));
    t.now += 10 * MINUTE;
    happens(&t, look, SM_DONE, SEMEL_S_EXPIRED);
    happens(&t, asks_as(ANN, 1), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(BOB, 3));
    /* The other order: one who has approved cannot ask, not even once the approval is used. */
    happens(&t, approves_as(CAROL, 3), SM_DONE, SEMEL_S_PENDING);
    forbidden(&t, asks_as(CAROL, 1));
    happens(&t, approves_as(DAVE, 3), SM_DONE, SEMEL_S_READY);
    forbidden(&t, asks_as(DAVE, 1));
    happens(&t, asks_as(BOB, 1), SM_EXECUTE, SEMEL_S_RUNNING);
    forbidden(&t, asks_as(DAVE, 1));
    happens(&t, (sm_life_event){.kind = SM_EV_WITHDRAW, .fence = 1}, SM_DONE, SEMEL_S_READY);
    forbidden(&t, asks_as(DAVE, 1));
    happens(&t, asks_as(ANN, 1), SM_EXECUTE, SEMEL_S_RUNNING);
    /* Those who ask while it runs, or is in doubt, have asked. */
    happens(&t, asks_as(5, 1), SM_WAIT, SEMEL_S_RUNNING);
    happens(&t, commits(2, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, asks_as(6, 1), SM_REFUSED, SEMEL_S_IN_DOUBT);
    happens(&t,
            (sm_life_event){.kind = SM_EV_RESOLVE,
                            .resolution = SEMEL_RESOLVE_NOT_APPLIED,
                            .needs_approval = true,
                            .digest = DIGEST(1)},
            SM_DONE, SEMEL_S_PENDING);
    for (int actor = ANN; actor <= 6; actor++) {
        if (actor != CAROL && actor != DAVE)
            forbidden(&t, approves_as(actor, 4));
    }
    happens(&t, approves_as(CAROL, 4), SM_DONE, SEMEL_S_PENDING);
    /* Who is not authenticated could be anybody: nothing is held against them. */
    sm_life_event local = approves_as(ANN, 4);
    local.proven = false;
    happens(&t, local, SM_DONE, SEMEL_S_READY);
    sm_contracts_free(t.set);
}

static void who_asked_cannot_approve_after_leaving_the_call(void **state)
{
    (void)state;
    enum { ANN = 1, BOB, CAROL };
    static const sm_life_event cancels = {.kind = SM_EV_CANCEL}, forgets = {.kind = SM_EV_FORGET};
    story t;
    tell(&t, "{class: write, window: 1h, approval: {quorum: 1, expires: 10m}}");
    happens(&t, asks_as(ANN, 1), SM_WAIT, SEMEL_S_PENDING);
    happens(&t, cancels, SM_DONE, SEMEL_S_CANCELED);
    happens(&t, asks_as(BOB, 1), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(ANN, 2));
    happens(&t, cancels, SM_DONE, SEMEL_S_CANCELED);
    happens(&t, forgets, SM_DONE, SEMEL_S_NONE);
    happens(&t, asks_as(CAROL, 1), SM_WAIT, SEMEL_S_PENDING);
    assert_int_equal(t.e.generation, 2);
    forbidden(&t, approves_as(ANN, 3));
    forbidden(&t, approves_as(BOB, 3));
    /* After its window it is another call. */
    happens(&t, cancels, SM_DONE, SEMEL_S_CANCELED);
    t.now += 60 * MINUTE;
    happens(&t, asks_as(CAROL, 1), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(CAROL, 4));
    happens(&t, approves_as(ANN, 4), SM_DONE, SEMEL_S_READY);
    sm_contracts_free(t.set);
}

static void too_many_who_asked_leave_nobody_to_approve(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write, window: 1h, approval: {quorum: 1}}");
    for (int actor = 1; actor <= (int)SM_ASKERS_MAX; actor++)
        happens(&t, asks_as(actor, 1), SM_WAIT, SEMEL_S_PENDING);
    sm_effect full = t.e;
    happens(&t, approves_as(200, 1), SM_DONE, SEMEL_S_READY);
    t.e = full;
    happens(&t, asks_as(100, 1), SM_WAIT, SEMEL_S_PENDING);
    assert_true(t.e.crowded);
    forbidden(&t, approves_as(100, 1));
    forbidden(&t, approves_as(200, 1));
    happens(&t, (sm_life_event){.kind = SM_EV_CANCEL}, SM_DONE, SEMEL_S_CANCELED);
    happens(&t, asks_as(1, 1), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(200, 2));
    happens(&t, (sm_life_event){.kind = SM_EV_CANCEL}, SM_DONE, SEMEL_S_CANCELED);
    t.now += 60 * MINUTE;
    happens(&t, asks_as(1, 1), SM_WAIT, SEMEL_S_PENDING);
    forbidden(&t, approves_as(1, 3));
    happens(&t, approves_as(200, 3), SM_DONE, SEMEL_S_READY);
    sm_contracts_free(t.set);
}

static void windows_start_when_an_effect_is_settled(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write, window: 10m, result_window: 1m}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 30000;
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    t.now += MINUTE - 1;
    happens(&t, begins(1), SM_REPLAY, SEMEL_S_SUCCEEDED);
    t.now += 1;
    happens(&t, begins(1), SM_REFUSED, SEMEL_S_SUCCEEDED);
    assert_int_equal(t.s.code, SEMEL_C_RESULT_EXPIRED);
    t.now += 9 * MINUTE;
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING); /* the key is free: a new generation */
    assert_true(t.e.generation == 2 && t.e.attempt == 1 && t.e.fence == 2);
    /* An attempt of the old generation says nothing about the new one. */
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_EVIDENCE, SEMEL_S_RUNNING);
    assert_int_equal(t.e.late, 0);
    sm_contracts_free(t.set);
}

static void a_repeat_runs_only_if_it_is_meant(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write, on_repeat: run, repeat_after: 2s}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    sm_life_event meant = begins(1);
    meant.deliberate = true;
    t.now += 1999;
    happens(&t, meant, SM_REPLAY, SEMEL_S_SUCCEEDED); /* a client that sends everything twice */
    t.now += 1;
    happens(&t, begins(1), SM_REPLAY, SEMEL_S_SUCCEEDED);
    happens(&t, meant, SM_EXECUTE, SEMEL_S_RUNNING);
    assert_int_equal(t.e.generation, 2);
    sm_contracts_free(t.set);
}

static void what_is_overwritten_is_another_action(void **state)
{
    (void)state;
    static const struct {
        semel_kind kind;
        semel_applied applied;
        bool over;
    } ends[] = {{SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, true},
                {SEMEL_PARTIAL, SEMEL_APPLIED_DEFAULT, true},
                {SEMEL_FAILURE, SEMEL_APPLIED_YES, true},
                {SEMEL_FAILURE, SEMEL_APPLIED_NO, false}};
    for (size_t i = 0; i < COUNT(ends); i++) {
        story t;
        tell(&t, "{class: write, failures: replay, on_hit: fail}");
        happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, commits(1, ends[i].kind, ends[i].applied), SM_DONE,
                ends[i].kind == SEMEL_SUCCESS   ? SEMEL_S_SUCCEEDED
                : ends[i].kind == SEMEL_PARTIAL ? SEMEL_S_PARTIAL
                                                : SEMEL_S_FAILED);
        sm_life_event ev =
            begins(2); /* also if it conflicts: there is nothing left to conflict with */
        ev.overwritten = true;
        ev.drift = ends[i].over ? SM_CONFLICTS : SM_SAME;
        happens(&t, ev, ends[i].over ? SM_EXECUTE : SM_REFUSED,
                ends[i].over ? SEMEL_S_RUNNING : SEMEL_S_FAILED);
        assert_int_equal(t.e.generation, ends[i].over ? 2 : 1);
        assert_true(noted(&t, SM_N_OVERWRITTEN) == ends[i].over);
        sm_contracts_free(t.set);
    }
    story t; /* a person gave up on it: nobody knows what others could have overwritten */
    tell(&t, "{class: write}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    happens(&t, commits(1, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN), SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, (sm_life_event){.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_ABANDON},
            SM_DONE, SEMEL_S_FAILED);
    sm_life_event ev = begins(1);
    ev.overwritten = true;
    happens(&t, ev, SM_REPLAY, SEMEL_S_FAILED);
    sm_contracts_free(t.set);
}

static void failures_run_again_only_where_that_is_safe(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        semel_applied applied;
        sm_reaction again;
        semel_code code;
    } rows[] = {
        {"{class: write}", SEMEL_APPLIED_NO, SM_EXECUTE, SEMEL_C_NONE},
        {"{class: write}", SEMEL_APPLIED_YES, SM_REPLAY, SEMEL_C_NONE},
        {"{class: write, failures: replay}", SEMEL_APPLIED_NO, SM_REPLAY, SEMEL_C_NONE},
        {"{class: write, failures: replay, on_hit: replay_success}", SEMEL_APPLIED_NO, SM_EXECUTE,
         SEMEL_C_NONE},
        {"{class: write, failures: replay, on_hit: replay_success}", SEMEL_APPLIED_YES, SM_REPLAY,
         SEMEL_C_NONE},
        {"{class: write, failures: replay, on_hit: fail}", SEMEL_APPLIED_NO, SM_REFUSED,
         SEMEL_C_ALREADY_DONE},
        {"{class: irreversible, key: {fields: [/a]}}", SEMEL_APPLIED_NO, SM_REPLAY, SEMEL_C_NONE},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        story t;
        tell(&t, rows[i].fields);
        happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
        happens(&t, commits(1, SEMEL_FAILURE, rows[i].applied), SM_DONE, SEMEL_S_FAILED);
        sm_life_event again = begins(1);
        sm_transition(&t.e, &again, t.c, t.now, &t.s);
        expect(t.s.answer == rows[i].again && t.s.code == rows[i].code, "%s", rows[i].fields);
        /* The downstream key changes with the run, and only then. */
        expect(t.s.next.run == (rows[i].again == SM_EXECUTE ? 1u : 0u), "%s", rows[i].fields);
        sm_contracts_free(t.set);
    }
}

static void a_success_after_not_applied_settles_before_it_runs_twice(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write}");
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    t.now += 2 * MINUTE;
    happens(&t, look, SM_DONE, SEMEL_S_IN_DOUBT);
    happens(&t, (sm_life_event){.kind = SM_EV_RESOLVE, .resolution = SEMEL_RESOLVE_NOT_APPLIED},
            SM_DONE, SEMEL_S_READY);
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    sm_contracts_free(t.set);
}

static void observe_mode_executes_and_says_what_it_would_have_done(void **state)
{
    (void)state;
    story t;
    tell(&t, "{class: write, mode: observe, approval: {quorum: 1}}");
    sm_life_event asks = begins(1);
    asks.needs_approval = true;
    happens(&t, asks, SM_EXECUTE, SEMEL_S_RUNNING);
    assert_int_equal(t.s.observed, SEMEL_C_AWAITING_APPROVAL);
    assert_false(t.s.unclaimed);
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_RUNNING);
    assert_true(t.s.unclaimed && t.s.observed == SEMEL_C_RETRY_IN_FLIGHT && t.e.fence == 1);
    happens(&t, commits(1, SEMEL_SUCCESS, 0), SM_DONE, SEMEL_S_SUCCEEDED);
    happens(&t, begins(1), SM_EXECUTE, SEMEL_S_SUCCEEDED);
    assert_true(t.s.unclaimed && t.s.observed == SEMEL_C_ALREADY_DONE);
    sm_contracts_free(t.set);
}

/* ---- the random walk -------------------------------------------------------------------------*/

/* What the walk itself knows of one attempt. */
typedef struct attempt {
    uint64_t generation;
    bool over;      /* known to have done nothing: its own word, a person's, or a probe's */
    bool succeeded; /* it said so */
} attempt;

#define ATTEMPTS 4096

typedef struct walk {
    uint64_t random;
    const sm_contract *c;
    sm_effect e;
    int64_t now;
    attempt attempts[ATTEMPTS]; /* by fence */
    uint64_t steps_in[SEMEL_S_COUNT];
    uint64_t executions, replays, doubles;
    bool asked[4]; /* by actor: whether they asked for what is to be approved */
} walk;

static sm_life_event random_event(walk *w)
{
    sm_life_event ev = {.kind = (sm_event_kind)random_below(&w->random, SM_EV_COUNT)};
    if (random_below(&w->random, 3) == 0)
        ev.kind = SM_EV_BEGIN;
    uint32_t back = random_below(&w->random, 3);
    ev.fence = w->e.fence > back ? w->e.fence - back : random_below(&w->random, 3);
    ev.digest = DIGEST(random_below(&w->random, 2));
    ev.needs_approval = w->c->approval.on && random_below(&w->random, 3) > 0;
    ev.drift = (sm_drift)(random_below(&w->random, 8) == 0 ? random_below(&w->random, 3) : 0);
    ev.deliberate = random_below(&w->random, 4) == 0;
    ev.barred = random_below(&w->random, 16) == 0;
    ev.overwritten = random_below(&w->random, 16) == 0;
    ev.lease_ms = 1000 + random_below(&w->random, 60000);
    ev.outcome = (semel_kind)random_below(&w->random, 3);
    ev.applied = (semel_applied)(SEMEL_APPLIED_NO + random_below(&w->random, 3));
    ev.gone = random_below(&w->random, 32) == 0;
    ev.request = w->e.request - (random_below(&w->random, 4) == 0);
    ev.actor = DIGEST(random_below(&w->random, 4));
    ev.proven = true;
    ev.resolution = (semel_resolution)random_below(&w->random, 3);
    ev.found = (sm_found_kind)random_below(&w->random, 3);
    return ev;
}

/* The effect as the clock, what is known of its holder, and others who wrote what it acts on leave
 * it, before the event itself. */
static sm_effect at_rest(const walk *w, const sm_life_event *ev)
{
    sm_move s;
    sm_life_event first = look;
    first.gone = ev->gone;
    sm_transition(&w->e, &first, w->c, w->now, &s);
    if (ev->kind == SM_EV_BEGIN && ev->overwritten && sm_effect_applied(&s.next))
        s.next.state = SEMEL_S_NONE;
    return s.next;
}

static void check_execution(walk *w, const sm_effect *before, const sm_life_event *ev,
                            const sm_move *s)
{
    const sm_effect *after = &s->next;
    expect(before->state != SEMEL_S_RUNNING, "I1: a second attempt beside a running one");
    expect(after->fence == before->fence + 1, "I1: a fence was not new");
    bool chain = before->state == SEMEL_S_IN_DOUBT;
    sm_doubt step = sm_effect_doubt_step(before, w->c, w->now);
    expect(!chain || step == SM_DOUBT_RERUN || (step == SM_DOUBT_RESEND && ev->kind == SM_EV_STEP),
           "I2: run again out of doubt without a reason");
    for (uint64_t f = 1; f <= before->fence; f++) {
        const attempt *a = &w->attempts[f];
        if (a->generation != after->generation)
            continue;
        expect(a->over || chain, "I2: attempt %llu may have been applied", (unsigned long long)f);
        expect(!a->succeeded || chain, "I2: attempt %llu succeeded", (unsigned long long)f);
    }
    expect(ev->kind != SM_EV_BEGIN || before->state == SEMEL_S_NONE || ev->drift != SM_CONFLICTS,
           "I6: a conflict was executed");
    if (ev->kind == SM_EV_BEGIN && ev->needs_approval && w->c->mode == SM_MODE_ENFORCE) {
        bool used = before->approved && memcmp(&before->digest, &ev->digest, 32) == 0;
        bool same = chain && memcmp(&before->ran, &ev->digest, 32) == 0;
        expect(used || same, "I7: executed without an approval of these arguments");
    }
    expect(!after->approved, "I7: an approval was not used up");
    if (after->generation == before->generation && before->state == SEMEL_S_SUCCEEDED)
        fail_msg("a success was followed by an attempt in its own generation");
    w->attempts[after->fence] = (attempt){.generation = after->generation};
    w->executions++;
}

/* Learns from an event what the walk may know of attempts. */
static void learn(walk *w, const sm_effect *before, const sm_life_event *ev, const sm_move *s)
{
    if (ev->kind == SM_EV_COMMIT && ev->fence >= 1 && ev->fence <= before->fence) {
        attempt *a = &w->attempts[ev->fence];
        /* An attempt that takes back its own word, or a person's, is evidence and no more. */
        if (ev->outcome != SEMEL_FAILURE && !a->over)
            a->succeeded = true;
        else if (ev->applied == SEMEL_APPLIED_NO && !a->succeeded)
            a->over = true;
    }
    if (ev->kind == SM_EV_WITHDRAW && s->answer == SM_DONE && !w->attempts[ev->fence].succeeded)
        w->attempts[ev->fence].over = true; /* it never began */
    bool cleared = (ev->kind == SM_EV_RESOLVE && ev->resolution == SEMEL_RESOLVE_NOT_APPLIED) ||
                   (ev->kind == SM_EV_PROBED && ev->found == SM_FOUND_ABSENT);
    if (cleared && s->answer == SM_DONE && before->state == SEMEL_S_IN_DOUBT &&
        s->next.state != SEMEL_S_IN_DOUBT) {
        for (uint64_t f = before->base_fence + 1; f <= before->fence; f++)
            w->attempts[f].over = true;
    }
}

/* Nobody approves what they asked for, and nobody runs what they approved. */
static void check_approval(walk *w, const sm_effect *before, const sm_life_event *ev,
                           const sm_move *s)
{
    const sm_effect *after = &s->next;
    uint8_t actor = ev->actor.b[0];
    bool repeated = before->state == SEMEL_S_SUCCEEDED && after->generation != before->generation;
    if (repeated || sm_step_noted(s, SM_N_WINDOW_OVER) || sm_step_noted(s, SM_N_OVERWRITTEN))
        memset(w->asked, 0, sizeof w->asked);
    expect(!sm_step_noted(s, SM_N_APPROVED) || !w->asked[actor],
           "I7: approved by one who asked for it");
    if (ev->kind != SM_EV_BEGIN || w->c->mode == SM_MODE_OBSERVE)
        return;
    for (uint32_t i = 0; i < before->approvals && s->answer == SM_EXECUTE; i++)
        expect(before->approvers[i].b[0] != actor || before->state == SEMEL_S_NONE,
               "I7: run by one who approved it");
    if (ev->needs_approval && s->code != SEMEL_C_FORBIDDEN && s->code != SEMEL_C_KEY_CONFLICT &&
        after->request != 0 && !semel_state_settled(after->state) && after->state != SEMEL_S_NONE)
        w->asked[actor] = true;
}

static void check_step(walk *w, const sm_effect *before, const sm_life_event *ev, const sm_move *s)
{
    const sm_effect *after = &s->next;
    const char *flaw = sm_effect_flaw(after);
    expect(flaw == NULL, "%s", flaw);
    if (s->answer == SM_EXECUTE && !s->unclaimed)
        check_execution(w, before, ev, s);
    if ((ev->kind == SM_EV_COMMIT || ev->kind == SM_EV_WITHDRAW) &&
        semel_state_settled(before->state))
        expect(after->state == before->state && after->settled_at == before->settled_at,
               "I5: a late commit changed what was settled");
    if ((ev->kind == SM_EV_COMMIT || ev->kind == SM_EV_WITHDRAW) &&
        before->state == SEMEL_S_RUNNING && ev->fence != before->fence)
        expect(after->state == SEMEL_S_RUNNING && after->fence == before->fence,
               "I5: a stale fence ended the running attempt");
    if (ev->kind == SM_EV_BEGIN && ev->drift == SM_CONFLICTS && before->state != SEMEL_S_NONE &&
        w->c->mode == SM_MODE_ENFORCE)
        expect(s->answer == SM_REFUSED && s->code == SEMEL_C_KEY_CONFLICT,
               "I6: a conflict was not told");
    if (before->state == SEMEL_S_IN_DOUBT && after->state == SEMEL_S_FAILED &&
        ev->kind == SM_EV_COMMIT && !after->applied) {
        for (uint32_t i = 0; i < before->doubt_count; i++)
            expect(before->doubts[i] == ev->fence, "I16: a doubt was dropped");
    }
    if (ev->kind == SM_EV_WITHDRAW && after->state == SEMEL_S_NONE &&
        before->state != SEMEL_S_NONE && !semel_state_settled(before->state)) {
        for (uint32_t i = 0; i < before->doubt_count; i++)
            expect(before->doubts[i] == ev->fence, "I16: a doubt was dropped by withdrawing");
        expect(before->late == 0, "a success was dropped by withdrawing");
    }
    expect(!sm_step_noted(s, SM_N_OVERWRITTEN) || s->answer != SM_REPLAY,
           "what was overwritten was replayed");
    if (s->answer == SM_REPLAY)
        w->replays++;
    check_approval(w, before, ev, s);
}

static void a_million_random_steps_keep_every_promise(void **state)
{
    (void)state;
    static const char *const tools[] = {
        "{class: write}",
        "{class: write, window: 1m, on_repeat: run}",
        "{class: write_idempotent, window: 2m}",
        "{class: irreversible, key: {fields: [/a]}, window: 5m}",
        "{class: write, approval: {quorum: 2, expires: 2m}, window: 3m}",
        "{class: write_idempotent, approval: {quorum: 1, expires: 1m}, window: 3m}",
        "{class: write, failures: replay, on_hit: replay_success, window: 1m}",
        "{class: write, on_hit: fail, window: 1m, result_window: 10s}",
        "{on_in_doubt: [resend, probe, hold], lease: 1m, window: 2m, probe: {tool: p, applied: "
        "{when: [{field: /a, exists: true}]}, settle: 5s}, upstream: {url: 'http://x', "
        "idempotency: {header: K, window: 2m}}}",
        "{class: irreversible, key: {fields: [/a]}, on_in_doubt: [probe, hold], window: 2m, probe: "
        "{tool: p, applied: {when: [{field: /a, exists: true}]}, authoritative: on, settle: 1s}, "
        "approval: {quorum: 1}}",
        "{class: write, mode: observe, window: 1m, approval: {quorum: 1}}",
    };
    uint64_t total = 0, executions = 0;
    static walk w; /* large */
    uint64_t seen[SEMEL_S_COUNT] = {0};
    for (uint64_t seed = 1; total < 1200000; seed++) {
        story t;
        tell(&t, tools[seed % COUNT(tools)]);
        memset(&w, 0, sizeof w);
        w.random = seed * 7919;
        w.c = t.c;
        w.now = T0;
        for (int i = 0; i < 4000 && w.e.fence < ATTEMPTS - 2; i++, total++) {
            w.now += random_below(&w.random, 4) == 0 ? random_below(&w.random, 90000)
                                                     : random_below(&w.random, 500);
            sm_life_event ev = random_event(&w);
            sm_effect before = at_rest(&w, &ev);
            if ((ev.kind == SM_EV_COMMIT || ev.kind == SM_EV_RENEW) && ev.fence == w.e.fence)
                before = w.e.state == SEMEL_S_RUNNING ? w.e : before;
            sm_move s;
            sm_transition(&w.e, &ev, w.c, w.now, &s);
            learn(&w, &before, &ev, &s);
            check_step(&w, &before, &ev, &s);
            if (s.changed)
                w.e = s.next;
            seen[w.e.state]++;
        }
        executions += w.executions;
        sm_contracts_free(t.set);
    }
    for (int i = 0; i < SEMEL_S_COUNT; i++)
        expect(seen[i] > 1000, "the walk was in %s only %llu times",
               semel_state_name((semel_state)i), (unsigned long long)seen[i]);
    print_message("# %llu steps, %llu executions\n", (unsigned long long)total,
                  (unsigned long long)executions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state),
        cmocka_unit_test(a_lost_lease_is_doubt_and_never_a_second_execution),
        cmocka_unit_test(a_renewal_or_commit_comes_in_time_until_somebody_looks),
        cmocka_unit_test(a_late_success_settles_what_is_in_doubt),
        cmocka_unit_test(a_stale_fence_never_decides),
        cmocka_unit_test(a_stray_success_is_not_lost_whatever_becomes_of_the_running_attempt),
        cmocka_unit_test(a_stray_doubt_is_held_for_a_person),
        cmocka_unit_test(a_stray_doubt_outlives_the_doubt_that_it_finds),
        cmocka_unit_test(more_doubts_than_a_record_holds_are_held_for_a_person),
        cmocka_unit_test(doubt_is_sticky),
        cmocka_unit_test(the_chain_is_followed_to_its_end),
        cmocka_unit_test(a_resend_goes_on_while_nothing_but_a_person_comes_after_it),
        cmocka_unit_test(the_window_of_a_resend_begins_when_it_was_first_sent),
        cmocka_unit_test(an_absent_probe_is_not_the_last_word_on_an_irreversible_tool),
        cmocka_unit_test(an_approval_is_bound_used_once_and_expires),
        cmocka_unit_test(nobody_who_asked_can_approve),
        cmocka_unit_test(who_asked_cannot_approve_after_leaving_the_call),
        cmocka_unit_test(too_many_who_asked_leave_nobody_to_approve),
        cmocka_unit_test(windows_start_when_an_effect_is_settled),
        cmocka_unit_test(a_repeat_runs_only_if_it_is_meant),
        cmocka_unit_test(what_is_overwritten_is_another_action),
        cmocka_unit_test(failures_run_again_only_where_that_is_safe),
        cmocka_unit_test(a_success_after_not_applied_settles_before_it_runs_twice),
        cmocka_unit_test(observe_mode_executes_and_says_what_it_would_have_done),
        cmocka_unit_test(a_million_random_steps_keep_every_promise),
    };
    return cmocka_run_group_tests_name("transition", tests, NULL, NULL);
}
