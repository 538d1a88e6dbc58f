/*
 * The way of a call: call.h draws it.
 *
 * What a result says decides what is recorded of it. A tool that answered has answered, whatever it
 * said; what was turned down before any work (unknown tool, wrong parameters) did nothing; a server
 * that was lost after the first byte of the call had left leaves a doubt, and nothing here ever
 * sends it again.
 */
#include "mcp/call.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "json/canon.h"

#define WAIT_MS     45000 /* SDK clients give up after 60 s */
#define ARENA_BYTES ((size_t)160 << 20)

/* ---- life ------------------------------------------------------------------------------------*/

static void take(mcp_post *post);
static void on_recorded(mcp_call *call);
static void work(sm_job *job, semel_answer *a);
static void wake(sm_waiter *w);
static void on_late(mcp_timer *t);

static mcp_call *call_new(mcp_session *s, const mcp_message *m)
{
    mcp_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    sm_buf_init(&call->text, 2 * MCP_LINE_MAX);
    sm_buf_init(&call->answer, 2 * MCP_LINE_MAX);
    sm_buf_init(&call->question, MCP_OWN_ID_MAX);
    sm_arena_init(&call->arena, ARENA_BYTES);
    sm_arena_init(&call->said, ARENA_BYTES);
    sm_buf_str(&call->text, m->text);
    call->session = s;
    call->server = s->server;
    call->job.run = work;
    call->post.take = take;
    call->waiter.wake = wake;
    call->timer.due = on_late;
    call->next = s->server->calls;
    if (call->next != NULL)
        call->next->prev = call;
    s->server->calls = call;
    s->server->hub->calls++;
    s->writes++;
    s->asking++;
    call->undecided = true;
    return call;
}

void mcp_call_decided(mcp_call *call)
{
    mcp_session *s = call->session;
    mcp_slot *slot = call->slot;
    s->asking -= call->undecided;
    call->undecided = false;
    call->slot = NULL;
    if (slot != NULL)
        mcp_slot_decide(s, slot, (sm_str){0});
    mcp_session_regulate(s);
}

void mcp_call_end(mcp_call *call)
{
    mcp_session *s = call->session;
    mcp_hub *hub = s->server->hub;
    mcp_call_decided(call);
    mcp_loop_untime(hub->loop, &call->timer);
    *(call->prev != NULL ? &call->prev->next : &s->server->calls) = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    mcp_exchange_free(call->x);
    mcp_listing_drop(call->listing);
    sm_contracts_free(call->ask.contracts);
    sm_arena_fini(&call->said);
    sm_arena_fini(&call->arena);
    sm_buf_fini(&call->question);
    sm_buf_fini(&call->answer);
    sm_buf_fini(&call->text);
    free(call);
    hub->calls--;
    s->writes--;
    mcp_session_rest(s);
}

void mcp_call_work(mcp_call *call, mcp_stage stage)
{
    call->stage = stage;
    call->server->hub->elsewhere++;
    sm_pool_add(call->server->hub->pool, &call->job);
}

/* ---- answering -------------------------------------------------------------------------------*/

/* The answer is about an effect: a repeat may come after it. */
static void about_effect(mcp_call *call)
{
    mcp_exchange *x = call->x;
    sm_str handle = call->a.effect;
    if (handle.p == NULL || handle.n >= sizeof x->handle)
        return;
    memcpy(x->handle, handle.p, handle.n);
    x->handle[handle.n] = '\0';
    x->effect = call->ask.id;
}

static void answer_result(mcp_call *call, sm_buf *result)
{
    mcp_exchange *x = call->x;
    call->x = NULL;
    if (result->err == SM_OK)
        mcp_reply_result(x, sm_buf_view(result));
    else
        mcp_reply_error(x, -32603, "The proxy is out of memory.");
    sm_buf_fini(result);
    mcp_call_end(call);
}

void mcp_call_refuse(mcp_call *call)
{
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    about_effect(call);
    if (call->a.code == SEMEL_C_AWAITING_APPROVAL && call->a.request.p != NULL)
        call->a.corrective_action = sm_arena_printf(
            &call->said,
            "Ask a person to approve it with: semel approve %.*s . Then make the same call again; "
            "do not try another way.",
            SM_FMT(call->a.request));
    else if (call->a.code == SEMEL_C_IN_DOUBT && call->a.effect.p != NULL)
        call->a.corrective_action = sm_arena_printf(
            &call->said,
            "Do not try it another way. A person has to find out and say so with: semel resolve "
            "%.*s (--applied or --not-applied).",
            SM_FMT(call->a.blocked_by.p != NULL ? call->a.blocked_by : call->a.effect));
    mcp_put_refusal(&out, &call->a, call->x->modern);
    answer_result(call, &out);
}

void mcp_call_refuse_with(mcp_call *call, semel_code code, const char *advice, const char *format,
                          ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    call->a = (semel_answer){.verdict = SEMEL_REFUSED,
                             .code = code,
                             .retriable = semel_code_retriable(code),
                             .message = sm_arena_text(&call->said, sm_str_from(text)),
                             .corrective_action = sm_str_from(advice)};
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    mcp_put_refusal(&out, &call->a, call->x->modern);
    answer_result(call, &out);
}

