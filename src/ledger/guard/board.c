/* Reading the board in time, and changing it by compare-and-swap. */
#include "ledger/guard/board.h"

#include "base/clock.h"
#include "base/thread.h"
#include "ledger/guard/shared.h"

/* Half a second less than a stop may take: a write takes time, too. */
#define FRESH_MS 500

#define READ_MS 250
#define REST_MS 5000 /* after the last write that began */

static const sm_shared board_document = {.kind = "/board"};

void sm_noticeboard_init(sm_noticeboard *b)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &attr);
    pthread_condattr_destroy(&attr);
    sm_arena_init(&b->arena, SM_ARENA_MAX);
}

void sm_noticeboard_stop(sm_noticeboard *b)
{
    pthread_mutex_lock(&b->lock);
    bool started = b->started;
    b->stop = true;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    if (started)
        pthread_join(b->reader, NULL);
}

void sm_noticeboard_fini(sm_noticeboard *b)
{
    sm_arena_fini(&b->arena);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
}

/* ---- knowing it ------------------------------------------------------------------------------*/

static sm_err unreadable(semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_CORRUPT,
                        "the ledger is damaged: what was stopped cannot be read; run `semel audit "
                        "verify`");
}

/* Takes over what w->cur says, as it was when it was asked for. */
static sm_err take(semel *s, const sm_work *w, sm_str text, int64_t asked_ns, semel_fault *fault)
{
    sm_noticeboard *b = &s->board;
    sm_err e = SM_OK;
    pthread_mutex_lock(&b->lock);
    bool other = w->cur.version != b->version ||
                 (b->version != 0 && memcmp(&w->cur.head, &b->head, sizeof b->head) != 0);
    if (w->cur.version > b->version || (other && asked_ns > atomic_load(&b->read_ns))) {
        sm_arena fresh;
        sm_board now;
        sm_arena_init(&fresh, SM_ARENA_MAX);
        if (sm_board_read(&fresh, text, &now)) {
            sm_arena_fini(&b->arena);
            b->arena = fresh;
            b->now = now;
            b->version = w->cur.version;
            b->head = w->cur.head;
            atomic_fetch_add(&b->epoch, 1);
        } else {
            sm_arena_fini(&fresh);
            e = unreadable(fault);
        }
    }
    if (e == SM_OK && asked_ns > atomic_load(&b->read_ns))
        atomic_store(&b->read_ns, asked_ns);
    pthread_mutex_unlock(&b->lock);
    return e;
}

static sm_err read_board(semel *s, sm_work *w, sm_str *text)
{
    int64_t asked_ns = sm_clock_mono_ns();
    sm_err e = sm_shared_read(s, w, &board_document, text);
    return e == SM_OK ? take(s, w, *text, asked_ns, &w->fault) : e;
}

sm_err sm_board_refresh(semel *s, int64_t age_ms, semel_fault *fault)
{
    int64_t read_ns = atomic_load(&s->board.read_ns);
    if (read_ns != 0 && sm_clock_mono_ns() - read_ns < age_ms * 1000000)
        return SM_OK;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_work *w = sm_work_start(a);
    sm_str text;
    sm_err e = read_board(s, w, &text);
    if (e != SM_OK && fault != NULL)
        *fault = w->fault;
    semel_answer_free(a);
    return e;
}

/* Waits until the board is to be read again; false when it is time to end. */
static bool wait_to_read(sm_noticeboard *b)
{
    int64_t until_ns = sm_clock_deadline_ns(READ_MS);
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000),
                          .tv_nsec = (long)(until_ns % 1000000000)};
    pthread_mutex_lock(&b->lock);
    b->resting = sm_clock_mono_ns() - b->asked_ns > (int64_t)REST_MS * 1000000;
    while (!b->stop && (b->resting || sm_clock_mono_ns() < until_ns)) {
        if (b->resting)
            pthread_cond_wait(&b->wake, &b->lock);
        else
            pthread_cond_timedwait(&b->wake, &b->lock, &at);
    }
    bool going = !b->stop;
    pthread_mutex_unlock(&b->lock);
    return going;
}

static void *keep_reading(void *context)
{
    semel *s = context;
    while (wait_to_read(&s->board))
        sm_board_refresh(s, READ_MS / 2, NULL);
    return NULL;
}

/* Under the lock. Without the thread, each caller reads the board itself. */
static void rouse(semel *s)
{
    sm_noticeboard *b = &s->board;
    b->asked_ns = sm_clock_mono_ns();
    if (!b->started && !s->o.one_shot)
        b->started = sm_thread_start(&b->reader, keep_reading, s, "semel-board");
    if (b->resting) {
        b->resting = false;
        pthread_cond_signal(&b->wake);
    }
}

