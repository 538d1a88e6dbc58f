/*
 * POST /v1/scopes/{scope}/undo: undoing what a run did; and the result "compensate" of POST
 * /v1/effects/{id}/resolve.
 *
 * Each undo is a run like that of a call (run/run.h), one after the other, the newest effect first.
 * A client that leaves, or whose time is up, loses its answer: the undo that is under way ends and
 * is recorded, and asking again goes on from there. All that is to be remembered is in the ledger.
 */
#include <stddef.h>
#include <stdio.h>

#include "api/problem.h"
#include "api/undo.h"
#include "base/clock.h"
#include "gateway/api/api.h"
#include "gateway/run/run.h"
#include "json/write.h"
#include "ledger/service.h"

#define WAIT_MS 30000
#define PAGE    GW_UNDO_PAGE

/* Why a series of undos goes no further. */
typedef struct stopped {
    sm_str effect, undo;
    const char *code; /* NULL: it has come to the end */
    sm_str message;
} stopped;

static const char *code_name(semel_code code)
{
    return code == SEMEL_C_NONE ? "FAILED" : semel_code_name(code);
}

/* Replies with what was done, where it has stopped, and with as many of the items as there may be:
 * whatever becomes of these, what was done is told. */
static void reply_ran(gw_request *r, semel_answer *a, const gw_undo *undo, const stopped *why)
{
    sm_buf out;
    sm_fault fault = {0};
    gw_http_operation o;
    sm_undo_part p = {.limit = SM_UNDO_ITEMS};
    gw_operation(&o, r, NULL);
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_buf_byte(&out, '{');
    sm_put_text(&out, "scope", undo->scope);
    sm_put_number(&out, "undone", undo->undone);
    if (why->code != NULL) {
        sm_put_open(&out, "stopped", '{');
        sm_put_utf8(&out, "effect", why->effect);
        sm_put_utf8(&out, "undo", why->undo);
        sm_put_utf8(&out, "code", sm_str_from(why->code));
        sm_put_utf8(&out, "message", why->message);
        sm_buf_byte(&out, '}');
    }
    sm_put_open(&out, "items", '[');
    size_t start = out.len;
    bool told = out.err == SM_OK;
    sm_err e = sm_undo_part_put(&o.op, a, undo->scope, &p, &out, &fault);
    if (told && e != SM_OK) {
        out.len = start;
        out.err = SM_OK;
        p.todo = 0;
    }
    sm_undo_part_end(&p, e == SM_OK && p.cursor == 0, &out);
    sm_buf_byte(&out, '}');
    if (out.err == SM_OK)
        gw_reply_json(r, 200, sm_buf_view(&out));
    else
        gw_reply_fault(r, a, out.err, &fault);
    sm_buf_fini(&out);
}

/* ---- one run after the other -----------------------------------------------------------------*/

/* A run that undoes; NULL if there is no memory, and the request has its answer. */
static gw_run *make_run(gw_request *r, const sm_undo *u, const gw_undo *undo, const gw_run_ops *ops)
{
    gw_run *run = gw_run_new(r->g, r);
    bool made = run != NULL && gw_run_call(run, &u->call);
    if (made) {
        run->undo = *undo;
        run->at.ask.actor = sm_arena_text(&run->arena, sm_str_from(r->who.actor));
        if (undo->page != NULL)
            run->undo.page = sm_arena_alloc(&run->arena, PAGE * sizeof *undo->page);
        if (run->undo.page != NULL)
            memcpy(run->undo.page, undo->page, undo->n * sizeof *undo->page);
        made =
            run->at.ask.actor.p != NULL && (undo->page == NULL || run->undo.page != NULL) &&
            sm_arena_keep(&run->arena, (sm_str *const[]){&run->undo.scope, &run->undo.evidence}, 2);
    }
    if (!made) {
        if (run != NULL)
            gw_run_free(run);
        gw_out_of_memory(r);
        return NULL;
    }
    run->ops = ops;
    run->at.ask.upstream = run->at.ask.undoes = run->at.ask.large = true;
    run->deadline_ns = undo->deadline_ns;
    return run;
}

static void go_on(gw_request *r, semel_answer *a, gw_undo *undo);

/* The ledger does not answer: `a` is its refusal. What was undone is told. */
static void cannot_tell(gw_request *r, const gw_undo *undo, semel_answer *a)
{
    semel_answer *b = undo->undone > 0 ? semel_answer_new() : NULL;
    if (b == NULL)
        gw_reply_refusal(r, a);
    else
        reply_ran(r, b, undo, &(stopped){.code = code_name(a->code), .message = a->message});
    semel_answer_free(b);
}

