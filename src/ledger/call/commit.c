/*
 * renew and commit: what an attempt says about itself.
 *
 * A claim's secret is checked before anything else. The newest attempt's hash is in the record;
 * those of older attempts are in their events, because a late commit is rare and may be all the
 * evidence there is.
 */
#include "ledger/call/commit.h"

#include <openssl/crypto.h>

#include "base/given.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "ledger/call/charge.h"
#include "ledger/guard/guard.h"
#include "ledger/work/ledger.h"

typedef struct search {
    sm_work *w;
    uint64_t fence;
    sm_hash expected;
    bool found;
} search;

static bool find_claim(void *context, const semel_event *ev)
{
    search *f = context;
    sm_arena_reset(&f->w->call);
    const sm_json *body = NULL;
    if (sm_json_read(&f->w->call, ev->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return true;
    const sm_json *fence = sm_json_find(body, SM_STR("fence"));
    const sm_json *claim = sm_json_find(body, SM_STR("claim"));
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)f->fence);
    if (fence == NULL || claim == NULL || !sm_str_is(sm_json_text(fence), number) ||
        claim->type != SM_JSON_STRING)
        return true;
    f->found = sm_hash_parse(sm_json_text(claim), &f->expected);
    return false;
}

/* Loads the effect that a claim names, and checks the claim: *good. Only the first try may start
 * from the remembered record. If that turned out to be old, the ledger is read; and the workspace
 * keeps the remembered record, with which the effect can be put back. */
static sm_err load_claim(semel *s, sm_work *w, const sm_handle *h, bool first, bool *good)
{
    *good = false;
    sm_err e = first && sm_recollect(s, w, h) ? SM_OK : sm_load_handle(s, w, h, true);
    if (e != SM_OK)
        return e == SEMEL_E_NOT_FOUND ? SM_OK : e;
    search f = {.w = w, .fence = h->fence};
    semel_ref of = {.id = h->id, .generation = h->generation, .sharded = true, .shard = h->shard};
    const sm_effect *effect = &w->memo.effect;
    if (h->generation == w->cur.generation && h->fence == effect->fence && effect->attempt > 0) {
        memcpy(f.expected.b, w->memo.claim, sizeof w->memo.claim);
        f.found = true;
    } else {
        for (uint64_t after = 0, before = 1; !f.found && after != before;) {
            before = after;
            e = s->ops->events(s->store, &of, &after, 100, find_claim, &f, &w->fault);
            if (e != SM_OK)
                return e;
        }
    }
    sm_hash given;
    e = sm_digest_bytes(&w->keyer.digest, h->secret, sizeof h->secret, &given);
    *good = e == SM_OK && f.found && CRYPTO_memcmp(given.b, f.expected.b, SM_CLAIM_HASH) == 0;
    return e;
}

static sm_err bad_claim(sm_work *w, semel_answer *a)
{
    return sm_answer_refuse(w, a, SEMEL_C_BAD_CLAIM, SM_OK);
}

/* ---- renew -----------------------------------------------------------------------------------*/

static sm_err renew(semel *s, const sm_handle *claim, int64_t lease_ms, sm_str actor,
                    semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    bool returned = false;
    for (int races = 0; races < SM_RACES_MAX; races++) {
        bool good;
        sm_err e = load_claim(s, w, claim, races == 0, &good);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        if (!good && !returned) {
            returned = true;
            if (sm_given_return(s, w, claim))
                continue;
        }
        if (!good)
            return bad_claim(w, a);
        sm_life_event ev = {.kind = SM_EV_RENEW,
                            .fence = claim->fence,
                            .lease_ms = lease_ms > 0 ? lease_ms : w->memo.terms.lease_ms};
        sm_judge(s, w, &ev);
        if (w->step.answer == SM_DONE && w->step.changed) {
            sm_body_start(w);
            sm_body_number(w, "fence", claim->fence);
            e = sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, actor)});
            if (e == SEMEL_E_STALE || e == SEMEL_E_NOT_FOUND)
                continue;
        }
        if (e == SM_OK)
            e = sm_answer_about(w, a);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        if (w->step.answer != SM_DONE)
            return sm_answer_refuse(w, a, w->step.code, SM_OK);
        sm_remember(s, w);
        a->verdict = SEMEL_DONE;
        a->lease_ms = w->memo.effect.lease_end - w->now;
        return SM_OK;
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

sm_err sm_renew(semel *s, const sm_handle *claim, int64_t lease_ms, semel_answer *a)
{
    return renew(s, claim, lease_ms, (sm_str){0}, a);
}

