/*
 * A run's answer that is passed on as it comes, and recorded when it has ended.
 *
 *     upstream --> on_head: success? --> the run's own caller gets head and pieces at once
 *                       |                and as much is kept as can be recorded
 *                       no: kept as a whole, and judged as every answer is (run.c)
 *
 * From the head on the caller's request is the relay's: no deadline and no refusal can answer it
 * any more. A caller that reads slowly slows the upstream down; one that leaves does not stop it. A
 * whole answer is ended after it has been recorded, or could not be. One that broke off is cut at
 * once: it must not look whole.
 *
 * The exchange belongs to the HTTP client's thread; the request's own thread asks for more when
 * there is room. The lock of all attempts keeps them apart.
 */
#include <assert.h>

#include "base/header.h"
#include "base/limits.h"
#include "gateway/run/returned.h"
#include "gateway/run/runs.h"
#include "gateway/telemetry/metrics.h"

static void on_room(gw_request *r)
{
    sm_serve *s = &r->g->runs->serve;
    pthread_mutex_lock(&s->lock);
    const gw_run *run = r->own;
    if (run != NULL && run->relay.x != NULL)
        sm_http_resume(run->relay.x);
    pthread_mutex_unlock(&s->lock);
}

/* Leaves a header out. The length of the answer is not told: otherwise the client would have the
 * whole of it before it is recorded. */
static bool is_length(gw_request *r, sm_str name, sm_str value)
{
    (void)r;
    (void)value;
    return sm_header_is(name, SM_STR("Content-Length"));
}

static void start(gw_run *run, gw_request *r, const sm_http_result *head)
{
    sm_serve *s = run->at.serve;
    if (run->at.hold == SM_HOLDS_CLAIM)
        gw_set(r, "Semel-Effect", sm_str_from(run->at.handle));
    r->on_header = is_length;
    gw_returned_set(r, head);
    pthread_mutex_lock(&s->lock);
    r->own = run; /* for on_room */
    pthread_mutex_unlock(&s->lock);
    run->relay.r = r;
    assert(gw_run_flaw(run) == NULL);
    gw_flow_start(r, head->status, GW_FLOW_BYTES, on_room);
}

bool gw_relay_head(void *context, const sm_http_result *head)
{
    gw_run *run = context;
    if (head->status < 200 || head->status > 299 || head->status == 204 || head->status == 205)
        return false;
    gw_request *r = gw_run_take(run);
    sm_buf_clear(&run->body);
    run->relay.began = true;
    run->relay.bytes = 0;
    if (r != NULL)
        start(run, r, head);
    return true;
}

bool gw_relay_data(void *context, sm_str piece)
{
    gw_run *run = context;
    if (run->relay.r != NULL && !gw_flow_push(run->relay.r, piece))
        return false;
    size_t room = run->body.len < SM_OUTCOME_MAX ? SM_OUTCOME_MAX - run->body.len : 0;
    run->relay.bytes += piece.n;
    sm_buf_str(&run->body, (sm_str){piece.p, piece.n < room ? piece.n : room});
    return true;
}

/* Ends the caller's answer; the request is not the relay's any more. */
static void let_go(gw_run *run, bool whole)
{
    sm_serve *s = run->at.serve;
    gw_request *r = run->relay.r;
    run->relay.r = NULL;
    pthread_mutex_lock(&s->lock);
    r->own = NULL;
    pthread_mutex_unlock(&s->lock);
    gw_flow_end(r, whole);
}

void gw_relay_over(gw_run *run, bool whole)
{
    sm_serve *s = run->at.serve;
    pthread_mutex_lock(&s->lock);
    run->relay.x = NULL;
    pthread_mutex_unlock(&s->lock);
    if (run->relay.r != NULL && !whole)
        let_go(run, false);
}

bool gw_relay_end(gw_run *run, const semel_answer *a)
{
    if (run->relay.r == NULL)
        return false;
    gw_count_answer(run->g->metrics, a);
    if (run->doubt == NULL && run->at.ended != SM_ENDED_UNRECORDED)
        gw_ledger_works(run->g);
    let_go(run, true);
    return true;
}
