/*
 * Writes: claim, apply and seal. Each is one statement that decides and writes, or writes nothing.
 *
 * When nothing was written, reading tells why: the record is another one, the group is barred, the
 * caller's time is wrong; or none of these any more, and then the write is tried again.
 *
 * A write whose answer was lost is sent again. If that finds another version, the event tells whose
 * it is: an event with this write's hash is this write's, and then it took effect the first time.
 * Whoever was about to act on it is told so only while the record still is what it wrote. And what
 * refuses the second try does not undo the first, which may still be under way.
 */
#include "store/postgres/postgres.h"

#include <endian.h>
#include <stdlib.h>

#include "base/buf.h"

enum { ROUNDS_MAX = 200 }; /* of a write that others keep getting ahead of */

#define COUNTER_BYTES_MAX ((size_t)1 << 20)

/* ---- counters --------------------------------------------------------------------------------*/

typedef struct counters {
    sm_buf names, deltas, caps, untils;
} counters;

/* What becomes of one counter. */
typedef struct counted {
    int64_t delta, cap, until;
} counted;

static int64_t add_clamped(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return b < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

/* One statement changes a counter once, so those of one name become one: the sum, the cap that
 * holds for the sum if each cap holds after its own change, and the latest end. */
static bool merge(const semel_write *w, size_t i, counted *out)
{
    for (size_t k = 0; k < i; k++) {
        if (sm_str_eq(w->counters[k].name, w->counters[i].name))
            return false; /* it was counted there */
    }
    int64_t sum = 0, until = 0, room = INT64_MAX; /* how high the counter may be before */
    for (size_t k = i; k < w->n_counters; k++) {
        const semel_counter *c = &w->counters[k];
        if (!sm_str_eq(c->name, w->counters[i].name))
            continue;
        sum = add_clamped(sum, c->delta);
        if (c->until == 0 || c->until > until)
            until = c->until == 0 ? INT64_MAX : c->until;
        int64_t left;
        if (c->delta < 0 || c->cap == INT64_MAX)
            continue; /* refused by nothing */
        if (__builtin_sub_overflow(c->cap, sum, &left))
            left = sum > 0 ? INT64_MIN : INT64_MAX;
        room = left < room ? left : room;
    }
    *out = (counted){.delta = sum,
                     .cap = room == INT64_MAX ? INT64_MAX : add_clamped(room, sum),
                     .until = until};
    return true;
}

static void counters_init(counters *c, const semel_write *w, sm_pg_args *args)
{
    sm_buf *const all[] = {&c->names, &c->deltas, &c->caps, &c->untils};
    size_t n = 0, arrays = sizeof all / sizeof *all;
    counted one;
    for (size_t i = 0; i < w->n_counters; i++)
        n += merge(w, i, &one);
    for (size_t i = 0; i < arrays; i++) {
        sm_buf_init(all[i], COUNTER_BYTES_MAX);
        sm_pg_array_start(all[i], i == 0, n);
    }
    for (size_t i = 0; i < w->n_counters; i++) {
        if (!merge(w, i, &one))
            continue;
        sm_pg_array_bytes(&c->names, w->counters[i].name);
        sm_pg_array_int(&c->deltas, one.delta);
        sm_pg_array_int(&c->caps, one.cap);
        sm_pg_array_int(&c->untils, one.until);
    }
    for (size_t i = 0; i < arrays; i++)
        sm_pg_add_array(args, i == 0, sm_buf_view(all[i]));
}

static sm_err counters_error(const counters *c)
{
    return c->names.err != SM_OK    ? c->names.err
           : c->deltas.err != SM_OK ? c->deltas.err
           : c->caps.err != SM_OK   ? c->caps.err
                                    : c->untils.err;
}

static void counters_fini(counters *c)
{
    sm_buf_fini(&c->names);
    sm_buf_fini(&c->deltas);
    sm_buf_fini(&c->caps);
    sm_buf_fini(&c->untils);
}

/* ---- what claim and apply share --------------------------------------------------------------*/

typedef struct writing {
    semel_store *st;
    const semel_write *w;
    semel_room *room;
    semel_record *cur;
    int64_t *now;
    semel_fault *fault;
    sm_pg_args args;
    counters counters;
    sm_pg_question q;
    bool over;    /* the last try found that a counter would pass its cap */
    bool refused; /* by something other than the record itself */
} writing;

static bool has_group(const semel_record *r)
{
    static const semel_hash none;
    return memcmp(&r->group, &none, sizeof none) != 0;
}

/* A write that is refused by others' doubts takes a lock on its group, as does one that becomes a
 * doubt: only so does neither overlook the other. Those that do not become a doubt themselves share
 * the lock, and do not wait for each other. */
static sm_pg_lock lock_of(const semel_write *w)
{
    const semel_record *r = &w->next;
    uint64_t key;
    memcpy(&key, r->group.b, sizeof key);
    bool bars = r->state == SEMEL_S_IN_DOUBT ||
                (r->state == SEMEL_S_RUNNING && r->lease_end > 0 && r->lease_end <= w->now);
    return (sm_pg_lock){.wanted = has_group(r) && (bars || w->barred_by_group),
                        .shared = !bars,
                        .key = (int64_t)be64toh(key)};
}

/* `plain` is the first of four statements: plain, barred, counted, both. */
static semel_err start(writing *x, sm_pg_statement plain)
{
    const semel_write *w = x->w;
    bool barred = w->barred_by_group && has_group(&w->next);
    sm_pg_add_write(&x->args, w, plain == SM_PGQ_APPLY);
    if (w->n_counters > 0)
        counters_init(&x->counters, w, &x->args);
    x->q = (sm_pg_question){
        .which = (sm_pg_statement)((int)plain + (barred ? 1 : 0) + (w->n_counters > 0 ? 2 : 0)),
        .args = &x->args,
        .lock = lock_of(w),
        .writes = true,
        .evidence = w->evidence,
        .deadline_ns = sm_clock_deadline_ns(x->st->settings.timeout_ms)};
    sm_err e = counters_error(&x->counters);
    return e == SM_OK ? e : sm_fault_set(x->fault, e, "too many counters in one write");
}

_Static_assert(SM_PGQ_CLAIM_BARRED == SM_PGQ_CLAIM + 1 &&
                   SM_PGQ_CLAIM_COUNTED == SM_PGQ_CLAIM + 2 &&
                   SM_PGQ_APPLY_BARRED_COUNTED == SM_PGQ_APPLY + 3 &&
                   SM_PGQ_NEXT_BARRED_COUNTED == SM_PGQ_NEXT + 3,
               "the kinds of a statement follow each other");

/* The number of the event that was just written is the answer's last column. */
static void note_seq(writing *x, const PGresult *r)
{
    int last = PQnfields(r) - 1;
    if (sm_pg_null(r, 0, last) || x->w->evidence)
        return;
    sm_seen event = {.seq = sm_pg_int(r, 0, last), .id = (int64_t)x->w->next.id};
    memcpy(&event.hash, x->w->event.hash.b, sizeof event.hash);
    event.hash = be64toh(event.hash);
    sm_pg_seen(x->st, &event);
}

/* What was written, for the caller; and whoever waits in this process is woken. */
static semel_err wrote(writing *x, uint64_t version)
{
    semel_err e = sm_pg_record_copy(&x->w->next, x->room, x->cur, x->fault);
    if (e == SEMEL_OK)
        x->cur->version = version;
    sm_bell_ring(&x->st->waits.bell, &x->w->next.key);
    sm_bell_ring(&x->st->waits.bell, NULL);
    return e;
}

/* Whether the event of this write is there: an earlier try wrote it. That one may have ended before
 * its replicas had it; a small write that is committed now waits for them, and they have what came
 * before when they have that. */
static semel_err took_effect(semel_store *st, const semel_event *event, int64_t deadline_ns,
                             bool *is, semel_fault *fault)
{
    sm_pg_args args = {0}, none = {0};
    sm_pg_add_int(&args, (int64_t)event->id);
    sm_pg_add_int(&args, (int64_t)event->generation);
    sm_pg_add_int(&args, (int64_t)event->index);
    sm_pg_add_hash(&args, &event->hash);
    sm_pg_question q = {.which = SM_PGQ_HAS_EVENT, .args = &args, .deadline_ns = deadline_ns};
    sm_pg_question touch = {
        .which = SM_PGQ_TOUCH, .args = &none, .writes = true, .deadline_ns = deadline_ns};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    *is = e == SEMEL_OK && sm_pg_int(r, 0, 0) > 0;
    PQclear(r);
    if (*is) {
        e = sm_pg_ask(st, &touch, &r, fault);
        *is = e == SEMEL_OK;
        PQclear(r);
    }
    return e;
}

/* An earlier try of this write took effect, and the record is another one by now. */
static semel_err overtaken(writing *x)
{
    return sm_fault_set(x->fault, SEMEL_E_UNAVAILABLE,
                        "the write was recorded in %s, its answer was lost, and the record has "
                        "changed since: ask again",
                        x->st->where);
}

static bool on_time(const writing *x)
{
    int64_t off = *x->now - x->w->now;
    return off <= SEMEL_CLOCK_SLACK_MS && off >= -SEMEL_CLOCK_SLACK_MS;
}

/* Looks for what bars this write. */
static semel_err find_bar(writing *x)
{
    if (!x->w->barred_by_group || !has_group(&x->w->next))
        return SEMEL_OK;
    sm_pg_args args = {0};
    sm_pg_add_hash(&args, &x->w->next.group);
    sm_pg_add_int(&args, (int64_t)x->w->next.id);
    sm_pg_add_int(&args, sm_pg_bars_until(x->w));
    sm_pg_question q = {.which = SM_PGQ_BARRING, .args = &args, .deadline_ns = x->q.deadline_ns};
    PGresult *r = NULL;
    semel_record view;
    semel_err e = sm_pg_ask(x->st, &q, &r, x->fault);
    if (e == SEMEL_OK && PQntuples(r) > 0) {
        *x->now = sm_pg_int(r, 0, 0);
        sm_pg_record_view(r, 0, 1, &view);
        e = sm_pg_record_copy(&view, x->room, x->cur, x->fault);
        if (e == SEMEL_OK)
            e = sm_fault_set(x->fault, SEMEL_E_BARRED, "another effect of this group is in doubt");
    }
    PQclear(r);
    return e;
}

/* What refuses a write to a record that is as expected. SEMEL_OK: nothing any more. */
static semel_err find_refusal(writing *x)
{
    semel_err e = find_bar(x);
    if (e == SEMEL_OK && x->over)
        e = sm_fault_set(x->fault, SEMEL_E_OVER_CAP, "a counter would pass its cap");
    return e;
}

/* The end of a write. A refusal is not final if an earlier try may still take effect. */
static semel_err conclude(writing *x, semel_err e)
{
    counters_fini(&x->counters);
    bool final = !x->q.resent || !(x->refused || e == SEMEL_E_BARRED || e == SEMEL_E_OVER_CAP);
    return final ? e
                 : sm_fault_set(x->fault, SEMEL_E_UNAVAILABLE,
                                "an answer of %s was lost, and the write is refused when it is "
                                "sent again. It may or may not have been recorded: ask again",
                                x->st->where);
}

static semel_err wrong_time(writing *x)
{
    x->refused = true;
    return sm_fault_set(x->fault, SEMEL_E_STALE, "the write's time is not the store's");
}

static semel_err outpaced(writing *x)
{
    return sm_fault_set(x->fault, SEMEL_E_UNAVAILABLE,
                        "others keep changing this record in %s; try again", x->st->where);
}

/* ---- claim -----------------------------------------------------------------------------------*/

/* Answers with the record that was there. */
static semel_err give_found(writing *x, const PGresult *r, bool *inserted)
{
    semel_record view;
    sm_pg_record_view(r, 0, 3, &view);
    if (memcmp(&view.key, &x->w->next.key, sizeof view.key) != 0)
        return sm_pg_collision(x->st, x->fault);
    if (x->q.resent) {
        bool ours = false, same = view.generation == x->w->next.generation && view.version == 1;
        semel_err e = took_effect(x->st, &x->w->event, x->q.deadline_ns, &ours, x->fault);
        *inserted = ours && same;
        if (e != SEMEL_OK || ours)
            return e != SEMEL_OK ? e : same ? wrote(x, 1) : overtaken(x);
    }
    return sm_pg_record_copy(&view, x->room, x->cur, x->fault);
}

/* One round of a claim; *done unless it is to be tried again. */
static semel_err claim_round(writing *x, bool *inserted, bool *done)
{
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(x->st, &x->q, &r, x->fault);
    *done = true;
    if (e != SEMEL_OK)
        return e;
    *x->now = sm_pg_int(r, 0, 0);
    *inserted = sm_pg_int(r, 0, 1) > 0;
    x->over = sm_pg_bool(r, 0, 2);
    if (*inserted) {
        note_seq(x, r);
        e = wrote(x, 1);
    } else if (!sm_pg_null(r, 0, 4)) {
        e = give_found(x, r, inserted);
    } else if (!on_time(x)) {
        *x->cur = (semel_record){0};
        e = wrong_time(x);
    } else {
        e = find_refusal(x);
        *done = e != SEMEL_OK;
    }
    PQclear(r);
    return e;
}

semel_err sm_pg_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                      semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    writing x = {.st = st, .w = fresh, .room = room, .cur = cur, .now = now, .fault = fault};
    bool done = false;
    *inserted = false;
    *now = 0;
    semel_err e = start(&x, SM_PGQ_CLAIM);
    for (int i = 0; e == SEMEL_OK && !done; i++)
        e = i < ROUNDS_MAX ? claim_round(&x, inserted, &done) : outpaced(&x);
    return conclude(&x, e);
}