sm_err sm_renew_as(semel *s, sm_str claim, int64_t lease_ms, sm_str actor, semel_answer *a)
{
    sm_handle h;
    if (lease_ms < 0 || lease_ms > SM_LEASE_MAX_MS) {
        sm_work *w = sm_work_start(a);
        return sm_answer_error(
            w, a, sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "a lease is at most 7 days long"));
    }
    if (sm_handle_parse("cl_", claim, &h))
        return renew(s, &h, lease_ms, actor, a);
    return bad_claim(sm_work_start(a), a);
}

semel_err semel_renew(semel *s, semel_str claim, int64_t lease_ms, semel_answer *a)
{
    return sm_renew_as(s, claim, lease_ms, (sm_str){0}, a);
}

/* ---- withdraw --------------------------------------------------------------------------------*/

sm_err sm_unclaim(semel *s, const sm_handle *claim, sm_health health, sm_str actor, semel_answer *a,
                  sm_unclaimed *what)
{
    sm_work *w = sm_work_start(a);
    *what = SM_CLAIM_OVER;
    for (int races = 0; races < SM_RACES_MAX; races++) {
        bool good;
        sm_err e = load_claim(s, w, claim, races == 0, &good);
        if (e != SM_OK)
            return e;
        *what = good ? SM_CLAIM_OVER : SM_CLAIM_ABSENT;
        /* What began anew since has nothing to do with it. */
        if (!good || claim->generation != w->cur.generation)
            return SM_OK;
        sm_judge(s, w, &(sm_life_event){.kind = SM_EV_WITHDRAW, .fence = claim->fence});
        if (w->step.answer != SM_DONE)
            return SM_OK;
        sm_body_start(w);
        sm_body_number(w, "fence", claim->fence);
        e = sm_write(s, w,
                     &(sm_change){.actor = sm_ledger_actor(s, actor),
                                  .drop_args = w->step.next.state == SEMEL_S_NONE});
        if (e == SM_OK) {
            *what = SM_CLAIM_BACK;
            sm_recall_drop(&s->recall, claim->id, claim->generation, claim->fence);
            sm_guard_given_back(s, w, claim, health);
        }
        if (e != SEMEL_E_STALE && e != SEMEL_E_NOT_FOUND)
            return e;
    }
    return SEMEL_E_UNAVAILABLE;
}

/* ---- commit ----------------------------------------------------------------------------------*/

/* A tool that answered "I failed" has answered, and did nothing; nobody knows of one whose effect
 * cannot be taken back. */
semel_applied sm_applied_by(const sm_memo *m, const semel_outcome *o)
{
    if (o->kind != SEMEL_FAILURE)
        return SEMEL_APPLIED_YES;
    if (o->applied != SEMEL_APPLIED_DEFAULT)
        return o->applied;
    return m->terms.class == SM_CLASS_IRREVERSIBLE ? SEMEL_APPLIED_UNKNOWN : SEMEL_APPLIED_NO;
}

static bool equal_outcomes(const semel_outcome *a, const semel_outcome *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->status == b->status &&
           a->kept == b->kept && sm_str_eq(a->value, b->value);
}

/* The same commit again, because its answer was lost: it is as if the answer came now. */
static bool repeats(const sm_work *w, const sm_handle *h, const semel_outcome *o)
{
    semel_outcome kept;
    return semel_state_settled(w->memo.effect.state) && h->generation == w->cur.generation &&
           h->fence == w->memo.effect.fence && w->cur.outcome.p != NULL &&
           sm_outcome_unpack(w->cur.outcome, &kept) && equal_outcomes(&kept, o);
}

/* What the history says about a commit. Only the digest of what the record holds is called sha256:
 * verifying compares the two. The value itself only where no record will hold it. */
sm_err sm_ending_body(sm_work *w, const sm_ending *end, const semel_outcome *o, bool kept)
{
    const sm_handle *h = end->claim;
    sm_str value = end->value;
    static const char *const kinds[] = {"success", "failure", "partial"};
    static const char *const applied[] = {"default", "no", "yes", "unknown"};
    sm_body_start(w);
    sm_body_number(w, "fence", h->fence);
    if (h->generation != w->cur.generation)
        sm_body_number(w, "generation", h->generation);
    sm_body_text(w, "kind", sm_str_from(kinds[o->kind]));
    if (o->kind == SEMEL_FAILURE)
        sm_body_text(w, "applied", sm_str_from(applied[o->applied]));
    if (end->ignored != NULL)
        sm_body_text(w, "ignored", sm_str_from(end->ignored));
    sm_hash digest;
    sm_err e = sm_digest_bytes(&w->keyer.digest, value.n == 0 ? "" : value.p, value.n, &digest);
    sm_body_number(w, "bytes", value.n);
    sm_body_hash(w, kept ? "sha256" : "evidence_sha256", &digest);
    sm_str start = sm_utf8_cut(value, SM_EVIDENCE_MAX);
    if (!kept && value.n > 0 && sm_utf8_valid(start))
        sm_body_text(w, "value", start);
    return e;
}