/* One undo has ended: the next, or the answer. */
static void undone_one(gw_run *run, gw_request *r, const semel_answer *a)
{
    semel_answer *b = semel_answer_new();
    if (b == NULL) {
        gw_out_of_memory(r);
        return;
    }
    sm_undo u;
    gw_undo undo = run->undo;
    sm_err e = sm_undo_of(r->g->ledger, &undo.effect, b, &u);
    if (e != SM_OK) {
        cannot_tell(r, &undo, b);
    } else if (u.undo_state == SEMEL_S_SUCCEEDED) {
        undo.undone++;
        go_on(r, b, &undo);
    } else {
        semel_answer *c = semel_answer_new();
        if (c == NULL)
            gw_out_of_memory(r);
        else
            reply_ran(r, c, &undo,
                      &(stopped){u.effect, u.undo, code_name(sm_undo_code(a, &u)), a->message});
        semel_answer_free(c);
    }
    semel_answer_free(b);
}

static const gw_run_ops undo_ops = {.prepare = gw_call_prepare, .answer = undone_one};

static const stopped out_of_time = {.code = "RETRY_IN_FLIGHT",
                                    .message = {"The time is up. Ask again to go on.", 35}};

static bool is_over(const gw_request *r, const gw_undo *undo)
{
    return sm_clock_mono_ns() >= undo->deadline_ns || gw_is_gone(r);
}

/* The next effect. False at the end, or with an error. */
static bool next_effect(gw_request *r, gw_undo *undo, sm_err *e, sm_fault *fault)
{
    *e = SM_OK;
    while (undo->at == undo->n) {
        if (undo->last)
            return false;
        undo->at = undo->n = 0;
        *e = sm_scope_effects(r->g->ledger, undo->scope, &undo->cursor, undo->page, PAGE, &undo->n,
                              fault);
        undo->last = undo->cursor == 0;
        if (*e != SM_OK || (undo->n == 0 && is_over(r, undo)))
            return false;
    }
    undo->effect = undo->page[undo->at++];
    return true;
}

/* Starts the next undo, or replies. */
static void go_on(gw_request *r, semel_answer *a, gw_undo *undo)
{
    semel *s = r->g->ledger;
    char name[SM_HANDLE_TEXT];
    sm_fault fault = {0};
    stopped why = {0};
    sm_undo u;
    sm_err e;
    while (why.code == NULL && next_effect(r, undo, &e, &fault)) {
        if (is_over(r, undo)) {
            why = out_of_time;
            why.effect = (sm_str){name, sm_handle_effect(&undo->effect, name)};
            break;
        }
        e = sm_undo_of(s, &undo->effect, a, &u);
        if (e == SEMEL_E_NOT_FOUND)
            continue; /* it was purged meanwhile */
        if (e != SM_OK) {
            cannot_tell(r, undo, a);
            return;
        }
        if (u.status == SM_UNDO_TODO && u.upstream) {
            gw_run *run = make_run(r, &u, undo, &undo_ops);
            if (run != NULL)
                gw_run_start(run);
            return;
        }
        bool doubt = u.status == SM_UNDO_DOUBT;
        if (doubt || u.status == SM_UNDO_OPEN)
            why = (stopped){u.effect, u.undo,
                            semel_code_name(doubt ? SEMEL_C_IN_DOUBT : SEMEL_C_RETRY_IN_FLIGHT),
                            u.why};
    }
    if (e != SM_OK && e != SEMEL_E_NOT_FOUND) {
        sm_refuse_fault(a, e, &fault);
        cannot_tell(r, undo, a);
        return;
    }
    if (why.code == NULL && !undo->last)
        why = out_of_time;
    semel_answer *b = semel_answer_new();
    if (b == NULL)
        gw_out_of_memory(r);
    else
        reply_ran(r, b, undo, &why);
    semel_answer_free(b);
}

static void undo(gw_request *r, semel_answer *a)
{
    int64_t wait_ms = WAIT_MS, most = r->g->config->limits.wait_ms;
    const sm_object_member members[] = {{.name = "wait_ms", .kind = SM_M_COUNT, .max = most}};
    gw_http_operation o;
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    gw_operation(&o, r, &arena);
    if ((r->body.len == 0 || sm_op_body(&o.op, members, 1, &wait_ms)) &&
        sm_op_may_use(&o.op, r->rest)) {
        sm_handle page[PAGE];
        gw_undo undo = {.scope = r->rest,
                        .page = page,
                        .deadline_ns = sm_clock_deadline_ns(wait_ms < most ? wait_ms : most)};
        go_on(r, a, &undo);
    }
    sm_arena_fini(&arena);
}

void gw_on_undo(gw_request *r)
{
    gw_work(r, undo);
}

/* ---- resolve by undoing ----------------------------------------------------------------------*/

/* The undo has succeeded: the effect is abandoned. */
static void settle(gw_request *r, const sm_handle *effect, sm_str undo, sm_str evidence,
                   uint64_t if_version, semel_answer *a)
{
    sm_undo_resolve(r->g->ledger, effect, undo, evidence, sm_str_from(r->who.actor), if_version, a);
    sm_waits_ring(r->g->waits, effect->id);
    gw_reply_answer(r, a);
}

