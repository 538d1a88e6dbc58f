/*
 * Starts a server and asks it for its tools as a client would, for --suggest and the doctor.
 *
 * It tries the older handshake first, which nearly all servers know. If the server refuses that, it
 * uses the newer way.
 */
#include <stddef.h>

#include "base/clock.h"
#include "cli/mcp/mcp.h"
#include "json/write.h"
#include "mcp/mcp.h"

#define ANSWER_MS 60000 /* starting a server may include downloading it */
#define JUNK_MS   3000  /* after other output: the server runs, and answers soon or never */
#define CHILD_MS  5000  /* for the server to end */

typedef enum stage { GREETING, LISTING } stage;

typedef struct asking {
    mcp_loop *loop;
    mcp_link *link;
    mcp_tools *tools;
    mcp_way way;
    mcp_alarm timer;
    stage stage;
    bool modern;
    bool junk; /* it has said something that no server says */
    unsigned number;
    char why[SEMEL_FAULT_TEXT_MAX]; /* empty: nothing is wrong */
} asking;

static void stop(asking *q, const char *why)
{
    if (why != NULL)
        snprintf(q->why, sizeof q->why, "%s", why);
    mcp_loop_stop(q->loop);
}

static void send_text(asking *q, const sm_buf *text)
{
    q->way = (mcp_way){0};
    if (text->err != SM_OK || !mcp_link_send(q->link, sm_buf_view(text), &q->way))
        stop(q, text->err != SM_OK ? semel_err_text(text->err) : "the server is not running");
}

/* Starts a text: a request with the next number, up to what is in its params. */
static void begin_request(sm_buf *out, asking *q, const char *method)
{
    char id[16];
    snprintf(id, sizeof id, "%u", ++q->number);
    sm_buf_init(out, MCP_LINE_MAX);
    mcp_put_request(out, sm_str_from(id), method);
    sm_put_open(out, "params", '{');
}

static void put_client_info(sm_buf *out, const char *member)
{
    sm_put_open(out, member, '{');
    sm_put_text(out, "name", SM_STR("semel"));
    sm_put_text(out, "version", sm_str_from(semel_version()));
    sm_buf_byte(out, '}');
}

static void greet(asking *q)
{
    sm_buf text;
    begin_request(&text, q, "initialize");
    sm_put_text(&text, "protocolVersion", SM_STR(MCP_LEGACY));
    sm_put_raw(&text, "capabilities", SM_STR("{}"));
    put_client_info(&text, "clientInfo");
    sm_buf_text(&text, "}}");
    send_text(q, &text);
    sm_buf_fini(&text);
}

static void list(asking *q, sm_str cursor)
{
    sm_buf text;
    begin_request(&text, q, "tools/list");
    if (q->modern) {
        sm_put_open(&text, "_meta", '{');
        sm_put_text(&text, "io.modelcontextprotocol/protocolVersion", SM_STR(MCP_MODERN));
        put_client_info(&text, "io.modelcontextprotocol/clientInfo");
        sm_put_raw(&text, "io.modelcontextprotocol/clientCapabilities", SM_STR("{}"));
        sm_buf_byte(&text, '}');
    }
    sm_put_raw(&text, "cursor", cursor);
    sm_buf_text(&text, "}}");
    q->stage = LISTING;
    send_text(q, &text);
    sm_buf_fini(&text);
}

static void on_greeted(asking *q, const mcp_message *m)
{
    q->modern = m->kind == MCP_ERROR;
    if (!q->modern)
        mcp_link_send(q->link, SM_STR(MCP_INITIALIZED), NULL);
    list(q, (sm_str){0});
}

static void on_listed(asking *q, const mcp_message *m)
{
    sm_str cursor = {0};
    sm_fault fault = {0};
    if (m->kind == MCP_ERROR)
        stop(q, "the server answers tools/list with an error");
    else if (mcp_tools_add(q->tools, m->result, &cursor, &fault) != SM_OK)
        stop(q, fault.text);
    else if (cursor.p != NULL && q->number < MCP_PAGES_MAX)
        list(q, cursor);
    else
        stop(q, NULL);
}

/* Some servers greet with a line of their own; a program that is not a server never gets further.
 * Before it has answered, a server has nothing to ask for: that is our request, given back. */
