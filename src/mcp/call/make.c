/*
 * What is asked of the ledger for a call: its scope, its step, its arguments as its tool's schema
 * completes them.
 *
 * A call that the server interrupts with questions comes in several legs. What answers the
 * questions (inputResponses, requestState) is not part of the call's identity: the server makes a
 * new state each time, so a client that loses the last leg and starts over would otherwise run it
 * again. All legs have the key of the plain call. A leg that the server answers with a question
 * gives the key back; the leg that the server completes settles it, for all legs of everybody.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "core/undo.h"
#include "json/canon.h"
#include "mcp/call/call.h"
#include "mcp/param_headers.h"

#define STEP_BYTES 200u

/* A text of _meta. Absent if it is not there; false if it is no text of that size, for what cannot
 * be used is not to be taken for nothing. */
static bool meta_text(mcp_tool_call *call, const char *name, size_t most, sm_str *out)
{
    sm_str value;
    *out = (sm_str){0};
    if (call->meta.p == NULL || !sm_raw_find(call->meta, name, &value))
        return true;
    char *text = sm_arena_alloc(&call->arena, most + 1);
    if (text == NULL || !sm_raw_text(value, text, most + 1) || text[0] == '\0')
        return false;
    *out = sm_str_from(text);
    return true;
}

/* SCOPE/NAME; the first that there is of: what the server was given, what the client sends, what
 * the client is bound to, nothing. A client cannot leave what it is bound to. */
static bool make_scope(mcp_tool_call *call, const char **wrong)
{
    mcp_session *s = call->session;
    sm_str given;
    *wrong = "semel/scope in _meta must be a text of 1 to 384 bytes.";
    if (!meta_text(call, "semel/scope", SM_SCOPE_MAX - MCP_NAME_MAX, &given))
        return false;
    sm_str base = s->server->scope != NULL ? sm_str_from(s->server->scope)
                  : given.p != NULL        ? given
                                           : s->scope;
    *wrong = "The scope of the call is outside of what the client may use.";
    if (s->scope.p != NULL && s->scope.n > 0 && base.p != s->scope.p &&
        !(base.n >= s->scope.n && memcmp(base.p, s->scope.p, s->scope.n) == 0 &&
          (base.n == s->scope.n || base.p[s->scope.n] == '/')))
        return false;
    call->at.ask.call.scope =
        base.p == NULL || base.n == 0
            ? sm_str_from(s->server->name)
            : sm_arena_printf(&call->arena, "%.*s/%s", SM_FMT(base), s->server->name);
    *wrong = "The proxy is out of memory.";
    return call->at.ask.call.scope.p != NULL;
}

/* The effect that a deliberate repeat names (semel/after). */
static bool make_after(mcp_tool_call *call, const char **wrong)
{
    *wrong = "semel/after in _meta is not an effect's handle (ef_...).";
    return meta_text(call, "semel/after", SM_HANDLE_TEXT, &call->at.ask.call.after);
}

/* The step that the client says. */
static bool make_step(mcp_tool_call *call, const char **wrong)
{
    *wrong = "semel/step in _meta must be a text of 1 to 200 bytes.";
    return meta_text(call, "semel/step", STEP_BYTES, &call->at.ask.call.step);
}

/* The arguments that carry the downstream's key are ours to fill: what a model made up there names
 * nothing. */
static sm_err drop_keys(mcp_tool_call *call, const sm_contract *c, sm_places *places, unsigned *n,
                        sm_fault *fault)
{
    sm_err e = SM_OK;
    for (uint32_t i = 0; e == SM_OK && i <= c->variant_count; i++) {
        sm_str name = (i == 0 ? c : &c->variants[i - 1].contract)->idempotency.argument;
        sm_pointer pointer;
        if (name.p == NULL || name.n == 0)
            continue;
        e = sm_pointer_place(&call->arena, name, &pointer, fault);
        if (e == SM_OK)
            e = sm_places_add(places, &call->arena, &pointer, NULL);
        (*n)++;
    }
    return e;
}

/* Whether the contract decides something by the values of arguments: what needs an approval and
 * what is approved, which variant applies, what a probe looks for. */
static bool decides_by_values(const sm_contract *c)
{
    return c->mode == SM_MODE_ENFORCE &&
           (c->approval.on || c->variant_count > 0 || c->origin[SM_F_PROBE].given != NULL);
}

