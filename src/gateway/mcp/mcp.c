/* The MCP servers of a gateway, and the thread on which everything of theirs happens. */
#include "gateway/mcp/mcp.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"

#define SWEEP_MS    1000
#define LOOK_MS     20
#define CHILDREN_MS 5000    /* for servers to end */
#define SILENCE_MS  3600000 /* of a stream that passes through */

static void say(void *context, mcp_level level, const char *text)
{
    static const gw_log_level levels[] = {GW_INFO, GW_WARN, GW_ERROR};
    gateway *g = context;
    gw_say(&g->log, levels[level], "mcp", "what", text, NULL);
}

/* ---- sites -----------------------------------------------------------------------------------*/

static bool make_argv(gw_site *site)
{
    const gw_texts *words = &site->config->command;
    site->argv = sm_arena_zalloc(&site->arena, words->n + 1, sizeof *site->argv);
    if (site->argv == NULL)
        return false;
    for (uint32_t i = 0; i < words->n; i++)
        site->argv[i] = (char *)(uintptr_t)words->v[i].p;
    return true;
}

/* What of our environment a server gets: what any program needs, and none of our secrets. */
static const char *const inherited[] = {"PATH", "HOME",   "USER", "LOGNAME", "SHELL",
                                        "TERM", "TMPDIR", "LANG", "LC_ALL",  "TZ"};
#define INHERITED (sizeof inherited / sizeof inherited[0])

static bool configured(const sm_headers *env, const char *name)
{
    for (uint32_t i = 0; i < env->n; i++)
        if (sm_str_is(env->v[i].name, name))
            return true;
    return false;
}

/* The environment of a server: that, and what the configuration says. */
static sm_err make_envp(gw_site *site, sm_fault *fault)
{
    const sm_headers *env = &site->config->env;
    size_t at = 0;
    sm_err e = SM_OK;
    site->envp = sm_arena_zalloc(&site->arena, INHERITED + env->n + 1, sizeof *site->envp);
    if (site->envp == NULL)
        return SEMEL_E_NOMEM;
    for (uint32_t i = 0; e == SM_OK && i < env->n; i++) {
        sm_buf value;
        sm_buf_init(&value, 65536);
        e = gw_expand(env->v[i].value, &value, fault);
        sm_str text = sm_arena_printf(&site->arena, "%.*s=%.*s", SM_FMT(env->v[i].name),
                                      (int)value.len, value.p == NULL ? "" : value.p);
        if (value.p != NULL)
            explicit_bzero(value.p, value.cap);
        sm_buf_fini(&value);
        if (e == SM_OK && text.p == NULL)
            e = SEMEL_E_NOMEM;
        site->envp[at++] = (char *)(uintptr_t)text.p;
    }
    for (size_t i = 0; e == SM_OK && i < INHERITED; i++) {
        const char *value = getenv(inherited[i]);
        if (value == NULL || configured(env, inherited[i]))
            continue;
        sm_str text = sm_arena_printf(&site->arena, "%s=%s", inherited[i], value);
        e = text.p == NULL ? SEMEL_E_NOMEM : SM_OK;
        site->envp[at++] = (char *)(uintptr_t)text.p;
    }
    return e;
}

static sm_err open_site(gw_mcp *all, gw_site *site, const gw_mcp_server *config, sm_fault *fault)
{
    char name[MCP_NAME_MAX + 24], pins[SM_PATH_MAX];
    site->all = all;
    site->config = config;
    sm_arena_init(&site->arena, (size_t)4 << 20);
    site->api = (gw_upstream_api){.name = config->name,
                                  .url = config->url,
                                  .headers = config->headers,
                                  .mcp = true,
                                  .timeout_ms = SILENCE_MS};
    snprintf(name, sizeof name, "mcp/serve-%.*s.json", SM_FMT(config->name));
    mcp_server_options o = {.name = config->name,
                            .pins = sm_state_path(name, pins) ? pins : NULL,
                            .approve_here = true};
    sm_err e = mcp_server_new(&all->hub, &o, &site->server);
    if (e != SM_OK || config->command.n == 0)
        return e;
    sm_fault wrong = {0};
    e = make_argv(site) ? make_envp(site, &wrong) : SEMEL_E_NOMEM;
    if (e != SEMEL_E_INVALID)
        return e;
    /* The others can be used all the same. */
    snprintf(site->flaw, sizeof site->flaw, "%s", wrong.text);
    gw_say(&all->g->log, GW_ERROR, "an MCP server cannot be used", "name", name, "why", wrong.text,
           NULL);
    (void)fault;
    return SM_OK;
}