sm_err sm_board_ask(semel *s, sm_arena *a, sm_str scope, sm_str tool, sm_halt *out, bool *stopped,
                    semel_fault *fault)
{
    *stopped = false;
    sm_err e = sm_board_refresh(s, FRESH_MS, fault);
    if (e != SM_OK)
        return e;
    pthread_mutex_lock(&s->board.lock);
    rouse(s);
    const sm_halt *h = sm_board_stops(&s->board.now, scope, tool);
    if (h != NULL) {
        *stopped = true;
        *out = *h;
        if (!sm_arena_keep(a, (sm_str *const[]){&out->name, &out->reason, &out->by, &out->bound},
                           4))
            e = SEMEL_E_NOMEM;
    }
    pthread_mutex_unlock(&s->board.lock);
    return e;
}

bool sm_board_loop(semel *s, sm_str scope, sm_halt *out)
{
    pthread_mutex_lock(&s->board.lock);
    const sm_halt *h = sm_board_find(&s->board.now, SM_HALT_LOOP, scope);
    if (h != NULL && out != NULL)
        *out = (sm_halt){.kind = h->kind, .at = h->at, .match = h->match};
    pthread_mutex_unlock(&s->board.lock);
    return h != NULL;
}

bool sm_board_find_circuit(semel *s, const sm_circuit_name *of, sm_circuit *out)
{
    sm_board_refresh(s, FRESH_MS, NULL);
    pthread_mutex_lock(&s->board.lock);
    const sm_circuit *c = sm_board_circuit(&s->board.now, of);
    if (c != NULL)
        *out = (sm_circuit){
            .state = c->state, .since = c->since, .until = c->until, .failures = c->failures};
    pthread_mutex_unlock(&s->board.lock);
    return c != NULL;
}

bool sm_board_agrees(semel *s, const sm_circuit *c)
{
    pthread_mutex_lock(&s->board.lock);
    bool agrees = sm_board_says(&s->board.now, c);
    pthread_mutex_unlock(&s->board.lock);
    return agrees;
}