/* The arguments that the ledger is asked with: filled by the defaults that were seen first. If the
 * server means others by now, nothing is begun that the contract decides by these. */
sm_err mcp_call_args(mcp_tool_call *call, semel_answer *a, sm_fault *fault)
{
    const mcp_tool *tool =
        call->listing == NULL ? NULL : mcp_tools_known(call->listing->tools, call->tool);
    sm_str args;
    if (call->at.ask.call.args.p != NULL)
        return SM_OK;
    sm_err e = mcp_tool_fill(tool, &call->arena, call->args, &sm_json_args_limits, &args, fault);
    if (e != SM_OK)
        return e;
    const sm_contract *c =
        sm_contracts_find(sm_contracts_now(call->server->hub->ledger, a), call->tool);
    call->at.ask.full = call->at.ask.quiet =
        c != NULL && decides_by_values(c) &&
        mcp_tool_loose(tool, &call->arena, call->args, &sm_json_args_limits);
    sm_places *places = sm_places_new(&call->arena);
    unsigned n = 0;
    e = c == NULL ? SM_OK : places == NULL ? SEMEL_E_NOMEM : drop_keys(call, c, places, &n, fault);
    if (e != SM_OK)
        return e;
    if (n == 0) {
        call->at.ask.call.args = args;
        return SM_OK;
    }
    const sm_json *root = NULL, *less = NULL;
    e = sm_json_read(&call->arena, args, &sm_json_args_limits, &root, fault);
    if (e == SM_OK)
        e = sm_json_drop(&call->arena, root, places, &less);
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (e == SM_OK)
        e = sm_json_canon(less, &text, (sm_str){0}, fault);
    if (e == SM_OK)
        call->at.ask.call.args = sm_arena_text(&call->arena, sm_buf_view(&text));
    sm_buf_fini(&text);
    return e == SM_OK && call->at.ask.call.args.p == NULL ? SEMEL_E_NOMEM : e;
}

/* A number for where the contract puts the key for the server: what is sent again is the same only
 * if the key is where it was. 0: nowhere. */
static uint64_t key_place(const sm_contract *c)
{
    const sm_str names[] = {c->idempotency.meta, c->idempotency.argument};
    uint64_t h = 0;
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < names[i].n; k++)
            h = (h ^ (unsigned char)names[i].p[k] ^ ((i + 1) << 8)) * 0x100000001B3u;
    }
    return h;
}

sm_err mcp_call_prepare(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    mcp_tool_call *call = mcp_call_of(at);
    sm_asking *q = &at->ask;
    char handle[SM_HANDLE_TEXT];
    (void)args;
    (void)fault;
    call->contract = c;
    q->shape = key_place(c);
    if (call->session->o.anyone)
        return SM_OK;
    if (call->knows == MCP_HAS_WAITED)
        return SM_OK;
    mcp_call_set_knows(call,
                       mcp_told_about(call->session, q->id) ? MCP_WAS_TOLD : MCP_KNOWS_NOTHING);
    if (!mcp_call_named(call) && q->call.after.p == NULL && c->on_repeat == SM_REPEAT_RUN &&
        mcp_told_of(call->session, call->x, q->id, c, handle)) {
        q->call.after = sm_arena_text(&call->arena, sm_str_from(handle));
        if (q->call.after.p == NULL)
            return SEMEL_E_NOMEM;
    }
    return SM_OK;
}

static void make_call(mcp_tool_call *call)
{
    call->at.ask.call.size = sizeof call->at.ask.call;
    call->at.ask.call.tool = call->tool;
    call->at.ask.actor = call->session->actor;
    call->at.ask.lease_ms = SM_RUN_LEASE_MS;
    call->at.ask.large = true;
    sm_handle effect;
    call->at.ask.undoes =
        call->server->o.undoes && sm_undo_key_parse(call->at.ask.call.key, &effect);
}

/* ---- the beginning ---------------------------------------------------------------------------*/

