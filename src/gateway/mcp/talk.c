/*
 * Talks. With sessions one talk is one session, and for a server that is a child one child; without
 * them all requests of one token share one, whose ids are made unique.
 *
 * A session belongs to the token that began it: to any other it is unknown.
 */
#include "gateway/mcp/mcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "base/clock.h"

#define IDLE_MS    1800000 /* a talk that nobody uses for so long is ended */
#define FUTILE_MAX 5

/* ---- finding ---------------------------------------------------------------------------------*/

static gw_talk *find(const gw_site *site, sm_str id, const gw_who *who)
{
    for (gw_talk *t = site->talks; t != NULL; t = t->next)
        if (!t->over && id.n == strlen(t->id) && sm_str_is(id, t->id) &&
            strcmp(t->who.id, who->id) == 0)
            return t;
    return NULL;
}

void gw_talk_join(gw_talk *t, mcp_channel *c)
{
    c->talk = t;
    c->prev = NULL;
    c->next = t->channels;
    if (c->next != NULL)
        c->next->prev = c;
    t->channels = c;
    t->used_ns = sm_clock_mono_ns();
}

void gw_talk_leave(mcp_channel *c)
{
    gw_talk *t = c->talk;
    if (t == NULL)
        return;
    if (t->stream == c)
        t->stream = NULL;
    *(c->prev != NULL ? &c->prev->next : &t->channels) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    c->talk = NULL;
    t->used_ns = sm_clock_mono_ns();
}

/* ---- making ----------------------------------------------------------------------------------*/

/* A child of a talk has ended. One with a session is over with it, for the session is; one that is
 * shared is started again, unless it is of no use. */
static bool on_ended(void *context, int status, bool served)
{
    gw_talk *t = mcp_session_context(context);
    bool crashed = WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
    t->futile = served ? 0 : t->futile + 1;
    return crashed && !t->over && t->futile < FUTILE_MAX;
}

static sm_err open_link(gw_talk *t, mcp_link **link, sm_fault *fault)
{
    gw_site *site = t->site;
    mcp_link_events events = mcp_session_events(t->session);
    if (site->argv != NULL) {
        mcp_child_options child = {.argv = site->argv,
                                   .envp = site->envp,
                                   .directory = site->config->directory.p,
                                   .ended = on_ended};
        return mcp_child_open(site->all->hub.loop, &child, &events, link, fault);
    }
    mcp_remote_options remote = {
        .http = site->all->g->http, .url = site->config->url, .plain = true};
    return mcp_remote_open(site->all->hub.loop, &remote, &events, link, fault);
}