void mcp_call_replay(mcp_call *call)
{
    sm_buf out;
    sm_str error = {0}, task;
    const semel_outcome *o = &call->a.outcome;
    if (!call->tasked && !call->x->modern && o->kept && mcp_is_object(o->value) &&
        mcp_find(o->value, "task", &task) && mcp_is_object(task)) {
        sm_str id = {0};
        mcp_find(task, "taskId", &id);
        mcp_call_refuse_with(call, SEMEL_C_ALREADY_DONE,
                             "Ask for the task's result; it must not be started again.",
                             "This call was started as the task %.*s.", SM_FMT(id));
        return;
    }
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    about_effect(call);
    if (mcp_put_replay(&out, call, &error)) {
        answer_result(call, &out);
        return;
    }
    mcp_exchange *x = call->x;
    call->x = NULL;
    sm_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":", SM_FMT(x->id));
    sm_buf_str(&out, error);
    sm_buf_byte(&out, '}');
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
    mcp_call_end(call);
}

/* The server's own answer, as it came. */
static void answer_as_it_came(mcp_call *call)
{
    mcp_exchange *x = call->x;
    mcp_message m;
    mcp_read(sm_buf_view(&call->answer), &m);
    if (!call->unrecorded && call->a.effect.p != NULL)
        about_effect(call);
    call->x = NULL;
    mcp_pass_answer(x, &m);
    mcp_call_end(call);
}

/* ---- what is asked ---------------------------------------------------------------------------*/

static sm_str meta_text(mcp_call *call, const char *name, size_t most)
{
    sm_str value;
    char *text = sm_arena_alloc(&call->arena, most + 1);
    if (text == NULL || call->meta.p == NULL || !mcp_find(call->meta, name, &value) ||
        !mcp_text(value, text, most + 1))
        return (sm_str){0};
    return sm_str_from(text);
}

/* SCOPE/NAME; the first that there is of: what the server was given, what the client sends, what
 * the client is bound to, nothing. A client cannot leave what it is bound to. */
static bool make_scope(mcp_call *call, const char **wrong)
{
    mcp_session *s = call->session;
    sm_str given = meta_text(call, "semel/scope", SM_SCOPE_MAX);
    sm_str base = s->server->scope != NULL ? sm_str_from(s->server->scope)
                  : given.p != NULL        ? given
                                           : s->scope;
    *wrong = "The scope of the call is outside of what the client may use.";
    if (s->scope.p != NULL && s->scope.n > 0 && base.p != s->scope.p &&
        !(base.n >= s->scope.n && memcmp(base.p, s->scope.p, s->scope.n) == 0 &&
          (base.n == s->scope.n || base.p[s->scope.n] == '/')))
        return false;
    call->ask.call.scope =
        base.p == NULL || base.n == 0
            ? sm_str_from(s->server->name)
            : sm_arena_printf(&call->arena, "%.*s/%s", SM_FMT(base), s->server->name);
    *wrong = "The proxy is out of memory.";
    return call->ask.call.scope.p != NULL;
}

/* The step that a call is of: what the client says; and a leg that answers the server's questions
 * is another one than the leg before it. */
static bool make_step(mcp_call *call)
{
    sm_str step = meta_text(call, "semel/step", SM_STEP_MAX - SM_HASH_TEXT - 8);
    if (!call->legged) {
        call->ask.call.step = step;
        return true;
    }
    sm_digest digest = {0};
    sm_hash hash;
    sm_str part;
    static const char *const names[] = {"inputResponses", "requestState"};
    sm_err e = sm_digest_init(&digest);
    if (e == SM_OK)
        e = sm_digest_start(&digest);
    for (size_t i = 0; e == SM_OK && i < 2; i++) {
        if (!mcp_find(call->params, names[i], &part))
            part = SM_STR("");
        uint64_t n = part.n;
        e = sm_digest_add(&digest, &n, sizeof n);
        if (e == SM_OK)
            e = sm_digest_add(&digest, part.p, part.n);
    }
    if (e == SM_OK)
        e = sm_digest_finish(&digest, &hash);
    sm_digest_fini(&digest);
    char text[SM_HASH_TEXT + 1];
    if (e != SM_OK)
        return false;
    sm_hash_text(&hash, text);
    call->ask.call.step =
        sm_arena_printf(&call->arena, "%.*s%sleg-%s", SM_FMT(step), step.n > 0 ? "/" : "", text);
    return call->ask.call.step.p != NULL;
}

/* The arguments that carry the downstream's key are ours to fill: what a model made up there names
 * nothing. */