sm_err sm_board_circuits(semel *s, sm_arena *a, const sm_circuit **out, uint32_t *n,
                         semel_fault *fault)
{
    *out = NULL;
    *n = 0;
    sm_err e = sm_board_refresh(s, 0, fault);
    if (e != SM_OK)
        return e;
    pthread_mutex_lock(&s->board.lock);
    const sm_board *b = &s->board.now;
    sm_circuit *list = sm_arena_zalloc(a, b->n_circuits + 1, sizeof *list);
    bool kept = list != NULL;
    for (uint32_t i = 0; i < b->n_circuits && kept; i++) {
        if (b->circuits[i].state == SM_CIRCUIT_CLOSED)
            continue;
        sm_circuit *c = &list[(*n)++];
        *c = b->circuits[i];
        kept = sm_arena_keep(a, (sm_str *const[]){&c->of.tool, &c->of.upstream, &c->of.tenant}, 3);
    }
    pthread_mutex_unlock(&s->board.lock);
    *out = list;
    return kept ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

sm_err sm_board_copy(semel *s, sm_arena *a, sm_board *out, semel_fault *fault)
{
    *out = (sm_board){0};
    sm_err e = sm_board_refresh(s, 0, fault);
    if (e != SM_OK)
        return e;
    pthread_mutex_lock(&s->board.lock);
    const sm_board *now = &s->board.now;
    out->halts = sm_arena_alloc(a, (now->n + 1) * sizeof *out->halts);
    for (uint32_t i = 0; out->halts != NULL && i < now->n; i++) {
        sm_halt *h = &out->halts[out->n++];
        *h = now->halts[i];
        if (!sm_arena_keep(a, (sm_str *const[]){&h->name, &h->reason, &h->by, &h->bound}, 4))
            out->halts = NULL;
    }
    pthread_mutex_unlock(&s->board.lock);
    return out->halts != NULL ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

/* ---- changing it -----------------------------------------------------------------------------*/

/* What the trail says about a halt. `ended`: so many runs that loop are off the board now, because
 * they were on it for long or made room. */
static void put_body(sm_work *w, const sm_halt *h, sm_str reason, uint32_t ended)
{
    sm_body_start(w);
    sm_body_text(w, "kind", sm_str_from(sm_halt_name(h->kind)));
    sm_body_text(w, "name", h->name);
    sm_body_text(w, "reason", reason);
    if (h->kind == SM_HALT_LOOP) {
        sm_body_text(w, "detector", sm_str_from(sm_loop_name(h->match.detector)));
        sm_body_number(w, "period", h->match.period);
        sm_body_number(w, "count", h->match.count);
    }
    if (ended > 0)
        sm_body_number(w, "loops_ended", ended);
}

static sm_err write_board(semel *s, sm_work *w, const sm_board *b, sm_history note, sm_str actor)
{
    sm_buf_clear(&w->json);
    sm_board_put(b, &w->json);
    if (w->json.err != SM_OK)
        return w->json.err;
    if (w->json.len > SM_OUTCOME_MAX)
        return sm_fault_set(&w->fault, SEMEL_E_LIMIT,
                            "too much is stopped already; resume some of it first");
    sm_str text = sm_buf_view(&w->json);
    int64_t asked_ns = sm_clock_mono_ns();
    sm_err e = sm_shared_write(s, w, &board_document, text, note, actor);
    return e == SM_OK ? take(s, w, text, asked_ns, &w->fault) : e;
}

/* One try to put `add` on the board, or to take `remove` off. */
static sm_err change_once(semel *s, sm_work *w, const sm_halt *add, const sm_halt *remove,
                          sm_str actor, sm_str reason, bool *changed)
{
    sm_str text;
    sm_board b;
    *changed = false;
    sm_err e = read_board(s, w, &text);
    if (e != SM_OK)
        return e;
    if (!sm_board_read(&w->call, text, &b))
        return unreadable(&w->fault);
    uint32_t loops = sm_board_loops(&b);
    sm_board_tidy(&b, w->now);
    const sm_halt *of = add != NULL ? add : remove;
    sm_halt *there = sm_board_find(&b, of->kind, of->name);
    if (add == NULL && there != NULL && !sm_halt_yields(there, remove->bound))
        return sm_fault_set(&w->fault, SEMEL_E_BARRED,
                            "this was stopped by somebody who is not bound to \"%.*s\"",
                            SM_FMT(remove->bound));
    if (add != NULL && there != NULL && !sm_halt_yields(add, there->bound)) {
        sm_board_remove(&b, there);
        there = NULL;
    }
    if ((there != NULL) == (add != NULL))
        return SM_OK;
    if (add != NULL && !sm_board_add(&w->call, &b, add))
        return sm_fault_set(&w->fault, SEMEL_E_LIMIT,
                            "as much is stopped as can be; resume some of it first");
    sm_halt gone = add != NULL ? *add : *there;
    if (add == NULL)
        sm_board_remove(&b, there);
    uint32_t now = sm_board_loops(&b) + (gone.kind == SM_HALT_LOOP && add == NULL) -
                   (gone.kind == SM_HALT_LOOP && add != NULL);
    put_body(w, &gone, reason, loops - now);
    bool loop = of->kind == SM_HALT_LOOP;
    sm_history note =
        add != NULL ? (loop ? SM_N_TRIPPED : SM_N_STOPPED) : (loop ? SM_N_REOPENED : SM_N_RESUMED);
    e = write_board(s, w, &b, note, actor);
    *changed = e == SM_OK;
    return e;
}

static sm_err change(semel *s, const sm_halt *add, const sm_halt *remove, sm_str actor,
                     sm_str reason, bool *changed, semel_fault *fault)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_err e = SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = change_once(s, sm_work_start(a), add, remove, actor, reason, changed);
    if (e != SM_OK && fault != NULL)
        *fault = sm_work_of(a)->fault;
    semel_answer_free(a);
    return e;
}

sm_err sm_board_halt(semel *s, const sm_halt *h, sm_str actor, bool *changed, semel_fault *fault)
{
    sm_halt whole = *h;
    whole.at = sm_now(s);
    if (h->kind != SM_HALT_LOOP)
        whole.by = sm_ledger_actor(s, actor);
    return change(s, &whole, NULL, actor, h->reason, changed, fault);
}

sm_err sm_board_release(semel *s, sm_halt_kind kind, sm_str name, sm_str bound, sm_str actor,
                        sm_str reason, bool *changed, semel_fault *fault)
{
    sm_halt h = {.kind = kind, .name = name, .bound = bound};
    return change(s, NULL, &h, actor, reason, changed, fault);
}

/* One try. */
static sm_err post_once(semel *s, sm_work *w, sm_truth_fn *truth, void *context)
{
    sm_str text;
    sm_board b;
    sm_circuit c;
    sm_err e = read_board(s, w, &text);
    if (e == SM_OK)
        e = truth(context, &c);
    if (e != SM_OK)
        return e;
    if (!sm_board_read(&w->call, text, &b))
        return unreadable(&w->fault);
    sm_board_tidy(&b, w->now);
    if (sm_board_says(&b, &c))
        return SM_OK;
    if (!sm_board_set_circuit(&w->call, &b, &c))
        return sm_fault_set(&w->fault, SEMEL_E_LIMIT, "%u circuits are open, which is the most",
                            SM_CIRCUITS_MAX);
    sm_body_start(w);
    sm_body_text(w, "kind", SM_STR("circuit"));
    sm_body_text(w, "tool", c.of.tool);
    sm_body_text(w, "upstream", c.of.upstream);
    sm_body_text(w, "tenant", c.of.tenant);
    sm_body_text(w, "circuit", sm_str_from(sm_circuit_state_name(c.state)));
    return write_board(s, w, &b, SM_N_POSTED, (sm_str){0});
}

sm_err sm_board_post(semel *s, sm_truth_fn *truth, void *context, semel_fault *fault)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_err e = SEMEL_E_STALE;
    for (int races = 0; e == SEMEL_E_STALE && races < SM_RACES_MAX; races++)
        e = post_once(s, sm_work_start(a), truth, context);
    if (e != SM_OK && fault != NULL)
        *fault = sm_work_of(a)->fault;
    semel_answer_free(a);
    return e;
}