static bool make_id(char out[GW_TALK_ID_MAX + 1])
{
    uint8_t bytes[GW_TALK_ID / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static void talk_free(gw_talk *t)
{
    gw_site *site = t->site;
    gw_leave_now(t);
    *(t->prev != NULL ? &t->prev->next : &site->talks) = t->next;
    if (t->next != NULL)
        t->next->prev = t->prev;
    site->talk_count--;
    mcp_session_free(t->session);
    free(t);
}

/* Makes room for another talk, among all and among this token's. With a server over HTTP the idle
 * talk that was used longest ago goes: the session itself is the server's. */
static bool make_room(const gw_site *site, const gw_who *who)
{
    gw_talk *oldest = NULL;
    size_t own = 0;
    for (gw_talk *t = site->talks; t != NULL; t = t->next)
        own += !t->over && strcmp(t->who.id, who->id) == 0;
    if (site->talk_count < GW_TALKS_MAX && own < GW_TALKS_EACH)
        return true;
    for (gw_talk *t = site->argv == NULL ? site->talks : NULL; t != NULL; t = t->next)
        if (t->channels == NULL && mcp_session_writes(t->session) == 0 &&
            (own < GW_TALKS_EACH || strcmp(t->who.id, who->id) == 0) &&
            (oldest == NULL || t->used_ns < oldest->used_ns))
            oldest = t;
    if (oldest == NULL)
        return false;
    talk_free(oldest);
    return true;
}

/* `id` is absent for one that we make ourselves. */
static gw_talk *make(mcp_channel *c, bool sessions, sm_str id)
{
    gw_site *site = c->site;
    bool child = site->argv != NULL;
    gw_talk *t = make_room(site, &c->r->who) ? calloc(1, sizeof *t) : NULL;
    if (t == NULL) {
        gw_channel_error(c, 503, -32603, "There are as many sessions as there may be; try later.");
        return NULL;
    }
    t->site = site;
    t->who = c->r->who;
    t->next = site->talks;
    if (t->next != NULL)
        t->next->prev = t;
    site->talks = t;
    site->talk_count++;
    if (id.p != NULL)
        memcpy(t->id, id.p, id.n);
    mcp_client_ops client = gw_mcp_client;
    client.context = t;
    mcp_session_options o = {.client = &client,
                             .actor = sm_str_from(t->who.actor),
                             .scope =
                                 t->who.scope[0] == '\0' ? (sm_str){0} : sm_str_from(t->who.scope),
                             .alone = !sessions || !child,
                             .anyone = !sessions,
                             .shared = !sessions && child};
    sm_fault fault = {0};
    mcp_link *link = NULL;
    sm_err e = sessions && id.p == NULL && !make_id(t->id) ? SEMEL_E_CRYPTO : SM_OK;
    if (e == SM_OK)
        e = mcp_session_new(site->server, &o, &t->session);
    if (e == SM_OK)
        e = open_link(t, &link, &fault);
    if (e == SM_OK) {
        mcp_session_attach(t->session, link);
        if (!child && sessions)
            mcp_session_elicits(t->session, gw_owner_elicits(id));
        t->used_ns = sm_clock_mono_ns();
        return t;
    }
    gw_say(&site->all->g->log, GW_ERROR, "an MCP server cannot be used", "name",
           site->config->name.p, "why", fault.text[0] != '\0' ? fault.text : semel_err_text(e),
           NULL);
    talk_free(t);
    gw_channel_error(c, 502, -32603, "The server cannot be started; nothing was done.");
    return NULL;
}

/* ---- whose a request is ----------------------------------------------------------------------*/

gw_talk *gw_talk_writing(const mcp_channel *c)
{
    gw_talk *t = c->session_id.n == 0 ? NULL : c->site->talks;
    while (t != NULL &&
           !(sm_str_eq(c->session_id, sm_str_from(t->id)) && strcmp(t->who.id, c->r->who.id) == 0 &&
             mcp_session_writes(t->session) > 0))
        t = t->next;
    return t;
}

/* Whether the client has left this session, and the server will get the DELETE. */
static bool is_left(const mcp_channel *c, sm_str id)
{
    for (const gw_talk *t = c->site->talks; t != NULL; t = t->next)
        if (t->leaving != NULL && sm_str_is(id, t->id) && strcmp(t->who.id, c->r->who.id) == 0)
            return true;
    return false;
}

/* Over HTTP the server makes and knows sessions, so every one that the client names is taken for
 * one, unless the client has left it: the server's end of the session would cut a call short. */
static gw_talk *for_remote(mcp_channel *c)
{
    sm_str id = c->session_id.p == NULL || gw_channel_modern(c) ? SM_STR("") : c->session_id;
    if (id.n > GW_TALK_ID_MAX || is_left(c, id)) {
        gw_channel_error(c, 404, -32001, "Session not found");
        return NULL;
    }
    gw_talk *t = find(c->site, id, &c->r->who);
    return t != NULL ? t : make(c, id.n > 0, id);
}

gw_talk *gw_talk_for(mcp_channel *c, const mcp_message *m)
{
    if (c->site->argv == NULL)
        return for_remote(c);
    if (gw_channel_modern(c)) {
        gw_talk *t = find(c->site, SM_STR(""), &c->r->who);
        if (t != NULL && t->lost) {
            gw_talk_end(t);
            t = NULL;
        }
        return t != NULL ? t : make(c, false, SM_STR(""));
    }
    if (c->session_id.p != NULL) {
        gw_talk *t = find(c->site, c->session_id, &c->r->who);
        if (t == NULL)
            gw_channel_error(c, 404, -32001, "Session not found");
        return t;
    }
    if (m != NULL && m->kind == MCP_REQUEST && strcmp(m->method, "initialize") == 0) {
        gw_channel_is(c, GW_CH_OPENING);
        return make(c, true, (sm_str){0});
    }
    gw_channel_error(c, 400, -32000, "Bad Request: Mcp-Session-Id header is required");
    return NULL;
}

/* ---- ending ----------------------------------------------------------------------------------*/

void gw_talk_end(gw_talk *t)
{
    bool stopping = t->site->all->stopping;
    if (t->over)
        return;
    t->over = true;
    t->over_ns = sm_clock_mono_ns();
    while (t->channels != NULL)
        if (stopping)
            gw_channel_error(t->channels, 503, -32603, "The gateway is being stopped.");
        else
            gw_channel_error(t->channels, 404, -32001, "Session not found");
    mcp_session_end(t->session);
}

/* Whether a talk that is over can go: nothing that writes is under way; or it has been for longer
 * than its lease, and what the server has stays a claim, which is in doubt. */
static bool has_ended(const gw_talk *t)
{
    return mcp_session_writes(t->session) == 0 ||
           (sm_clock_mono_ns() - t->over_ns > mcp_session_patience_ms(t->session) * 1000000 &&
            !mcp_session_elsewhere(t->session));
}

static bool ends(gw_talk *t, gw_sweep which)
{
    int64_t before = sm_clock_mono_ns() - (int64_t)IDLE_MS * 1000000;
    if (which == GW_RESTING)
        mcp_session_wind_up(t->session);
    return which == GW_ALL ||
           (mcp_session_writes(t->session) == 0 &&
            (which == GW_RESTING || (t->channels == NULL && t->used_ns < before)));
}

void gw_talk_sweep(gw_mcp *all, gw_sweep which)
{
    for (uint32_t i = 0; i < all->site_count; i++) {
        for (gw_talk *t = all->sites[i].talks, *next; t != NULL; t = next) {
            next = t->next;
            if (!t->over && ends(t, which))
                gw_talk_end(t);
            if (t->over && has_ended(t))
                talk_free(t);
        }
    }
}

void gw_talk_drop(gw_mcp *all)
{
    for (uint32_t i = 0; i < all->site_count; i++)
        while (all->sites[i].talks != NULL)
            talk_free(all->sites[i].talks);
}