static void on_junk(asking *q)
{
    if (q->junk)
        return;
    q->junk = true;
    mcp_loop_untime(q->loop, &q->timer);
    mcp_loop_time(q->loop, &q->timer, sm_clock_deadline_ns(JUNK_MS));
}

static void on_message(void *context, mcp_way *way, sm_str text)
{
    asking *q = context;
    mcp_message m;
    char id[16];
    (void)way;
    snprintf(id, sizeof id, "%u", q->number);
    mcp_read(text, &m);
    if (q->stage == GREETING && (m.kind == MCP_INVALID || m.kind == MCP_REQUEST))
        on_junk(q);
    if ((m.kind != MCP_RESULT && m.kind != MCP_ERROR) || !sm_str_is(m.id, id))
        return; /* junk, or a request that a client without capabilities need not answer */
    mcp_link_forget(q->link, &q->way);
    if (q->stage == GREETING)
        on_greeted(q, &m);
    else
        on_listed(q, &m);
}

static void on_lost(void *context, mcp_way *way, const mcp_loss *loss)
{
    (void)way;
    stop(context, loss->why);
}

static void on_too_long(void *context, const mcp_text_line *line)
{
    (void)line;
    stop(context, "the server's answer is larger than 16 MiB");
}

static void on_down(void *context, const char *why, bool for_good)
{
    (void)for_good;
    stop(context, why);
}

static void on_nothing(void *context)
{
    (void)context;
}

static bool on_ended(void *context, int status, bool served)
{
    (void)context;
    (void)status;
    (void)served;
    return false;
}

static void on_late(mcp_alarm *t)
{
    asking *q = SM_CONTAINER(t, asking, timer);
    stop(q, q->junk ? "the command prints something, but does not speak MCP"
                    : "the server did not answer within a minute");
}

static sm_err open_link(const cli_mcp_options *o, sm_signals *signals, cli_mcp_remote *remote,
                        asking *q, sm_fault *fault)
{
    mcp_link_events events = {.message = on_message,
                              .lost = on_lost,
                              .too_long = on_too_long,
                              .up = on_nothing,
                              .down = on_down,
                              .room = on_nothing,
                              .context = q};
    mcp_child_options child = {.argv = o->argv, .mask = &signals->before, .ended = on_ended};
    if (o->argv != NULL)
        return mcp_child_open(q->loop, &child, &events, &q->link, fault);
    sm_err e = cli_mcp_remote_make(o, remote, fault);
    return e == SM_OK ? mcp_remote_open(q->loop, &remote->options, &events, &q->link, fault) : e;
}

typedef struct steering {
    mcp_descriptor watch;
    sm_signals *signals;
    asking *q;
} steering;

/* A signal that asks us to end. */
static void on_signal(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    steering *s = SM_CONTAINER(w, steering, watch);
    if (sm_signals_ending(s->signals) != 0)
        stop(s->q, "interrupted");
}

int cli_mcp_list(const cli_mcp_options *o, sm_signals *signals, mcp_tools **out, sm_fault *fault)
{
    asking q = {.timer = {.due = on_late}};
    steering steer = {{.fd = signals->fd, .ready = on_signal}, signals, &q};
    cli_mcp_remote remote = {0};
    int code = CLI_OK;
    sm_err e = mcp_loop_new(&q.loop, fault);
    q.tools = mcp_tools_new();
    if (e == SM_OK && q.tools == NULL)
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    if (e == SM_OK)
        e = open_link(o, signals, &remote, &q, fault);
    if (e == SM_OK) {
        greet(&q);
        mcp_loop_time(q.loop, &q.timer, sm_clock_deadline_ns(ANSWER_MS));
        mcp_loop_watch(q.loop, &steer.watch, MCP_READABLE);
        mcp_loop_run(q.loop);
        mcp_loop_unwatch(q.loop, &steer.watch);
        mcp_loop_untime(q.loop, &q.timer);
        if (q.why[0] != '\0') {
            sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "no tools could be listed: %s", q.why);
            code = CLI_UNAVAILABLE;
        }
    } else {
        code = e == SEMEL_E_NOT_FOUND ? 127 : cli_code(e);
    }
    mcp_link_close(q.link);
    if (q.loop != NULL)
        mcp_loop_settle(q.loop, CHILD_MS);
    cli_mcp_remote_free(&remote);
    mcp_loop_free(q.loop);
    *out = q.tools;
    return code;
}