/* ---- apply -----------------------------------------------------------------------------------*/

/* Nothing was written: the record as it is says why. *done unless it is to be tried again. */
static semel_err explain(writing *x, const PGresult *r, bool *done)
{
    const semel_write *w = x->w;
    semel_record view;
    *done = true;
    *x->now = sm_pg_int(r, 0, 0);
    if (sm_pg_null(r, 0, 2))
        return sm_fault_set(x->fault, SEMEL_E_NOT_FOUND, "there is no record of this key");
    sm_pg_record_view(r, 0, 1, &view);
    if (memcmp(&view.key, &w->next.key, sizeof view.key) != 0)
        return sm_pg_collision(x->st, x->fault);
    bool other = view.generation != w->expect_generation || view.version != w->expect_version ||
                 !sm_write_follows(w, &view.head);
    if (!other && on_time(x)) {
        semel_err e = find_refusal(x);
        *done = e != SEMEL_OK;
        return e;
    }
    semel_err e = sm_pg_record_copy(&view, x->room, x->cur, x->fault);
    if (e != SEMEL_OK)
        return e;
    return other ? sm_fault_set(x->fault, SEMEL_E_STALE, "the record has changed meanwhile")
                 : wrong_time(x);
}

static uint64_t version_after(const semel_write *w)
{
    return w->next.generation == w->expect_generation ? w->expect_version + 1 : 1;
}

