/*
 * /proxy/NAME/..., or an address of its own: an HTTP API behind the ledger, for clients that know
 * nothing of it but another base URL.
 *
 * What can change the world is a call of the tool proxy.NAME (args.c): equal requests are one
 * action. An Idempotency-Key of the client's names the action instead, unless `client_key: ignore`,
 * and another request with the same key is a conflict. Safe methods, and calls by POST that the
 * contract declares to be of class read, pass as a stream and are not recorded, unless they ask for
 * another method (override.c): those are refused.
 *
 * What was settled before is answered on the server's own thread, if the ledger knows it without
 * looking anything up; everything else is a run.
 *
 * The request is put together when it comes, with the exact bytes of its body; the client may be
 * gone by the time it is sent. Nothing is sent in the background, for the ledger has no exact
 * bytes. But the client's own repeat has them: it settles a doubt where the API takes a key
 * (`idempotency`, gateway/run/run.c), or where the contract says `rerun`. An approved call runs
 * with it, too.
 */
#include "gateway/proxy/proxy.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/url.h"
#include "core/identity.h"
#include "gateway/api/api.h"
#include "gateway/proxy/args.h"
#include "gateway/proxy/forward.h"
#include "gateway/proxy/headers.h"
#include "gateway/proxy/override.h"
#include "gateway/proxy/pass.h"
#include "gateway/proxy/redirect.h"
#include "gateway/run/returned.h"
#include "gateway/run/run.h"

#define HOST_MAX       253u  /* bytes of a host's name */
#define WAIT_BEYOND_MS 30000 /* how long a client may wait for more than one exchange */

/* ---- where to --------------------------------------------------------------------------------*/

static const gw_upstream_api *find_api(const gw_config *c, sm_str name)
{
    for (uint32_t i = 0; i < c->proxies.n; i++) {
        if (sm_str_eq(c->proxies.v[i].name, name))
            return &c->proxies.v[i];
    }
    return NULL;
}

static bool sound_query(sm_str query)
{
    for (size_t i = 0; i < query.n; i++) {
        unsigned char c = (unsigned char)query.p[i];
        if (c <= 0x20 || c >= 0x7F || c == '#')
            return false;
    }
    return true;
}

/* ---- the call --------------------------------------------------------------------------------*/

/* The scope that the client names, else the token's own. Absent: the request has its answer. */
static sm_str find_scope(gw_request *r)
{
    sm_str given = gw_header(r, "Semel-Scope");
    if (given.p == NULL)
        given = sm_str_from(r->who.scope);
    if (given.n == 0) {
        gw_problem(r, 400, "BAD_ARGUMENTS",
                   "Send the header Semel-Scope, or use a token that is bound to a scope.",
                   "The call has no scope: this token is bound to none.");
        return (sm_str){0};
    }
    if (!gw_who_owns(&r->who, given)) {
        gw_problem(r, 403, "FORBIDDEN", "Use a scope below the token's own.",
                   "This token may not act in that scope.");
        return (sm_str){0};
    }
    return given;
}

/* ---- the run ---------------------------------------------------------------------------------*/

/* Whether the API sends a write to a place that is not behind the proxy, or names several. Then the
 * client is told so instead, whenever it asks. */
