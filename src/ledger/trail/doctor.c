/*
 * Symptoms: what the newest effects say about how the ledger is used.
 *
 * Equal arguments under different keys within seconds: something that should not be part of the
 * identity is (a timestamp, a fresh key on every try). Near-duplicates: two calls that differ in
 * one place only, close together. Effects long in doubt: nobody has looked. A key used again soon
 * after its window: the window is shorter than the retries are apart. Replays of an unlisted tool
 * after another tool of the same scope had run: if the tool only reads, they are stale. Claims that
 * were never committed, by whom they were taken: the lease is over, and nobody told of an end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/duration.h"
#include "base/limits.h"
#include "json/diff.h"
#include "ledger/guard/shared.h"
#include "ledger/trail/unended.h"
#include "ledger/work/ledger.h"

#define NEAR_MS     10000              /* "within seconds" */
#define LONG_MS     (3600 * 1000)      /* "long in doubt" */
#define LATE_MS     (24 * 3600 * 1000) /* soon after its window */
#define ARGS_MAX    65536u             /* larger arguments are not compared place by place */
#define NOTES_MAX   100u               /* of one effect that are looked at */
#define NEIGHBOURS  16u   /* how many of a tool's newest effects one is compared with */
#define REPORTS_MAX 20u   /* of one kind */
#define UNENDED_MAX 1000u /* effects whose history is read */

typedef enum symptom { EQUAL, NEAR, LONG, SHORT, STALE, UNENDED, KINDS } symptom;

/* What is remembered of an effect. */
typedef struct patient {
    sm_handle handle;
    uint64_t id;
    semel_hash fingerprint;
    int64_t created_at, settled_at, window_end;
    bool unlisted; /* the contract does not list its tool */
    bool left;     /* its attempt may have ended without anybody telling */
    char *tool, *scope, *args;
    size_t args_bytes;
} patient;

typedef struct ward {
    semel *s;
    sm_work *w;
    patient *all;
    size_t count, room;
    semel_symptom_fn *sink;
    semel_progress_fn *progress;
    void *context;
    unsigned told[KINDS];
    bool stopped;
    sm_err err;
} ward;

static const char *kind_name(symptom k)
{
    static const char *const names[] = {"equal_arguments", "near_duplicate", "long_in_doubt",
                                        "short_window",    "stale_replay",   "never_committed"};
    return names[k];
}

static void report(ward *d, symptom kind, const patient *p, const patient *other, sm_str pointer,
                   const char *text)
{
    if (d->told[kind]++ >= REPORTS_MAX || d->stopped)
        return;
    char mine[SM_HANDLE_TEXT], theirs[SM_HANDLE_TEXT];
    semel_symptom s = {.kind = kind_name(kind),
                       .effect = {mine, sm_handle_effect(&p->handle, mine)},
                       .tool = sm_str_from(p->tool),
                       .text = sm_str_from(text),
                       .pointer = pointer};
    if (other != NULL)
        s.other = (sm_str){theirs, sm_handle_effect(&other->handle, theirs)};
    d->stopped = !d->sink(d->context, &s);
}

/* By the contracts at hand, and by what was agreed when it ran. */
static bool is_unlisted(const ward *d, const semel_record *r)
{
    const sm_contracts *set = sm_contracts_of(d->s, d->w);
    return r->settled_at != 0 && sm_contracts_tool(set, r->tool) == NULL &&
           r->window_end == sm_time_after(r->settled_at, set->unlisted_contract.window_ms);
}

/* In doubt, or its lease is over and nobody has looked since. What the gateway executes is looked
 * after. */
static bool may_be_left(const semel_record *r, const sm_memo *m, int64_t now)
{
    return !m->terms.upstream && (r->state == SEMEL_S_IN_DOUBT ||
                                  (r->state == SEMEL_S_RUNNING && m->effect.lease_end <= now));
}