static sm_err drop_keys(mcp_call *call, const sm_contract *c, sm_places *places, unsigned *n,
                        sm_fault *fault)
{
    sm_err e = SM_OK;
    for (uint32_t i = 0; e == SM_OK && i <= c->variant_count; i++) {
        sm_str name = (i == 0 ? c : &c->variants[i - 1].contract)->idempotency.argument;
        sm_pointer pointer;
        if (name.p == NULL || name.n == 0)
            continue;
        sm_buf text;
        sm_buf_init(&text, 4096);
        if (name.p[0] == '/')
            sm_buf_str(&text, name);
        else
            sm_pointer_put_token(&text, name);
        sm_str copy = sm_arena_text(&call->arena, sm_buf_view(&text));
        e = copy.p == NULL ? SEMEL_E_NOMEM : sm_pointer_parse(&call->arena, copy, &pointer, fault);
        if (e == SM_OK)
            e = sm_places_add(places, &call->arena, &pointer, NULL);
        (*n)++;
        sm_buf_fini(&text);
    }
    return e;
}

/* The arguments that the ledger is asked with: filled by the tool's schema. */
static sm_err make_args(mcp_call *call, semel_answer *a, sm_fault *fault)
{
    const mcp_tool *tool =
        call->listing == NULL ? NULL : mcp_tools_find(call->listing->tools, call->tool);
    sm_str args;
    sm_err e = mcp_tool_fill(tool, &call->arena, call->args, &sm_json_args_limits, &args, fault);
    if (e != SM_OK)
        return e;
    call->ask.call.args = args;
    const sm_contract *c =
        sm_contracts_find(sm_contracts_now(call->server->hub->ledger, a), call->tool);
    sm_places *places = sm_places_new(&call->arena);
    unsigned n = 0;
    e = c == NULL ? SM_OK : places == NULL ? SEMEL_E_NOMEM : drop_keys(call, c, places, &n, fault);
    if (e != SM_OK || n == 0)
        return e;
    const sm_json *root = NULL, *less = NULL;
    e = sm_json_read(&call->arena, args, &sm_json_args_limits, &root, fault);
    if (e == SM_OK)
        e = sm_json_drop(&call->arena, root, places, &less);
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (e == SM_OK)
        e = sm_json_canon(less, &text, (sm_str){0}, fault);
    if (e == SM_OK)
        call->ask.call.args = sm_arena_text(&call->arena, sm_buf_view(&text));
    sm_buf_fini(&text);
    return e == SM_OK && call->ask.call.args.p == NULL ? SEMEL_E_NOMEM : e;
}

/* On a worker, from inside of the ledger: the call has its contract. */
static sm_err prepare(sm_asking *q, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    (void)args;
    (void)fault;
    mcp_call *call = (mcp_call *)(void *)((char *)q - offsetof(mcp_call, ask));
    char handle[SM_HANDLE_TEXT];
    call->contract = c;
    call->waiter.heard = sm_waits_heard(call->server->hub->waits, q->id);
    if (call->session->o.forgets)
        return SM_OK;
    call->repeat_pending = mcp_told_of(call->session, q->id, 0, handle);
    if (!call->waited && c->on_repeat == SM_REPEAT_RUN &&
        mcp_told_of(call->session, q->id, c->repeat_after_ms, handle)) {
        q->call.after = sm_arena_text(&call->arena, sm_str_from(handle));
        if (q->call.after.p == NULL)
            return SEMEL_E_NOMEM;
    }
    return SM_OK;
}

static void make_call(mcp_call *call)
{
    call->ask.call.size = sizeof call->ask.call;
    call->ask.call.tool = call->tool;
    call->ask.actor = call->session->actor;
    call->ask.lease_ms = SM_RUN_LEASE_MS;
    call->ask.prepare = prepare;
    call->ask.large = true;
}

/* ---- the worker's part -----------------------------------------------------------------------*/

/* Copies what the ledger said out of the worker's answer. */
static void keep_answer(mcp_call *call, const semel_answer *a)
{
    sm_arena_reset(&call->said);
    call->a = *a;
    sm_str *const texts[] = {&call->a.effect,          &call->a.claim,
                             &call->a.request,         &call->a.idempotency_key,
                             &call->a.drift,           &call->a.repeat_of,
                             &call->a.blocked_by,      &call->a.observed,
                             &call->a.message,         &call->a.corrective_action,
                             &call->a.result,          &call->a.outcome.value,
                             &call->a.outcome.headers, &call->a.outcome.corrective_action};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i]->p == NULL)
            continue;
        *texts[i] = sm_arena_text(&call->said, *texts[i]);
        if (texts[i]->p == NULL)
            *texts[i] = SM_STR("");
    }
    call->a.work = NULL;
    call->settled_at = sm_settled_at(a);
}

static void ask(mcp_call *call, semel_answer *a)
{
    sm_fault fault = {0};
    sm_err e = call->made ? SM_OK : make_args(call, a, &fault);
    if (e != SM_OK) {
        *a = (semel_answer){.work = a->work,
                            .verdict = SEMEL_REFUSED,
                            .code = SEMEL_C_BAD_ARGUMENTS,
                            .message =
                                sm_str_from(fault.text[0] != '\0' ? fault.text : semel_err_text(e)),
                            .corrective_action = SM_STR("Correct the call; nothing has run.")};
        call->ask.waits = false;
        keep_answer(call, a);
        return;
    }
    call->made = true;
    sm_ask(call->server->hub->ledger, &call->ask, a);
    keep_answer(call, a);
}

/* Records how it went, or gives the claim back under which nothing was done. Then asks what is to
 * be told, unless the server's own answer is. */