/* Whether the record holds this outcome afterwards: it settles the effect, or is the success of an
 * older attempt that is kept until the running one has ended. If such a success was kept and the
 * running attempt did nothing, that success stays the outcome. */
bool sm_takes_outcome(const sm_work *w, const semel_outcome *o)
{
    const sm_effect *before = &w->memo.effect, *after = &w->step.next;
    if (w->step.answer == SM_DONE && semel_state_settled(after->state))
        return before->late == 0 || o->kind != SEMEL_FAILURE;
    return after->state == SEMEL_S_RUNNING && after->late != 0 && before->late == 0;
}

static sm_err commit(semel *s, sm_work *w, const sm_ending *end, const char **result)
{
    const sm_handle *h = end->claim;
    semel_outcome o = end->outcome;
    o.applied = sm_applied_by(&w->memo, &o);
    if (repeats(w, h, &o)) {
        *result = "committed";
        w->step = (sm_move){.answer = SM_DONE};
        return SM_OK;
    }
    sm_life_event ev = {
        .kind = SM_EV_COMMIT, .fence = h->fence, .outcome = o.kind, .applied = o.applied};
    bool was_running = w->memo.effect.state == SEMEL_S_RUNNING && h->fence == w->memo.effect.fence;
    sm_judge(s, w, &ev);
    *result = w->step.answer == SM_EVIDENCE ? "late_evidence"
              : was_running                 ? "committed"
                                            : "late_settled";
    if (w->step.answer == SM_REFUSED || !w->step.changed)
        return SM_OK;
    bool keeps = sm_takes_outcome(w, &o);
    sm_err e = sm_ending_body(w, end, &o, keeps);
    if (e != SM_OK)
        return e;
    sm_charge spent;
    bool told = sm_charge_told(&o, &w->memo.charged, &spent);
    return sm_write(s, w,
                    &(sm_change){.actor = sm_ledger_actor(s, end->actor),
                                 .outcome = keeps ? &o : NULL,
                                 .evidence = end->evidence,
                                 .spent = told ? &spent : NULL});
}

sm_err sm_outcome_read(semel_outcome *out, const semel_outcome *given, semel_fault *fault)
{
    sm_err e = sm_given_read(out, sizeof *out, given, SM_FIRST_SIZE(semel_outcome, spare),
                             "the outcome", fault);
    return e == SM_OK ? sm_given_spare(out->spare, sizeof out->spare, "the outcome", fault) : e;
}

/* What a program got wrong: nothing is recorded, and it may commit again with the same claim. */
static sm_err check_outcome(sm_work *w, const semel_outcome *o)
{
    const sm_json *headers = NULL;
    const char *wrong = NULL;
    int64_t cost;
    if ((unsigned)o->kind > SEMEL_PARTIAL)
        wrong = "kind is not a valid semel_kind";
    else if ((unsigned)o->applied > SEMEL_APPLIED_UNKNOWN)
        wrong = "applied is not a valid semel_applied";
    else if (o->status < 0)
        wrong = "status is negative";
    else if (o->headers.p != NULL && (sm_json_read(&w->call, o->headers, &sm_json_default_limits,
                                                   &headers, NULL) != SM_OK ||
                                      headers->type != SM_JSON_OBJECT))
        wrong = "headers is not a JSON object";
    else if (!sm_cost_read(o->cost, &cost))
        wrong = "cost is not an amount such as 0.05";
    else if (o->tokens > INT64_MAX && o->tokens != SEMEL_TOKENS_NONE)
        wrong = "tokens is too large";
    else if (o->corrective_action.n > SM_REASON_MAX || !sm_utf8_valid(o->corrective_action))
        wrong = "corrective_action is not a text of at most 4096 bytes";
    return wrong == NULL ? SM_OK
                         : sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the outcome: %s", wrong);
}

/* A tool that ran has run, whatever it says of its cost: what cannot be read is left out, and the
 * history says so. */
static void drop_unreadable(sm_ending *end)
{
    semel_outcome *o = &end->outcome;
    int64_t cost;
    bool no_cost = !sm_cost_read(o->cost, &cost);
    bool no_tokens = o->tokens > INT64_MAX && o->tokens != SEMEL_TOKENS_NONE;
    if (no_cost)
        o->cost = (sm_str){0};
    if (no_tokens)
        o->tokens = 0;
    end->ignored = no_cost && no_tokens ? "cost, tokens"
                   : no_cost            ? "cost"
                   : no_tokens          ? "tokens"
                                        : NULL;
}