static semel_err ask_newest(writing *x, PGresult **out)
{
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)x->w->next.id);
    sm_pg_question q = {.which = SM_PGQ_NEWEST,
                        .args = &args,
                        .evidence = x->w->evidence,
                        .deadline_ns = x->q.deadline_ns};
    return sm_pg_ask(x->st, &q, out, x->fault);
}

/* An earlier try took effect. Whoever starts an attempt acts on that: the record must still be
 * theirs. */
static semel_err applied_before(writing *x)
{
    const semel_write *w = x->w;
    PGresult *r = NULL;
    if (w->next.state != SEMEL_S_RUNNING)
        return wrote(x, version_after(w));
    semel_record view = {0};
    semel_err e = ask_newest(x, &r);
    if (e == SEMEL_OK && !sm_pg_null(r, 0, 2))
        sm_pg_record_view(r, 0, 1, &view);
    bool same = view.generation == w->next.generation && view.version == version_after(w);
    PQclear(r);
    return e != SEMEL_OK ? e : same ? wrote(x, version_after(w)) : overtaken(x);
}

static semel_err apply_round(writing *x, bool *done)
{
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(x->st, &x->q, &r, x->fault);
    bool written = e == SEMEL_OK && sm_pg_int(r, 0, 1) > 0;
    *done = true;
    if (e == SEMEL_OK) {
        *x->now = sm_pg_int(r, 0, 0);
        x->over = sm_pg_bool(r, 0, 2);
    }
    if (written)
        note_seq(x, r);
    PQclear(r);
    if (written)
        return wrote(x, version_after(x->w));
    if (e == SEMEL_OK && x->q.resent)
        e = took_effect(x->st, &x->w->event, x->q.deadline_ns, &written, x->fault);
    if (e != SEMEL_OK || written)
        return e != SEMEL_OK ? e : applied_before(x);
    e = ask_newest(x, &r);
    if (e == SEMEL_OK)
        e = explain(x, r, done);
    PQclear(r);
    return e;
}