/* What has to be known of a read when it is answered. NULL: nothing. */
static mcp_read_call *new_read(mcp_tool_call *call)
{
    mcp_hub *hub = call->server->hub;
    semel_call read = call->at.ask.call;
    read.args = call->args;
    uint64_t number = sm_pass(hub->ledger, &read, hub->answer);
    mcp_read_call *r = number == 0 ? NULL : malloc(sizeof *r + read.scope.n + read.tool.n);
    if (r == NULL)
        return NULL;
    memcpy(r->text, read.scope.p, read.scope.n);
    memcpy(r->text + read.scope.n, read.tool.p, read.tool.n);
    r->passed = (sm_passed){number, {r->text, read.scope.n}, {r->text + read.scope.n, read.tool.n}};
    return r;
}

/* Passes on what only reads, without a record but with a note. */
static void pass(mcp_tool_call *call)
{
    mcp_session *s = call->session;
    mcp_exchange *x = call->x;
    mcp_message m;
    x->read = new_read(call);
    x->what = MCP_W_OTHER;
    x->call = NULL;
    call->x = NULL;
    mcp_read(sm_buf_view(&call->text), &m);
    mcp_slot *slot = call->slot;
    call->slot = NULL;
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    mcp_put_sent(&text, &m, x);
    if (slot != NULL)
        mcp_slot_decide(s, slot, sm_buf_view(&text));
    else
        mcp_forward(s, sm_buf_view(&text), x);
    sm_buf_fini(&text);
    mcp_call_end(call);
}

/* Whether a client speaks HTTP in the era where headers repeat arguments. */
static bool repeats(const mcp_exchange *x)
{
    return x->modern && x->channel != NULL && x->batch == NULL;
}

/* Whether the headers of a call say what its arguments say. If not, it is turned down as the server
 * would, before anything is asked: an answer that is repeated must not tell otherwise. */
static bool headers_fit(mcp_tool_call *call)
{
    mcp_exchange *x = call->x;
    sm_str header;
    const mcp_tool *tool =
        call->listing == NULL ? NULL : mcp_tools_find(call->listing->tools, call->tool);
    if (!repeats(x) ||
        mcp_params_fit(tool, call->args, x->way.headers, x->way.header_count, &header))
        return true;
    sm_buf body;
    sm_buf_init(&body, 4096);
    sm_str text = sm_arena_printf(&call->arena,
                                  "The headers and the body disagree: " MCP_PARAM_PREFIX
                                  "%.*s does not say what the arguments say.",
                                  SM_FMT(header));
    mcp_put_error(&body, x->id, -32020, text.p == NULL ? SM_STR("") : text);
    mcp_loss loss = {.status = 400, .body = sm_buf_view(&body)};
    call->session->client.fail(call->session->client.context, x->channel, &loss);
    sm_buf_fini(&body);
    mcp_call_end(call);
    return false;
}

bool mcp_call_hinted(const mcp_tool_call *call, const sm_contracts *set, sm_str tool)
{
    const mcp_tool *said =
        call->listing == NULL ? NULL : mcp_tools_find(call->listing->tools, tool);
    return said != NULL && mcp_tool_hinted(said, set);
}

/* Whether the tool only reads, as far as that can be told without its arguments. */
static bool only_reads(mcp_tool_call *call, const sm_contracts *set)
{
    const sm_declared_tool *entry = sm_contracts_tool(set, call->tool);
    if (sm_contracts_rival(set, call->tool) != NULL)
        return false;  /* the ledger says why it is refused */
    if (entry != NULL) /* one that may be blocked is asked for */
        return sm_contract_only_reads(&entry->contract) &&
               !(entry->contract.loop.on && entry->contract.loop.block > 0);
    return mcp_call_hinted(call, set, call->tool);
}

/* Answers from the ledger's memory, without asking a worker, what was done before and is not to be
 * done again whoever asks. */
static bool known_already(mcp_tool_call *call, const sm_contracts *set)
{
    mcp_hub *hub = call->server->hub;
    sm_fault fault;
    const sm_contract *c = sm_contracts_find(set, call->tool);
    if (c == NULL || c->on_repeat == SM_REPEAT_RUN || c->variant_count > 0 ||
        call->text.len > SM_INLINE_BYTES_MAX || mcp_call_args(call, hub->answer, &fault) != SM_OK)
        return false;
    if (!sm_ask_memory(hub->ledger, &call->at.ask, hub->answer))
        return false;
    mcp_call_keep(call, hub->answer);
    mcp_call_replay(call);
    return true;
}