static bool has_claim(sm_work *w, const sm_handle *h)
{
    sm_hash given;
    return w->cur.generation == h->generation && w->memo.effect.fence == h->fence &&
           sm_digest_bytes(&w->keyer.digest, h->secret, sizeof h->secret, &given) == SM_OK &&
           CRYPTO_memcmp(given.b, w->memo.claim, SM_CLAIM_HASH) == 0;
}

/* The store has lost something and refuses everything but evidence. For evidence it also says which
 * record is there. */
static sm_err end_blindly(semel *s, sm_work *w, const sm_ending *given, const sm_recalled *seen)
{
    sm_ending end = *given;
    const char *result;
    end.evidence = true;
    w->cur.version = 0;
    w->now = sm_now(s);
    sm_err e = SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = w->cur.version != 0 && has_claim(w, end.claim) ? commit(s, w, &end, &result)
                                                           : sm_put_back(s, w, seen, &end);
    return e;
}

/* One try: under the attempt's own claim, or if the ledger has lost its record, by putting it back.
 * `seen` is the record as the attempt's owner knows it. Without that, the remembered one serves,
 * once the claim was checked against it: that is in the first try, or there is no second one. */
static sm_err end_once(semel *s, sm_work *w, const sm_ending *end, const sm_recalled *seen,
                       bool first, const char **result, bool *known)
{
    sm_err e = load_claim(s, w, end->claim, first, known);
    if (e == SM_OK && *known)
        e = commit(s, w, end, result);
    if (seen == NULL)
        seen = *known || !first ? w->recalled : NULL;
    if (e == SEMEL_E_UNAVAILABLE && seen != NULL && w->fault.code == SEMEL_E_CORRUPT) {
        *known = true;
        *result = SM_PUT_BACK;
        return end_blindly(s, w, end, seen);
    }
    bool lost = !*known || (w->step.answer == SM_REFUSED && w->step.code == SEMEL_C_BAD_CLAIM);
    if (e != SM_OK || seen == NULL || !lost)
        return e;
    *known = true;
    *result = SM_PUT_BACK;
    return sm_put_back(s, w, seen, end);
}

sm_err sm_end_attempt(semel *s, const sm_handle *claim, const semel_outcome *outcome, size_t most,
                      sm_str actor, bool own, sm_health health, const sm_recalled *seen,
                      semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    sm_ending end = {.claim = claim, .actor = actor};
    sm_err wrong = sm_outcome_read(&end.outcome, outcome, &w->fault);
    if (wrong == SM_OK && own)
        drop_unreadable(&end);
    if (wrong == SM_OK)
        wrong = check_outcome(w, &end.outcome);
    if (wrong != SM_OK)
        return sm_answer_error(w, a, wrong);
    end.value = end.outcome.value;
    if (health == SM_HEALTH_BY_OUTCOME)
        health = sm_health_of(&end.outcome);
    sm_outcome_settle(&w->call, &end.outcome, most);
    for (int races = 0; races < SM_RACES_MAX; races++) {
        bool known;
        const char *result = NULL;
        sm_err e = end_once(s, w, &end, seen, races == 0, &result, &known);
        if (e == SM_OK && !known)
            return bad_claim(w, a);
        if (e == SEMEL_E_STALE || e == SEMEL_E_NOT_FOUND) /* nothing was decided: look again */
            continue;
        if (e == SM_OK)
            e = sm_answer_about(w, a);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        if (w->step.answer == SM_REFUSED)
            return sm_answer_refuse(w, a, w->step.code, SM_OK);
        sm_recall_drop(&s->recall, claim->id, claim->generation, claim->fence);
        sm_count(&s->commits);
        a->verdict = SEMEL_DONE;
        a->result = sm_str_from(result);
        if (w->step.answer == SM_DONE && w->step.changed)
            sm_guard_ended(s, w, claim, health, a);
        return SM_OK;
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

sm_err sm_commit_as(semel *s, sm_str claim, const semel_outcome *outcome, size_t most, sm_str actor,
                    semel_answer *a)
{
    sm_handle h;
    if (!sm_handle_parse("cl_", claim, &h))
        return bad_claim(sm_work_start(a), a);
    return sm_end_attempt(s, &h, outcome, most, actor, false, SM_HEALTH_BY_OUTCOME, NULL, a);
}

semel_err semel_commit(semel *s, semel_str claim, const semel_outcome *outcome, semel_answer *a)
{
    return sm_commit_as(s, claim, outcome, SM_OUTCOME_MAX, (sm_str){0}, a);
}