static bool admit(void *context, const semel_record *r, int64_t now)
{
    ward *d = context;
    sm_memo memo;
    if (sm_is_shared(r) || sm_memo_unpack(r, &memo) != SM_OK)
        return true; /* no effect; or verifying reports it */
    patient *p = &d->all[d->count];
    *p = (patient){.handle = {.shard = r->shard, .id = r->id, .generation = r->generation},
                   .id = r->id,
                   .fingerprint = r->fingerprint,
                   .created_at = r->created_at,
                   .settled_at = r->settled_at,
                   .unlisted = is_unlisted(d, r),
                   .left = may_be_left(r, &memo, now),
                   .window_end = r->window_end,
                   .tool = strndup(r->tool.p, r->tool.n),
                   .scope = strndup(r->scope.p, r->scope.n)};
    bool small = r->args.p != NULL && r->args.n <= ARGS_MAX;
    p->args = small ? strndup(r->args.p, r->args.n) : NULL;
    p->args_bytes = small ? r->args.n : 0;
    d->count++;
    if (p->tool == NULL || p->scope == NULL || (small && p->args == NULL)) {
        d->err = SEMEL_E_NOMEM;
        return false;
    }
    if (r->state == SEMEL_S_IN_DOUBT && now - r->updated_at >= LONG_MS) {
        char age[SM_DURATION_TEXT], text[200];
        sm_duration_text((now - r->updated_at) / 60000 * 60000, age);
        snprintf(text, sizeof text,
                 "in doubt for %s; find out what happened and say so with `semel resolve`", age);
        report(d, LONG, p, NULL, (sm_str){0}, text);
    }
    if (d->progress != NULL && d->count % 500 == 0 && !d->progress(d->context, d->count, d->room))
        d->stopped = true;
    return !d->stopped && d->count < d->room;
}

/* A key that was used again soon after its window ended. */
static void find_short_window(ward *d, const patient *p, const patient *earlier)
{
    if (p->id != earlier->id || earlier->window_end == 0 || earlier->window_end == INT64_MAX)
        return;
    int64_t late = p->created_at - earlier->window_end;
    if (late < 0 || late > LATE_MS)
        return;
    char by[SM_DURATION_TEXT], text[200];
    sm_duration_text(late < 1000 ? 1000 : late / 1000 * 1000, by);
    snprintf(text, sizeof text,
             "the same call came again %s after its window and ran again; a longer window would "
             "have answered it",
             by);
    report(d, SHORT, p, earlier, (sm_str){0}, text);
}

typedef struct difference {
    char pointer[256];
    size_t bytes;
    unsigned count;
} difference;

static bool note_difference(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)a;
    (void)b;
    difference *x = context;
    if (x->count++ == 0) {
        x->bytes = pointer.n < sizeof x->pointer ? pointer.n : sizeof x->pointer - 1;
        memcpy(x->pointer, pointer.p, x->bytes);
        x->pointer[x->bytes] = '\0';
    }
    return x->count < 2;
}

/* Two calls of one tool under different keys, close together. */
static void compare(ward *d, const patient *p, const patient *earlier)
{
    char text[700];
    if (memcmp(&p->fingerprint, &earlier->fingerprint, sizeof p->fingerprint) == 0) {
        bool scopes = strcmp(p->scope, earlier->scope) != 0;
        snprintf(text, sizeof text,
                 "the same arguments ran twice within seconds under different keys%s",
                 scopes ? ", in different scopes; should retries share a scope?"
                        : "; is the caller's key or step made anew for every try?");
        report(d, EQUAL, p, earlier, (sm_str){0}, text);
        return;
    }
    if (p->args == NULL || earlier->args == NULL || strcmp(p->scope, earlier->scope) != 0)
        return;
    sm_arena_reset(&d->w->call);
    const sm_json *a, *b;
    difference x = {0};
    if (sm_json_read(&d->w->call, (sm_str){earlier->args, earlier->args_bytes},
                     &sm_json_args_limits, &a, NULL) != SM_OK ||
        sm_json_read(&d->w->call, (sm_str){p->args, p->args_bytes}, &sm_json_args_limits, &b,
                     NULL) != SM_OK ||
        a->type != SM_JSON_OBJECT || a->len < 2 ||
        sm_json_diff(a, b, note_difference, &x) != SM_OK || x.count != 1)
        return;
    snprintf(text, sizeof text,
             "two calls within seconds differ only in %s; if that does not matter, leave it out of "
             "the key (key: {ignore: [%s]})",
             x.pointer, x.pointer);
    report(d, NEAR, p, earlier, (sm_str){x.pointer, x.bytes}, text);
}