static bool refuse_redirect(const gw_run *run, gw_request *r, const semel_answer *a)
{
    int status = a->outcome.status;
    size_t n;
    if (a->verdict == SEMEL_REFUSED || !a->has_outcome || !gw_redirect_repeats(r, status))
        return false;
    sm_str location = run->gives.p != NULL ? gw_returned_find(run->gives, SM_STR("Location"), &n)
                                           : gw_recorded_find(a, SM_STR("Location"), &n);
    if (n < 2 && !gw_redirect_strays(r, location))
        return false;
    sm_str host = n > 1 ? SM_STR("several places") : gw_redirect_host(location);
    if (host.n == 0 || host.n > HOST_MAX)
        host = SM_STR("another place");
    bool undone = sm_http_sends_on(status);
    semel_answer refusal = *a;
    refusal.verdict = SEMEL_REFUSED;
    refusal.code = SEMEL_C_UPSTREAM_FAILED;
    refusal.retriable = undone;
    refusal.retry_after_ms = undone ? 1000 : 0;
    refusal.message = sm_arena_printf(
        sm_answer_arena(a), "The API answered %d: it redirects this request to %.*s%s.%s", status,
        SM_FMT(host), n > 1 ? "" : ", which is not behind this proxy",
        undone ? "" : " It may have done it before.");
    refusal.corrective_action =
        undone ? SM_STR("Correct the proxy's url, or give the other address a proxy of its own; "
                        "nothing was done.")
               : SM_STR("Find out at the API whether it was done. Then correct the proxy's url, or "
                        "give the other address a proxy of its own.");
    gw_reply_about(r, a);
    gw_reply_refusal(r, &refusal);
    return true;
}

static void answer(gw_run *run, gw_request *r, const semel_answer *a)
{
    if (refuse_redirect(run, r, a))
        return;
    if (run->gives.p != NULL)
        gw_returned_give(r, run->gives);
    gw_reply_outcome(r, a);
}

static const gw_run_ops ops = {.answer = answer, .relays = true};

void gw_proxy_refuse(gw_request *r, sm_err e, const sm_fault *fault)
{
    if (e == SEMEL_E_INVALID)
        gw_problem(r, 500, "MISCONFIGURED",
                   "Tell whoever runs the gateway; trying again does not help.", "%s", fault->text);
    else if (e == SEMEL_E_BAD_ARGUMENTS)
        gw_problem(r, 400, "BAD_ARGUMENTS",
                   "Send the gateway's token as `Semel-Token: TOKEN`, and nowhere else.", "%s",
                   fault->text);
    else
        gw_problem(r, 503, "OVERLOADED", "Try again later.", "The gateway is out of memory.");
}

static void refuse_override(gw_request *r)
{
    gw_problem(r, 400, "BAD_ARGUMENTS", "Send the method and the path that are meant.",
               "A header or field asks for another method or path than the request has.");
}

/* Passes a request on that changes nothing. `judged`: it asks for no other method. */
static void pass(gw_request *r, const gw_upstream_api *api, sm_str path, bool judged)
{
    sm_arena a;
    sm_upstream_call up;
    sm_fault fault = {0};
    sm_str text = {0};
    const sm_json *args = NULL;
    size_t given;
    sm_arena_init(&a, SM_ARENA_MAX);
    sm_err e = gw_proxy_request(r, &a, api, path, false, &up, &given, &fault);
    if (e == SM_OK && !judged && r->body.len > 0)
        e = gw_proxy_args(r, &a, api, up.headers, given, path, &text);
    if (e == SM_OK && text.n > 0)
        e = sm_json_read(&a, text, &sm_json_default_limits, &args, NULL);
    if (e != SM_OK)
        gw_proxy_refuse(r, e, &fault);
    else if (!judged && gw_asks_other_method(r, &a, args))
        refuse_override(r);
    else
        gw_pass(r, &up.request);
    sm_arena_fini(&a);
}

/* Finds the contracts that the call comes under: those in use, if they list the proxy's tool, else
 * those of its preset. And what they say of the call. */
static sm_err choose_contracts(gw_run *run, const gw_upstream_api *api, sm_look *out)
{
    gw_own *own = gw_own_get();
    const semel_call *call = &run->at.ask.call;
    if (own == NULL)
        return SEMEL_E_NOMEM;
    sm_contracts *set = sm_contracts_keep(run->g->ledger, own->answer);
    if (api->contracts != NULL && sm_contracts_tool(set, call->tool) == NULL) {
        sm_contracts_free(set);
        set = sm_contracts_hold(api->contracts);
    }
    run->at.ask.contracts = set;
    sm_call_look(&own->arena, set, call->tool, call->args, out);
    return SM_OK;
}