static void record(mcp_call *call, semel_answer *a)
{
    mcp_hub *hub = call->server->hub;
    sm_str claim = sm_str_from(call->claim);
    call->recorded = sm_record(hub->ledger, claim, call->back ? NULL : &call->outcome,
                               call->session->actor, &hub->stopping, a);
    if (call->back && call->recorded != SM_OK)
        sm_withdraw(hub->ledger, &call->lease.claim); /* the ledger's keeper goes on trying */
    sm_keeper_remove(hub->ledger, &call->lease);
    sm_waits_ring(hub->waits, call->ask.id);
    if (!call->unknown)
        return;
    call->ask.patient = true; /* nothing is begun from here */
    ask(call, a);
}

static void decide_approval(mcp_call *call, semel_answer *a)
{
    semel *ledger = call->server->hub->ledger;
    sm_str request = sm_arena_text(&call->arena, call->a.request);
    sm_str actor = call->session->actor;
    if (call->approved)
        semel_approve(ledger, request, actor, a);
    else
        semel_deny(ledger, request, actor, SM_STR("denied in the client"), a);
    sm_waits_ring(call->server->hub->waits, call->ask.id);
    call->ask.joined_generation = 0; /* as if asked for the first time */
    ask(call, a);
}

static void work(sm_job *job, semel_answer *a)
{
    mcp_call *call = (mcp_call *)(void *)((char *)job - offsetof(mcp_call, job));
    switch (call->stage) {
    case MCP_ASKING: ask(call, a); break;
    case MCP_DECIDING: decide_approval(call, a); break;
    case MCP_RECORDING: record(call, a); break;
    default: break;
    }
    mcp_loop_post(call->server->hub->loop, &call->post);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static void wake(sm_waiter *w)
{
    mcp_call *call = (mcp_call *)(void *)((char *)w - offsetof(mcp_call, waiter));
    mcp_loop_post(call->server->hub->loop, &call->post);
}

/* Takes a call that is parked back. False: it is being woken. */
static bool unpark(mcp_call *call)
{
    mcp_hub *hub = call->server->hub;
    if (call->stage != MCP_PARKED || !sm_waits_leave(hub->waits, &call->waiter))
        return false;
    hub->elsewhere--;
    return true;
}

static void on_late(mcp_timer *t)
{
    mcp_call *call = (mcp_call *)(void *)((char *)t - offsetof(mcp_call, timer));
    call->over = true;
    if (unpark(call))
        mcp_call_work(call, MCP_ASKING);
}

/* True if the call waits from now on, or asks again. */
static bool park(mcp_call *call)
{
    mcp_hub *hub = call->server->hub;
    if (call->over || call->x->canceled)
        return false;
    if (call->deadline_ns == 0) {
        int64_t wait_ms = call->server->o.wait_ms > 0 ? call->server->o.wait_ms : WAIT_MS;
        call->deadline_ns = sm_clock_deadline_ns(wait_ms);
        mcp_loop_time(hub->loop, &call->timer, call->deadline_ns);
    }
    call->waited = true;
    call->waiter.ask = &call->ask;
    call->stage = MCP_PARKED;
    switch (sm_waits_park(hub->waits, &call->waiter, MCP_CALLS_MAX)) {
    case SM_PARKED:
        hub->elsewhere++;
        mcp_call_decided(call);
        return true;
    case SM_RUNG: mcp_call_work(call, MCP_ASKING); return true;
    default: return false;
    }
}

/* ---- executing -------------------------------------------------------------------------------*/

/* A member of an object, at the end of a pointer's tokens. */
static void put_at(sm_buf *out, sm_str object, const sm_str *tokens, uint32_t n, sm_str value)
{
    char name[512];
    sm_str inner = {0};
    snprintf(name, sizeof name, "%.*s", SM_FMT(tokens[0]));
    if (n == 1) {
        mcp_put_with(out, object, name, value);
        return;
    }
    sm_buf next;
    sm_buf_init(&next, 2 * MCP_LINE_MAX);
    if (!mcp_find(object, name, &inner) || !mcp_is_object(inner))
        inner = (sm_str){0};
    put_at(&next, inner, tokens + 1, n - 1, value);
    mcp_put_with(out, object, name, sm_buf_view(&next));
    out->err = out->err != SM_OK ? out->err : next.err;
    sm_buf_fini(&next);
}

static bool given(sm_str name)
{
    return name.p != NULL && name.n > 0;
}

/* The params as the server gets them: without what was meant for us, and with the downstream's key
 * where the contract says that it goes, whatever a model wrote there. */
static sm_err put_params(mcp_call *call, sm_buf *out)
{
    const sm_idempotency *how = &call->contract->idempotency;
    sm_buf key, part, less;
    sm_err e = SM_OK;
    sm_buf_init(&key, 256);
    sm_buf_init(&part, 2 * MCP_LINE_MAX);
    sm_buf_init(&less, 2 * MCP_LINE_MAX);
    sm_str params = call->params;
    if (call->said_about.p != NULL) {
        mcp_put_with(&part, params, "inputResponses", (sm_str){0});
        mcp_put_with(&less, sm_buf_view(&part), "requestState", (sm_str){0});
        params = sm_buf_view(&less);
        sm_buf_clear(&part);
    }
    sm_json_put_string(&key, call->a.idempotency_key);
    if (!call->unrecorded && given(how->meta)) {
        put_at(&part, call->meta, &how->meta, 1, sm_buf_view(&key));
        mcp_put_with(out, params, "_meta", sm_buf_view(&part));
    } else if (!call->unrecorded && given(how->argument)) {
        sm_pointer pointer = {.tokens = &how->argument, .count = 1};
        if (how->argument.p[0] == '/')
            e = sm_pointer_parse(&call->arena, how->argument, &pointer, NULL);
        if (e == SM_OK)
            put_at(&part, call->args, pointer.tokens, pointer.count, sm_buf_view(&key));
        mcp_put_with(out, params, "arguments", sm_buf_view(&part));
    } else {
        sm_buf_str(out, params);
    }
    e = e != SM_OK ? e : part.err != SM_OK ? part.err : less.err != SM_OK ? less.err : out->err;
    sm_buf_fini(&less);
    sm_buf_fini(&part);
    sm_buf_fini(&key);
    return e;
}

/* The message as the server gets it: as it came, but for its id on a shared link, and its params.
 */
static sm_err put_message(mcp_call *call, sm_buf *out)
{
    mcp_message m;
    sm_buf params;
    sm_buf_init(&params, 2 * MCP_LINE_MAX);
    mcp_read(sm_buf_view(&call->text), &m);
    sm_err e = put_params(call, &params);
    mcp_edit id = {.at = m.id, .with = call->x->sent_id};
    mcp_edit with = {.at = m.params, .with = sm_buf_view(&params)};
    mcp_edit edits[2] = {m.id.p < m.params.p ? id : with, m.id.p < m.params.p ? with : id};
    if (e == SM_OK)
        mcp_put_edited(out, m.text, edits, 2);
    sm_buf_fini(&params);
    return e != SM_OK ? e : out->err;
}

/* Nothing was done under the claim: it is given back, and `a` is what is told. */
static void give_back(mcp_call *call)
{
    call->back = true;
    mcp_call_decided(call);
    if (call->unrecorded)
        on_recorded(call);
    else
        mcp_call_work(call, MCP_RECORDING);
}

static void copy_text(char out[SM_HANDLE_TEXT], sm_str text)
{
    size_t n = text.n < SM_HANDLE_TEXT ? text.n : SM_HANDLE_TEXT - 1;
    if (n > 0)
        memcpy(out, text.p, n);
    out[n] = '\0';
}

static void execute(mcp_call *call)
{
    mcp_session *s = call->session;
    mcp_exchange *x = call->x;
    call->unrecorded = call->a.claim.p == NULL;
    s->asking -= call->undecided;
    call->undecided = false;
    copy_text(call->claim, call->a.claim);
    copy_text(call->handle, call->a.effect);
    call->ask.joined_generation = call->a.generation;
    call->ask.joined_fence = call->a.fence;
    call->ask.joined_request = 0;
    call->why = (sm_str){0};
    call->stage = MCP_EXECUTING;
    if (!call->unrecorded && sm_handle_parse("cl_", sm_str_from(call->claim), &call->lease.claim))
        sm_keeper_add(s->server->hub->ledger, &call->lease);
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (x->canceled) {
        give_back(call); /* whoever asked has changed their mind in time */
    } else if (put_message(call, &text) != SM_OK) {
        call->why = SM_STR("The proxy is out of memory; nothing was done.");
        give_back(call);
    } else {
        mcp_slot *slot = call->slot;
        call->slot = NULL;
        x->way.write = true;
        if (slot != NULL)
            mcp_slot_decide(s, slot, sm_buf_view(&text));
        else
            mcp_forward(s, sm_buf_view(&text), x);
    }
    sm_buf_fini(&text);
}

/* ---- what the server said --------------------------------------------------------------------*/

/* Whether a JSON-RPC error says that the request was turned down before any work. */
static bool turned_down(int code)
{
    return code == -32700 || code == -32600 || code == -32601 || code == -32602;
}

/* Whether it says that nobody knows: the server's own call was cut short. */
static bool cut_short(int code)
{
    return code == -32000 || code == -32001;
}

static void judge_error(mcp_call *call, const mcp_message *m)
{
    sm_str code_text;
    char digits[16] = "";
    semel_outcome *o = &call->outcome;
    if (mcp_find(m->error, "code", &code_text) && code_text.n < sizeof digits)
        memcpy(digits, code_text.p, code_text.n);
    int code = atoi(digits);
    o->kind = SEMEL_FAILURE;
    o->status = code > 0 ? code : code < -1 ? -code : 1; /* none is negative in the ledger */
    o->value = m->error;
    o->applied = turned_down(code) ? SEMEL_APPLIED_NO
                 : cut_short(code) ? SEMEL_APPLIED_UNKNOWN
                                   : SEMEL_APPLIED_DEFAULT;
}

/* A tool that says that it failed has answered. What that means for what was done follows from its
 * class: of what is irreversible nobody knows. */
static void judge_result(mcp_call *call, const mcp_message *m)
{
    sm_str failed;
    bool error = mcp_find(m->result, "isError", &failed) && mcp_is_true(failed);
    call->outcome.kind = error ? SEMEL_FAILURE : SEMEL_SUCCESS;
    call->outcome.value = m->result;
}

void mcp_call_answered(mcp_call *call, const mcp_message *m)
{
    sm_str type;
    sm_buf_clear(&call->answer);
    sm_buf_str(&call->answer, m->text);
    if (call->answer.err != SM_OK) {
        mcp_call_lost(call, &(mcp_loss){.sent = true, .why = "the proxy is out of memory"});
        return;
    }
    if (call->unrecorded) {
        answer_as_it_came(call);
        return;
    }
    mcp_message own;
    mcp_read(sm_buf_view(&call->answer), &own);
    call->outcome = (semel_outcome){.size = sizeof call->outcome};
    call->back = own.kind == MCP_RESULT && mcp_find(own.result, "resultType", &type) &&
                 mcp_is(type, "input_required");
    if (own.kind == MCP_RESULT)
        judge_result(call, &own);
    else
        judge_error(call, &own);
    call->outcome.bytes = call->outcome.value.n;
    mcp_call_work(call, MCP_RECORDING);
}

void mcp_call_lost(mcp_call *call, const mcp_loss *loss)
{
    call->why = sm_arena_text(&call->arena, sm_str_from(loss->why));
    if (loss->status >= 400 && loss->status < 500) {
        /* Turned down by the server's door: no tool has seen it. */
        call->turned_down = loss->status;
        sm_buf_clear(&call->answer);
        sm_buf_str(&call->answer, loss->body);
        give_back(call);
        return;
    }
    if (!loss->sent) {
        give_back(call);
        return;
    }
    if (call->unrecorded) {
        mcp_call_refuse_with(call, SEMEL_C_UPSTREAM_FAILED, "Ask again later with the same call.",
                             "The call got no answer: %s.", loss->why);
        return;
    }
    sm_buf_clear(&call->answer);
    sm_buf_text(&call->answer, "{\"error\":");
    sm_json_put_string(&call->answer, call->why);
    sm_buf_byte(&call->answer, '}');
    call->unknown = true;
    call->outcome = (semel_outcome){.size = sizeof call->outcome,
                                    .kind = SEMEL_FAILURE,
                                    .applied = SEMEL_APPLIED_UNKNOWN,
                                    .value = sm_buf_view(&call->answer),
                                    .bytes = call->answer.len};
    mcp_call_work(call, MCP_RECORDING);
}

void mcp_call_progress(mcp_call *call, const mcp_message *m)
{
    sm_str token;
    if (!call->x->canceled)
        mcp_tell_client(call->session, call->x->channel, m->text);
    mcp_find(m->params, "progressToken", &token);
    for (mcp_call *other = call->server->calls; other != NULL; other = other->next) {
        if (other == call || other->stage != MCP_PARKED || other->ask.id != call->ask.id ||
            other->x == NULL || other->x->canceled || other->x->token.p == NULL)
            continue;
        sm_buf out;
        sm_buf_init(&out, 2 * MCP_LINE_MAX);
        mcp_put_edited(&out, m->text, &(mcp_edit){.at = token, .with = other->x->token}, 1);
        if (out.err == SM_OK)
            mcp_tell_client(other->session, other->x->channel, sm_buf_view(&out));
        sm_buf_fini(&out);
    }
}

/* ---- back on the loop ------------------------------------------------------------------------*/

static void on_asked(mcp_call *call)
{
    semel_answer *a = &call->a;
    if (a->verdict == SEMEL_EXECUTE) {
        execute(call);
    } else if (call->x->canceled) {
        mcp_call_end(call);
    } else if (a->verdict == SEMEL_REPLAY) {
        mcp_call_replay(call);
    } else if (a->code == SEMEL_C_AWAITING_APPROVAL) {
        /* The first to be told is told at once, for somebody has to be asked; whoever comes back
         * waits for it. */
        if (!mcp_approve_here(call) &&
            !(call->ask.waits && (call->repeat_pending || call->waited) && park(call)))
            mcp_call_refuse(call);
    } else if (!call->ask.waits || a->code == SEMEL_C_UPSTREAM_TIMEOUT || !park(call)) {
        mcp_call_refuse(call);
    }
}

/* Our attempt has ended in doubt: what is said of that says why. */
static void explain_doubt(mcp_call *call)
{
    semel_answer *a = &call->a;
    bool doubt = a->code == SEMEL_C_IN_DOUBT || a->code == SEMEL_C_UPSTREAM_TIMEOUT;
    if (call->recorded != SM_OK && !doubt) {
        *a = (semel_answer){.verdict = SEMEL_REFUSED, .code = SEMEL_C_IN_DOUBT};
        a->effect = sm_str_from(call->handle);
        doubt = true;
    }
    if (doubt && a->blocked_by.p == NULL)
        a->message = sm_arena_printf(
            &call->said, "The call may or may not have taken effect: %.*s.", SM_FMT(call->why));
}

static void on_recorded(mcp_call *call)
{
    if (call->recorded != SM_OK && !call->back)
        mcp_say(call->server->hub, MCP_ERROR_LEVEL,
                "the outcome of %s could not be recorded: the effect stays in doubt", call->handle);
    if (call->x->canceled) {
        mcp_call_end(call);
    } else if (call->unknown) {
        explain_doubt(call);
        if (call->a.verdict == SEMEL_REPLAY)
            mcp_call_replay(call);
        else
            mcp_call_refuse(call);
    } else if (call->turned_down != 0 && call->x->channel != NULL) {
        mcp_loss loss = {.status = call->turned_down, .body = sm_buf_view(&call->answer)};
        call->session->client.fail(call->session->client.context, call->x->channel, &loss);
        mcp_call_end(call);
    } else if (call->back && call->why.p != NULL) {
        mcp_call_refuse_with(call, SEMEL_C_UPSTREAM_FAILED, "Ask again later with the same call.",
                             "Nothing was done: %.*s.", SM_FMT(call->why));
    } else {
        answer_as_it_came(call);
    }
}

static void go_on(mcp_call *call)
{
    switch (call->stage) {
    case MCP_PARKED: /* woken */
        if (call->x->canceled)
            mcp_call_end(call);
        else
            mcp_call_work(call, MCP_ASKING);
        break;
    case MCP_ASKING:
    case MCP_DECIDING: on_asked(call); break;
    case MCP_RECORDING: on_recorded(call); break;
    default: break;
    }
}

static void take(mcp_post *post)
{
    mcp_call *call = (mcp_call *)(void *)((char *)post - offsetof(mcp_call, post));
    mcp_hub *hub = call->server->hub;
    hub->elsewhere--;
    go_on(call);
    if (hub->elsewhere == 0 && atomic_load(&hub->stopping))
        mcp_loop_stop(hub->loop);
}

void mcp_hub_settle(mcp_hub *hub)
{
    atomic_store(&hub->stopping, true);
    if (hub->elsewhere > 0)
        mcp_loop_run(hub->loop);
}

void mcp_call_canceled(mcp_call *call)
{
    call->x->canceled = true;
    if (call->stage == MCP_ELICITING || unpark(call))
        mcp_call_end(call);
}

void mcp_call_abandon(mcp_call *call)
{
    if (call->stage == MCP_EXECUTING && !call->unrecorded)
        sm_keeper_remove(call->server->hub->ledger, &call->lease);
    mcp_call_end(call);
}

/* ---- the beginning ---------------------------------------------------------------------------*/

/* Passes on what only reads, without a record but with a note. */
static void pass(mcp_call *call)
{
    mcp_session *s = call->session;
    semel *ledger = s->server->hub->ledger;
    mcp_exchange *x = call->x;
    mcp_message m;
    sm_journal_add(&ledger->journal, SM_JOT_PASSED, SEMEL_C_NONE, 0, 0, sm_now(ledger),
                   call->ask.call.scope, call->tool);
    x->what = MCP_W_OTHER;
    x->call = NULL;
    call->x = NULL;
    mcp_read(sm_buf_view(&call->text), &m);
    mcp_slot *slot = call->slot;
    call->slot = NULL;
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    mcp_put_edited(&text, m.text, &(mcp_edit){.at = m.id, .with = x->sent_id}, 1);
    if (slot != NULL)
        mcp_slot_decide(s, slot, sm_buf_view(&text));
    else
        mcp_forward(s, sm_buf_view(&text), x);
    sm_buf_fini(&text);
    mcp_call_end(call);
}

/* Whether the tool only reads, as far as that can be told without its arguments. */
static bool only_reads(mcp_call *call, const sm_contracts *set)
{
    const sm_tool *entry = sm_contracts_tool(set, call->tool);
    if (entry != NULL)
        return entry->contract.class == SM_CLASS_READ && entry->contract.variant_count == 0 &&
               entry->contract.input == NULL;
    const mcp_tool *tool =
        call->listing == NULL ? NULL : mcp_tools_find(call->listing->tools, call->tool);
    return tool != NULL && tool->hints.read_only && set->trust_annotations &&
           set->unlisted != SM_UNLISTED_HIDE;
}

void mcp_call_listed(mcp_call *call, const char *why_not)
{
    mcp_hub *hub = call->server->hub;
    if (call->x->canceled) {
        mcp_call_end(call);
        return;
    }
    if (why_not != NULL) {
        mcp_call_refuse_with(call, SEMEL_C_UPSTREAM_FAILED, "Ask again later with the same call.",
                             "Nothing was done: the server's tools could not be listed (%s).",
                             why_not);
        return;
    }
    call->listing = mcp_listing_hold(call->server->listing);
    const sm_contracts *set = sm_contracts_now(hub->ledger, hub->answer);
    if (only_reads(call, set))
        pass(call);
    else
        mcp_call_work(call, MCP_ASKING);
}

/* What of the params decides something; the sentence if it cannot be told. */
static const char *read_params(mcp_call *call, const mcp_message *m)
{
    static const char *const once[] = {"name", "arguments",      "_meta",       "idempotencyKey",
                                       "task", "inputResponses", "requestState"};
    sm_str name, part;
    char *tool = sm_arena_alloc(&call->arena, SM_TOOL_MAX + 1);
    if (tool == NULL)
        return "The proxy is out of memory.";
    if (!mcp_is_object(m->params) || !mcp_find(m->params, "name", &name) || !mcp_is_string(name))
        return "tools/call needs params with the tool's name.";
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        if (mcp_twice(m->params, once[i]))
            return "A member of the params is there twice.";
    if (!mcp_text(name, tool, SM_TOOL_MAX + 1))
        return "The tool's name is too long.";
    call->params = m->params;
    call->tool = sm_str_from(tool);
    if (!mcp_find(m->params, "arguments", &call->args))
        call->args = (sm_str){0};
    if (mcp_find(m->params, "_meta", &call->meta) &&
        (mcp_twice(call->meta, "semel/scope") || mcp_twice(call->meta, "semel/step")))
        return "A member of _meta is there twice.";
    call->tasked = mcp_find(m->params, "task", &part);
    if (mcp_find(m->params, "idempotencyKey", &part)) {
        char *key = sm_arena_alloc(&call->arena, SM_KEY_MAX + 1);
        if (key == NULL || !mcp_text(part, key, SM_KEY_MAX + 1) || key[0] == '\0')
            return "idempotencyKey is no text of 1 to 512 bytes.";
        call->ask.call.key = sm_str_from(key);
    }
    call->legged =
        mcp_find(m->params, "inputResponses", &part) || mcp_find(m->params, "requestState", &part);
    return NULL;
}

/* They are needed as long as the call is, which may be longer than its channel. */
static bool copy_headers(mcp_call *call, mcp_exchange *x, const mcp_hop *hop)
{
    sm_http_field *v = sm_arena_zalloc(&call->arena, hop->header_count + 1, sizeof *v);
    bool right = v != NULL;
    for (size_t i = 0; right && i < hop->header_count; i++) {
        v[i].name = sm_arena_text(&call->arena, hop->headers[i].name);
        v[i].value = sm_arena_text(&call->arena, hop->headers[i].value);
        right = v[i].name.p != NULL && v[i].value.p != NULL;
    }
    x->way.headers = v;
    x->way.header_count = hop->header_count;
    return right;
}

void mcp_call_start(mcp_session *s, const mcp_message *m, mcp_channel *channel, const mcp_hop *hop)
{
    mcp_hub *hub = s->server->hub;
    mcp_exchange *x = mcp_exchange_new(s, MCP_W_CALL, m->id, channel);
    mcp_call *call = x == NULL ? NULL : call_new(s, m);
    if (call == NULL || call->text.err != SM_OK) {
        if (call != NULL)
            mcp_call_end(call);
        if (x != NULL)
            mcp_reply_error(x, -32603, "The proxy is out of memory; nothing was done.");
        return;
    }
    mcp_message own;
    mcp_read(sm_buf_view(&call->text), &own);
    x->call = call;
    x->batch = hop->batch;
    if (!copy_headers(call, x, hop)) {
        mcp_reply_error(x, -32603, "The proxy is out of memory; nothing was done.");
        mcp_call_end(call);
        return;
    }
    mcp_exchange_describe(x, m->params);
    call->x = x;
    call->slot = mcp_slot_new(s, x);
    const char *wrong = read_params(call, &own);
    if (wrong != NULL) {
        call->x = NULL;
        mcp_reply_error(x, -32602, "%s", wrong);
        mcp_call_end(call);
        return;
    }
    make_call(call);
    if (!make_scope(call, &wrong)) {
        mcp_call_refuse_with(call, SEMEL_C_FORBIDDEN, "Use another scope; nothing has run.", "%s",
                             wrong);
        return;
    }
    const sm_contracts *set = sm_contracts_now(hub->ledger, hub->answer);
    bool marks = x->modern && s->link != NULL && s->link->exchanges; /* headers need the schema */
    if (!marks && sm_contracts_tool(set, call->tool) != NULL && only_reads(call, set)) {
        pass(call);
    } else if (sm_contracts_find(set, call->tool) == NULL) {
        mcp_call_refuse_with(call, SEMEL_C_UNKNOWN_TOOL, "Use a tool that is listed.",
                             "The contract does not allow the tool %.*s.", SM_FMT(call->tool));
    } else if (hub->calls > MCP_CALLS_MAX) {
        mcp_call_refuse_with(call, SEMEL_C_RETRY_IN_FLIGHT,
                             "Wait for some of them to end, then make the call again.",
                             "Nothing was done: %u calls are under way already.", MCP_CALLS_MAX);
    } else {
        mcp_approve_read(call);
        if (!make_step(call))
            mcp_call_refuse_with(call, SEMEL_C_LEDGER_UNAVAILABLE, "Ask again later.",
                                 "The proxy is out of memory; nothing was done.");
        else if (mcp_listing_fresh(s->server))
            mcp_call_listed(call, NULL);
        else
            mcp_listing_need(s, call, call->meta);
    }
}