/* The newest come first: effect i is compared with those shortly before it in time. */
static void examine(ward *d)
{
    for (size_t i = 0; i < d->count && !d->stopped; i++) {
        const patient *p = &d->all[i];
        unsigned seen = 0;
        for (size_t j = i + 1; j < d->count && seen < NEIGHBOURS; j++) {
            const patient *q = &d->all[j];
            if (p->created_at - q->created_at > NEAR_MS)
                break;
            if (q->id == p->id || strcmp(p->tool, q->tool) != 0)
                continue;
            seen++;
            compare(d, p, q);
        }
    }
}

/* Generations of one key may lie far apart in the list. */
static int by_id(const void *a, const void *b)
{
    const patient *x = *(const patient *const *)a, *y = *(const patient *const *)b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->handle.generation > y->handle.generation) -
           (x->handle.generation < y->handle.generation);
}

static void examine_generations(ward *d)
{
    const patient **sorted = d->count == 0 ? NULL : malloc(d->count * sizeof *sorted);
    if (sorted == NULL)
        return;
    for (size_t i = 0; i < d->count; i++)
        sorted[i] = &d->all[i];
    qsort(sorted, d->count, sizeof *sorted, by_id);
    for (size_t i = 1; i < d->count; i++)
        find_short_window(d, sorted[i], sorted[i - 1]);
    free(sorted);
}

/* ---- stale replays ---------------------------------------------------------------------------*/

typedef struct replays {
    int64_t last_at;
} replays;

static bool note_replay(void *context, const semel_note *n)
{
    replays *r = context;
    if (sm_str_is(n->what, "replayed") && n->last_at > r->last_at)
        r->last_at = n->last_at;
    return true;
}

static int by_scope(const void *a, const void *b)
{
    const patient *x = *(const patient *const *)a, *y = *(const patient *const *)b;
    int c = strcmp(x->scope, y->scope);
    return c != 0 ? c : (x->settled_at > y->settled_at) - (x->settled_at < y->settled_at);
}

/* `next` is the effect of another tool in the same scope after `p`. */
static sm_err find_stale(ward *d, const patient *p, const patient *next)
{
    replays r = {0};
    sm_err e = d->s->ops->notes(d->s->store, p->id, p->handle.generation, NOTES_MAX, note_replay,
                                &r, NULL);
    if (e != SM_OK || r.last_at <= next->settled_at)
        return e;
    char text[2 * SM_TOOL_MAX + 300];
    snprintf(text, sizeof text,
             "an equal call got the recorded answer after %s had done something; if %s only reads, "
             "that answer was old: list it in the contract with class: read",
             next->tool, p->tool);
    report(d, STALE, p, next, (sm_str){0}, text);
    return SM_OK;
}

/* Reports one effect of each tool. */
static sm_err examine_replays(ward *d)
{
    const char *told[REPORTS_MAX];
    unsigned n = 0;
    sm_err e = SM_OK;
    const patient **sorted = d->count == 0 ? NULL : malloc(d->count * sizeof *sorted);
    if (sorted == NULL)
        return d->count == 0 ? SM_OK : SEMEL_E_NOMEM;
    for (size_t i = 0; i < d->count; i++)
        sorted[i] = &d->all[i];
    qsort(sorted, d->count, sizeof *sorted, by_scope);
    const patient *next = NULL; /* the first of another tool behind this one, in its scope */
    for (size_t i = d->count - 1; i-- > 0 && e == SM_OK && n < REPORTS_MAX && !d->stopped;) {
        const patient *p = sorted[i], *behind = sorted[i + 1];
        if (strcmp(p->scope, behind->scope) != 0)
            next = NULL;
        else if (strcmp(p->tool, behind->tool) != 0)
            next = behind;
        bool known = next == NULL || !p->unlisted || next->settled_at >= p->window_end;
        for (unsigned k = 0; k < n && !known; k++)
            known = strcmp(told[k], p->tool) == 0;
        unsigned before = d->told[STALE];
        if (!known)
            e = find_stale(d, p, next);
        if (d->told[STALE] > before)
            told[n++] = p->tool;
    }
    free(sorted);
    return e;
}