/* ---- life ------------------------------------------------------------------------------------*/

static void *run(void *context)
{
    gw_mcp *all = context;
    mcp_loop_run(all->hub.loop);
    return NULL;
}

static void on_sweep(mcp_alarm *t)
{
    gw_mcp *all = SM_CONTAINER(t, gw_mcp, sweep);
    gw_talk_sweep(all, all->stopping ? GW_RESTING : GW_UNUSED);
    mcp_loop_time(all->hub.loop, &all->sweep, sm_clock_deadline_ns(SWEEP_MS));
}

sm_err gw_mcp_start(gateway *g, gw_mcp **out, sm_fault *fault)
{
    const gw_mcps *servers = &g->config->mcp;
    *out = NULL;
    if (servers->n == 0)
        return SM_OK;
    gw_mcp *all = *out = calloc(1, sizeof *all);
    if (all == NULL)
        return SEMEL_E_NOMEM;
    all->g = g;
    all->sweep.due = on_sweep;
    all->hub.ledger = g->ledger;
    all->hub.pool = g->pool;
    all->hub.waits = g->waits;
    all->hub.waiting_max = (size_t)g->config->limits.waiting;
    all->hub.gateway = true;
    all->hub.ledger_option = "";
    all->hub.say = say;
    all->hub.say_context = g;
    all->hub.answer = semel_answer_new();
    mcp_hub_start(&all->hub);
    all->sites = calloc(servers->n, sizeof *all->sites);
    sm_err e = all->hub.answer == NULL || all->sites == NULL ? SEMEL_E_NOMEM
                                                             : mcp_loop_new(&all->hub.loop, fault);
    for (uint32_t i = 0; e == SM_OK && i < servers->n; i++) {
        all->site_count++;
        e = open_site(all, &all->sites[i], &servers->v[i], fault);
    }
    if (e != SM_OK)
        return e;
    mcp_loop_time(all->hub.loop, &all->sweep, sm_clock_deadline_ns(SWEEP_MS));
    all->running = sm_thread_start(&all->thread, run, all, "semel-mcp");
    return all->running ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "no thread can be started");
}

/* On the loop: nothing more is taken, and the loop ends once nothing that writes is under way or
 * the time is up. */
typedef struct ending {
    mcp_post post;
    mcp_alarm timer;
    gw_mcp *all;
    int64_t deadline_ns;
    bool dropped; /* the talks are gone, and children that have to end are waited for */
} ending;

static void look_for_end(mcp_alarm *t)
{
    ending *e = SM_CONTAINER(t, ending, timer);
    gw_mcp *all = e->all;
    bool late = sm_clock_mono_ns() >= e->deadline_ns;
    gw_talk_sweep(all, late ? GW_ALL : GW_RESTING);
    if (late)
        atomic_store(&all->hub.stopping, true);
    if (!e->dropped &&
        (all->hub.calls.taken == 0 || (late && atomic_load(&all->hub.serve.away) == 0))) {
        gw_talk_drop(all);
        e->dropped = true;
        e->deadline_ns = sm_clock_deadline_ns(CHILDREN_MS);
    } else if (e->dropped && (mcp_loop_kept(all->hub.loop) == 0 || late)) {
        mcp_loop_stop(all->hub.loop);
        return;
    }
    mcp_loop_time(all->hub.loop, t, sm_clock_deadline_ns(LOOK_MS));
}

static void on_ending(mcp_post *post)
{
    ending *e = SM_CONTAINER(post, ending, post);
    e->all->stopping = true;
    look_for_end(&e->timer);
}

void gw_mcp_quiesce(gw_mcp *all, int64_t deadline_ns)
{
    if (all == NULL || !all->running)
        return;
    ending e = {.post = {.take = on_ending},
                .timer = {.due = look_for_end},
                .all = all,
                .deadline_ns = deadline_ns};
    mcp_loop_post(all->hub.loop, &e.post);
    pthread_join(all->thread, NULL);
    mcp_loop_untime(all->hub.loop, &e.timer);
    all->running = false;
}

void gw_mcp_stop(gw_mcp *all)
{
    if (all == NULL)
        return;
    if (all->hub.loop != NULL)
        mcp_loop_untime(all->hub.loop, &all->sweep);
    for (uint32_t i = 0; i < all->site_count; i++) {
        mcp_server_free(all->sites[i].server);
        sm_arena_fini(&all->sites[i].arena);
    }
    mcp_loop_free(all->hub.loop);
    semel_answer_free(all->hub.answer);
    sm_serve_fini(&all->hub.serve);
    free(all->sites);
    free(all);
}