semel_err sm_pg_apply(semel_store *st, const semel_write *w, semel_room *room, semel_record *cur,
                      int64_t *now, semel_fault *fault)
{
    writing x = {.st = st, .w = w, .room = room, .cur = cur, .now = now, .fault = fault};
    bool done = false;
    *now = 0;
    bool begins = w->next.generation != w->expect_generation;
    semel_err e = start(&x, begins ? SM_PGQ_NEXT : SM_PGQ_APPLY);
    for (int i = 0; e == SEMEL_OK && !done; i++)
        e = i < ROUNDS_MAX ? apply_round(&x, &done) : outpaced(&x);
    return conclude(&x, e);
}

/* ---- seal ------------------------------------------------------------------------------------*/

semel_err sm_pg_seal(semel_store *st, const semel_event *seal, uint64_t expect, semel_fault *fault)
{
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)expect);
    sm_pg_add_int(&args, (int64_t)seal->index);
    sm_pg_add_int(&args, seal->at);
    sm_pg_add_bytes(&args, seal->what);
    sm_pg_add_bytes(&args, seal->actor);
    sm_pg_add_bytes(&args, seal->body);
    sm_pg_add_hash(&args, &seal->prev);
    sm_pg_add_hash(&args, &seal->hash);
    sm_pg_question q = {.which = SM_PGQ_SEAL,
                        .args = &args,
                        .writes = true,
                        .deadline_ns = sm_clock_deadline_ns(st->settings.timeout_ms)};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    bool written = e == SEMEL_OK && sm_pg_int(r, 0, 0) > 0;
    PQclear(r);
    if (e == SEMEL_OK && !written && q.resent) {
        semel_event named = *seal;
        named.id = named.generation = 0;
        e = took_effect(st, &named, q.deadline_ns, &written, fault);
    }
    if (e != SEMEL_OK)
        return e;
    if (!written)
        return sm_fault_set(fault, SEMEL_E_STALE, "somebody else has sealed meanwhile");
    sm_bell_ring(&st->waits.bell, NULL);
    return SEMEL_OK;
}