/* ---- claims that were never committed --------------------------------------------------------*/

/* Those that one actor left of one tool. */
typedef struct heap {
    sm_str actor;
    const patient *newest; /* for an example */
    uint64_t count;
} heap;

static void report_heap(ward *d, const heap *h)
{
    if (d->told[UNENDED]++ >= REPORTS_MAX || d->stopped)
        return;
    char handle[SM_HANDLE_TEXT], text[SM_ACTOR_MAX + SM_TOOL_MAX + 400];
    snprintf(text, sizeof text,
             "%.*s took %llu claim%s of %s and told of no end before the lease was over; commit "
             "every claim, a failure too, and renew it if the tool takes longer than its lease; "
             "then say with `semel resolve` what happened",
             SM_FMT(h->actor), (unsigned long long)h->count, h->count == 1 ? "" : "s",
             h->newest->tool);
    semel_symptom s = {.kind = kind_name(UNENDED),
                       .effect = {handle, sm_handle_effect(&h->newest->handle, handle)},
                       .tool = sm_str_from(h->newest->tool),
                       .text = sm_str_from(text),
                       .actor = h->actor,
                       .count = h->count};
    d->stopped = !d->sink(d->context, &s);
}

static heap *find_heap(heap *all, size_t n, sm_str actor, const char *tool)
{
    for (size_t i = 0; i < n; i++) {
        if (sm_str_eq(all[i].actor, actor) && strcmp(all[i].newest->tool, tool) == 0)
            return &all[i];
    }
    return NULL;
}

static sm_err examine_claims(ward *d, semel_fault *fault)
{
    heap heaps[REPORTS_MAX];
    size_t n = 0, read = 0;
    sm_err e = SM_OK;
    sm_arena_reset(&d->w->call);
    for (size_t i = 0; i < d->count && e == SM_OK && read < UNENDED_MAX; i++) {
        const patient *p = &d->all[i];
        sm_str actor;
        if (!p->left)
            continue;
        read++;
        e = sm_unended_by(d->s, d->w, &p->handle, &actor, fault);
        if (e != SM_OK || actor.p == NULL)
            continue;
        heap *h = find_heap(heaps, n, actor, p->tool);
        if (h == NULL && n < REPORTS_MAX) {
            h = &heaps[n++];
            *h = (heap){.actor = actor, .newest = p};
        }
        if (h != NULL)
            h->count++;
    }
    for (size_t i = 0; i < n && e == SM_OK; i++)
        report_heap(d, &heaps[i]);
    return e;
}

semel_err semel_doctor(semel *s, size_t newest, semel_symptom_fn *sink, semel_progress_fn *progress,
                       void *context, semel_fault *fault)
{
    semel_answer *a = semel_answer_new();
    ward d = {.s = s,
              .room = newest == 0 ? 10000 : newest,
              .sink = sink,
              .progress = progress,
              .context = context};
    d.all = calloc(d.room, sizeof *d.all);
    sm_err e = SM_OK;
    if (a == NULL || d.all == NULL) {
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        goto cleanup;
    }
    sm_journal_flush(&s->journal, s->ops, s->store);
    d.w = sm_work_start(a);
    semel_filter every = {0};
    for (uint64_t cursor = 0, more = 1;
         e == SM_OK && more && !d.stopped && d.err == SM_OK && d.count < d.room; more = cursor != 0)
        e = s->ops->query(s->store, &every, &cursor, 500, admit, &d, fault);
    if (e == SM_OK && d.err != SM_OK)
        e = sm_fault_set(fault, d.err, "%s", semel_err_text(d.err));
    if (e == SM_OK) {
        examine(&d);
        examine_generations(&d);
        e = examine_replays(&d);
        if (e != SM_OK)
            sm_fault_set(fault, e, "%s", semel_err_text(e));
        else
            e = examine_claims(&d, fault);
    }
cleanup:
    for (size_t i = 0; d.all != NULL && i < d.count; i++) {
        free(d.all[i].tool);
        free(d.all[i].scope);
        free(d.all[i].args);
    }
    free(d.all);
    semel_answer_free(a);
    return e;
}