void mcp_call_listed(mcp_tool_call *call, const char *why_not)
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
    if (!headers_fit(call))
        return;
    const sm_contracts *set = sm_contracts_now(hub->ledger, hub->answer);
    if (only_reads(call, set))
        pass(call);
    else if (!known_already(call, set))
        mcp_call_begin(call);
}

/* Reads the deciding members of the params. Returns a sentence if one is wrong. mcp_read_client has
 * checked that each occurs once. */
static const char *read_params(mcp_tool_call *call, const mcp_message *m)
{
    sm_str name, part;
    char *tool = sm_arena_alloc(&call->arena, SM_TOOL_MAX + 1);
    if (tool == NULL)
        return "The proxy is out of memory.";
    if (!sm_raw_is_object(m->params) || !sm_raw_find(m->params, "name", &name) ||
        !sm_raw_is_string(name))
        return "tools/call needs params with the tool's name.";
    if (!sm_raw_text(name, tool, SM_TOOL_MAX + 1))
        return "The tool's name is too long.";
    call->params = m->params;
    call->tool = sm_str_from(tool);
    if (!sm_raw_find(m->params, "arguments", &call->args))
        call->args = (sm_str){0};
    if (!sm_raw_find(m->params, "_meta", &call->meta))
        call->meta = (sm_str){0};
    call->tasked = sm_raw_find(m->params, "task", &part);
    if (sm_raw_find(m->params, "idempotencyKey", &part)) {
        char *key = sm_arena_alloc(&call->arena, SM_KEY_MAX + 1);
        if (key == NULL || !sm_raw_text(part, key, SM_KEY_MAX + 1) || key[0] == '\0')
            return "idempotencyKey must be a text of 1 to 512 bytes.";
        call->at.ask.call.key = sm_str_from(key);
    }
    call->legged = sm_raw_find(m->params, "inputResponses", &part) ||
                   sm_raw_find(m->params, "requestState", &part);
    return NULL;
}

void mcp_call_start(mcp_session *s, const mcp_message *m, mcp_channel *channel, const mcp_hop *hop)
{
    mcp_hub *hub = s->server->hub;
    mcp_exchange *x = mcp_exchange_new(s, MCP_W_CALL, m->id, channel);
    bool room = sm_shares_room(&hub->calls, s->actor, MCP_CALLS_MAX) == SM_ROOM;
    mcp_tool_call *call = x == NULL ? NULL : mcp_call_new(s, m);
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
    if (!mcp_exchange_headers(x, hop->headers, hop->header_count)) {
        mcp_reply_error(x, -32603, "The proxy is out of memory; nothing was done.");
        mcp_call_end(call);
        return;
    }
    mcp_exchange_describe(x, m->params);
    call->x = x;
    mcp_progress_start(call);
    call->slot = mcp_slot_new(s, x);
    const char *wrong = read_params(call, &own);
    if (wrong != NULL) {
        call->x = NULL;
        mcp_reply_error(x, -32602, "%s", wrong);
        mcp_call_end(call);
        return;
    }
    make_call(call);
    mcp_approve_read(call);
    if (!make_scope(call, &wrong) || !make_step(call, &wrong) || !make_after(call, &wrong)) {
        mcp_call_refuse_with(call, SEMEL_C_BAD_ARGUMENTS, "Correct the call; nothing has run.",
                             "%s", wrong);
        return;
    }
    const sm_contracts *set = sm_contracts_now(hub->ledger, hub->answer);
    /* What headers say of the arguments takes the schema. */
    bool marks = repeats(x) || (x->modern && s->link != NULL && s->link->exchanges);
    if (!marks && sm_contracts_tool(set, call->tool) != NULL && only_reads(call, set)) {
        pass(call);
    } else if (sm_contracts_find(set, call->tool) == NULL) {
        mcp_call_refuse_with(call, SEMEL_C_UNKNOWN_TOOL, "Use a tool that is listed.",
                             "The contract does not allow the tool %.*s.", SM_FMT(call->tool));
    } else if (!room) {
        mcp_call_refuse_with(call, SEMEL_C_RETRY_IN_FLIGHT,
                             "Wait for some of them to end, then make the call again.",
                             "Nothing was done: too many calls are under way already.");
    } else if (mcp_listing_fresh(s->server)) {
        mcp_call_listed(call, NULL);
    } else {
        mcp_listing_need(s, call, call->meta);
    }
}