/* Makes the request and the call's arguments, and looks what the contract says of them. *answered:
 * the request has its answer. */
static sm_err make_call(gw_run *run, gw_request *r, const gw_upstream_api *api, sm_str path,
                        sm_look *look, bool *answered, sm_fault *fault)
{
    sm_arena *a = &run->arena;
    semel_call *call = &run->at.ask.call;
    size_t given;
    *look = (sm_look){0};
    *answered = false;
    run->at.ask.http = true;
    call->tool = sm_arena_printf(a, "proxy.%.*s", SM_FMT(api->name));
    sm_err e = call->tool.p == NULL
                   ? SEMEL_E_NOMEM
                   : gw_proxy_request(r, a, api, path, true, &run->up, &given, fault);
    if (e == SM_OK && gw_proxy_twins(run->up.headers, given)) {
        *answered = true;
        gw_problem(r, 400, "BAD_ARGUMENTS", "Send one of them.",
                   "Two headers have names that some servers take for one.");
        return SM_OK;
    }
    if (e == SM_OK)
        e = gw_proxy_args(r, a, api, run->up.headers, given, path, &call->args);
    if (e == SM_OK)
        e = choose_contracts(run, api, look);
    /* An approval must cover what is sent, and headers that vary would need one each. */
    if (e == SM_OK && look->asks && gw_proxy_leave(r, api, &run->up, &given))
        e = gw_proxy_args(r, a, api, run->up.headers, given, path, &call->args);
    return e;
}

/* Who asks, in what scope, and by what name. A text that cannot be kept must not be taken for one
 * that was not sent. */
static sm_err name_call(gw_run *run, gw_request *r, const gw_upstream_api *api, bool *answered)
{
    sm_arena *a = &run->arena;
    semel_call *call = &run->at.ask.call;
    sm_str scope = find_scope(r), step = gw_header(r, "Semel-Step");
    *answered =
        scope.p == NULL || (api->client_key == GW_KEY_HONOUR && !gw_read_key(r, a, &call->key));
    if (*answered)
        return SM_OK;
    call->scope = sm_arena_text(a, scope);
    call->step = step.p == NULL ? step : sm_arena_text(a, step);
    run->at.ask.actor = sm_arena_text(a, sm_str_from(r->who.actor));
    return call->scope.p == NULL || (step.p != NULL && call->step.p == NULL) ||
                   run->at.ask.actor.p == NULL
               ? SEMEL_E_NOMEM
               : SM_OK;
}

/* Answers from the ledger's memory, if that can tell; then the run is over. */
static bool known_already(gw_run *run, gw_request *r)
{
    gw_own *own = gw_own_get();
    if (own == NULL || !sm_ask_memory(run->g->ledger, &run->at.ask, own->answer))
        return false;
    answer(run, r, own->answer);
    gw_run_free(run);
    return true;
}

static void start(gw_run *run, gw_request *r, const gw_upstream_api *api)
{
    /* A client that sends a key reckons with an upstream that takes one. */
    if (run->at.ask.call.key.p != NULL && run->up.key.header.p == NULL)
        run->up.key.header = SM_STR("Idempotency-Key");
    run->up.request.trickle = api->stream;
    run->ops = &ops;
    if (api->idempotency.header.p != NULL) {
        run->at.ask.down = &api->idempotency;
        run->at.ask.shape = sm_upstream_shape_of(
            &(sm_upstream){.url = api->url, .headers = api->headers}, &api->idempotency);
        run->repeat = GW_CARRIES;
    }
    if (known_already(run, r))
        return;
    run->deadline_ns = sm_clock_deadline_ns(api->timeout_ms + WAIT_BEYOND_MS);
    /* A client that gives up by itself is not told what the call waits for. */
    run->approval_ns =
        sm_clock_deadline_ns(api->timeout_ms < WAIT_BEYOND_MS ? api->timeout_ms : WAIT_BEYOND_MS);
    gw_run_start(run);
}