static void undone_doubt(gw_run *run, gw_request *r, const semel_answer *a)
{
    semel_answer *b = semel_answer_new(), *c = semel_answer_new();
    const gw_undo *undo = &run->undo;
    sm_undo u;
    if (b == NULL || c == NULL)
        gw_out_of_memory(r);
    else if (sm_undo_of(r->g->ledger, &undo->effect, b, &u) != SM_OK)
        gw_reply_refusal(r, b);
    else if (u.undo_state == SEMEL_S_SUCCEEDED)
        settle(r, &undo->effect, u.undo, undo->evidence, undo->if_version, c);
    else {
        semel_code code = sm_undo_code(a, &u);
        code = code == SEMEL_C_NONE ? SEMEL_C_IN_DOUBT : code;
        sm_refuse(c, code);
        c->effect = u.effect;
        c->state = u.state;
        c->blocked_by = u.undo;
        c->message = sm_arena_printf(
            sm_answer_arena(c), "The effect stays in doubt: its undo %.*s%s%s. %.*s", (int)u.undo.n,
            u.undo.n > 0 ? u.undo.p : "", u.undo.n > 0 ? " is " : "",
            u.undo.n > 0 ? semel_state_name(u.undo_state) : "has not begun", (int)a->message.n,
            a->message.n > 0 ? a->message.p : "");
        c->corrective_action =
            SM_STR("Look at the undo, put right what is wrong, then resolve it again.");
        gw_reply_refusal(r, c);
    }
    semel_answer_free(b);
    semel_answer_free(c);
}

static const gw_run_ops doubt_ops = {.prepare = gw_call_prepare, .answer = undone_doubt};

/* Why an effect cannot be resolved so; NULL: it can. */
static const char *obstacle(const sm_undo *u, char text[SEMEL_FAULT_TEXT_MAX + 100])
{
    size_t room = SEMEL_FAULT_TEXT_MAX + 100;
    if (u->status != SM_UNDO_DOUBT)
        snprintf(text, room, "The effect is %s, and not in doubt.", semel_state_name(u->state));
    else if (u->call.tool.p == NULL)
        snprintf(text, room, "It stays in doubt, and cannot be undone: %.*s.", SM_FMT(u->why));
    else if (!u->upstream)
        snprintf(
            text, room,
            "It stays in doubt: the contract of %.*s has no upstream, so the gateway cannot "
            "execute it. Where the ledger is, semel scope undo shows how to do it by hand (semel "
            "begin --undoes --key %.*s). Then resolve again.",
            SM_FMT(u->call.tool), SM_FMT(u->call.key));
    else
        return NULL;
    return text;
}

void gw_undo_resolve(sm_operation *op, semel_answer *a, const sm_handle *effect, sm_str evidence,
                     uint64_t if_version)
{
    gw_request *r = gw_request_of(op);
    char name[SM_HANDLE_TEXT], text[SEMEL_FAULT_TEXT_MAX + 100];
    semel_name of = {.size = sizeof of, .text = {name, sm_handle_effect(effect, name)}};
    sm_undo u;
    if (evidence.n > SM_UNDO_EVIDENCE_MAX) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "Say it in fewer words.",
                   "\"evidence\" is longer than %u bytes", SM_UNDO_EVIDENCE_MAX);
        return;
    }
    sm_err e = semel_get(r->g->ledger, &of, a);
    if (e == SM_OK && sm_decision_stale(a, if_version)) {
        gw_reply_refusal(r, a);
        return;
    }
    if (e == SM_OK)
        e = sm_undo_of(r->g->ledger, effect, a, &u);
    if (e != SM_OK) {
        gw_reply_refusal(r, a);
        return;
    }
    bool done = u.status == SM_UNDO_DOUBT && u.undo_state == SEMEL_S_SUCCEEDED;
    if (!done && obstacle(&u, text) != NULL) {
        gw_problem(r, sm_problem_status(SEMEL_C_ILLEGAL_STATE), "ILLEGAL_STATE",
                   "Find out what happened, then resolve it otherwise.", "%s", text);
        return;
    }
    semel_answer *held = semel_answer_new();
    e = held == NULL ? SEMEL_E_NOMEM : sm_doubt_hold(r->g->ledger, effect, if_version, held);
    if (e != SM_OK || held->verdict != SEMEL_DONE) {
        if (held == NULL)
            gw_reply_fault(r, a, e, &(sm_fault){.text = "out of memory"});
        else
            gw_reply_refusal(r, held);
        semel_answer_free(held);
        return;
    }
    if (if_version != 0)
        if_version = held->version;
    semel_answer_free(held);
    if (done) {
        char undo[SM_HANDLE_TEXT];
        snprintf(undo, sizeof undo, "%.*s", SM_FMT(u.undo));
        settle(r, effect, sm_str_from(undo), evidence, if_version, a);
        return;
    }
    gw_undo undo = {.effect = *effect,
                    .evidence = evidence,
                    .if_version = if_version,
                    .deadline_ns = sm_clock_deadline_ns(r->g->config->limits.wait_ms < WAIT_MS
                                                            ? r->g->config->limits.wait_ms
                                                            : WAIT_MS)};
    gw_run *run = make_run(r, &u, &undo, &doubt_ops);
    if (run != NULL)
        gw_run_start(run);
}