/* An unsafe method: once. */
static void run_once(gw_request *r, const gw_upstream_api *api, sm_str path)
{
    gw_run *run = gw_run_new(r->g, r);
    sm_fault fault = {0};
    sm_look look = {0};
    bool answered = false;
    sm_err e = run == NULL ? SEMEL_E_NOMEM : make_call(run, r, api, path, &look, &answered, &fault);
    if (e == SM_OK && !answered && !look.reads)
        e = name_call(run, r, api, &answered);
    if (e == SM_OK && !answered && !look.reads) {
        start(run, r, api);
        return;
    }
    bool other = look.reads && gw_asks_other_method(r, &run->arena, look.args);
    bool post = r->method == GW_POST;
    if (run != NULL)
        gw_run_free(run);
    if (e != SM_OK)
        gw_proxy_refuse(r, e, &fault);
    else if (other)
        refuse_override(r);
    else if (!answered && !post)
        gw_problem(r, 422, "BAD_ARGUMENTS",
                   "Give the method a variant of another class: when: [{ field: /method, in: [PUT, "
                   "PATCH, DELETE] }].",
                   "The contract says that this call only reads, but of the methods that may write "
                   "only POST can be declared so.");
    else if (!answered)
        pass(r, api, path, true);
}

static bool is_plain_method(const char *method)
{
    while (*method != '\0' && !(*method >= 'a' && *method <= 'z'))
        method++;
    return *method == '\0';
}

/* The API that a request is for, and its path there. NULL: there is none of that name. */
static const gw_upstream_api *find_target(const gw_request *r, sm_str *path)
{
    *path = r->path;
    if (r->mounted != NULL)
        return r->mounted;
    const char *slash = memchr(r->rest.p, '/', r->rest.n);
    size_t n = slash == NULL ? r->rest.n : (size_t)(slash - r->rest.p);
    *path = slash == NULL ? SM_STR("") : (sm_str){slash, r->rest.n - n};
    return find_api(r->g->config, (sm_str){r->rest.p, n});
}

void gw_on_proxy(gw_request *r)
{
    sm_str path;
    const gw_upstream_api *api = r->upstream = find_target(r, &path);
    r->target = path;
    if (strcmp(r->method_text, "TRACE") == 0 || strcmp(r->method_text, "CONNECT") == 0) {
        /* TRACE gives back what was sent, secrets and all. */
        gw_problem(r, 405, "NOT_ALLOWED", "Use another method.", "%s is not passed on.",
                   r->method_text);
    } else if (!is_plain_method(r->method_text)) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "Write it in capital letters.",
                   "The method has lowercase letters, which some servers take for capital ones.");
    } else if (api == NULL) {
        gw_problem(r, 404, "NO_ROUTE", "Use one of the names under `proxies` in the configuration.",
                   "No API is configured under that name.");
    } else if (gw_asks_other_path(r)) {
        refuse_override(r);
    } else if (gw_hides_header(r, api)) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "Leave it out of Connection.",
                   "Connection lists a header that decides what the request means.");
    } else if (gw_is_upgrade(r)) {
        gw_problem(r, 501, "UNSUPPORTED",
                   "Connect to the API itself for this, or use its plain HTTP calls.",
                   "Websockets and other upgrades of a connection are not passed on.");
    } else if ((path.n > 0 && path.p[0] != '/') || !sm_path_stays(path) || sm_path_deceives(path) ||
               (r->query.p != NULL && !sound_query(r->query))) {
        gw_problem(r, 400, "BAD_ARGUMENTS",
                   "Percent-encode what is not plain, write letters and digits as they are, and "
                   "leave out \".\" and \"..\" segments.",
                   "The path or query cannot be passed on as it is.");
    } else if ((sm_method_does(r->method_text) & SM_METHOD_READS) != 0) {
        pass(r, api, path, false);
    } else {
        run_once(r, api, path);
    }
}
