/*
 * Export and import: checkpoints as JSON Lines, one effect a line, the newest generation of each.
 *
 * What decides an effect's future travels: its names, its arguments, its outcome, its opaque life.
 * Its history stays where it was written; the import is the first event of the history here, and
 * names the last link of the chain there. A running attempt cannot be moved: it arrives in doubt,
 * and its claim is worth nothing here but as evidence.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/given.h"
#include "base/limits.h"
#include "json/write.h"
#include "ledger/call/resource.h"
#include "ledger/guard/shared.h"

#define PAGE 500u

static void put_hex(sm_buf *out, const char *name, const void *bytes, size_t n)
{
    sm_put_open(out, name, '"');
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = ((const uint8_t *)bytes)[i];
        sm_buf_byte(out, digits[byte >> 4]);
        sm_buf_byte(out, digits[byte & 15]);
    }
    sm_buf_byte(out, '"');
}

static void put_number(sm_buf *out, const char *name, int64_t v)
{
    if (v != 0)
        sm_put_signed(out, name, v);
}

typedef struct exporting {
    semel *s;
    sm_work *w;
    sm_buf line;
    semel_line_fn *sink;
    void *context;
    int64_t started;
    sm_err err;
    bool stopped;
} exporting;

/* What to export for a record: itself if it is the newest generation of its key; a generation that
 * began while we export, whose own place has been passed; or nothing. */
static const semel_record *choose(exporting *x, const semel_record *r)
{
    int64_t now;
    sm_work_drop(x->w);
    semel_ref ref = sm_ref_of(r);
    ref.generation = 0;
    x->err = x->s->ops->get(x->s->store, &ref, &x->w->room, &x->w->cur, &now, &x->w->fault);
    if (x->err != SM_OK || x->w->cur.generation == r->generation)
        return x->err == SM_OK ? r : NULL;
    return x->w->cur.created_at >= x->started ? &x->w->cur : NULL;
}

/* `count`: of the writes of what it acts on; 0: it acts on nothing. */
static void put_record(sm_buf *out, const semel_record *r, uint64_t count, int64_t now)
{
    char handle[SM_HANDLE_TEXT];
    sm_handle h = {.shard = r->shard, .id = r->id, .generation = r->generation};
    sm_handle_effect(&h, handle);
    sm_buf_byte(out, '{');
    sm_put_number(out, "semel", 2);
    sm_put_text(out, "effect", sm_str_from(handle));
    sm_put_text(out, "state", sm_str_from(semel_state_name((semel_state)r->state)));
    put_hex(out, "key", r->key.b, sizeof r->key.b);
    sm_put_text(out, "scope", r->scope);
    sm_put_text(out, "step", r->step);
    sm_put_text(out, "tool", r->tool);
    sm_put_text(out, "caller_key", r->caller);
    sm_put_raw(out, "args", r->args);
    put_number(out, "generation", (int64_t)r->generation);
    put_number(out, "fence", (int64_t)r->fence);
    put_number(out, "created", r->created_at);
    put_number(out, "lease_end", r->lease_end);
    put_number(out, "settled", r->settled_at);
    put_number(out, "result_end", r->result_end);
    put_number(out, "window_end", r->window_end);
    put_number(out, "purge", r->purge_at);
    put_hex(out, "group", r->group.b, sizeof r->group.b);
    put_hex(out, "fingerprint", r->fingerprint.b, sizeof r->fingerprint.b);
    put_hex(out, "head", r->head.b, sizeof r->head.b);
    put_number(out, "events", (int64_t)r->events);
    put_hex(out, "life", r->life.p, r->life.n);
    put_number(out, "written", (int64_t)count);
    if (r->outcome.p != NULL && (r->settled_at == 0 || now < r->result_end))
        put_hex(out, "outcome", r->outcome.p, r->outcome.n);
    sm_buf_text(out, "}\n");
}

static bool export_one(void *context, const semel_record *r, int64_t now)
{
    exporting *x = context;
    sm_memo memo;
    if (sm_is_shared(r))
        return true;
    r = choose(x, r);
    if (r == NULL)
        return x->err == SM_OK;
    if (sm_memo_unpack(r, &memo) != SM_OK) {
        char handle[SM_HANDLE_TEXT];
        sm_handle h = {.shard = r->shard, .id = r->id, .generation = r->generation};
        sm_handle_effect(&h, handle);
        x->err = sm_fault_set(&x->w->fault, SEMEL_E_CORRUPT,
                              "the ledger is damaged: the record of %s does not make sense; run "
                              "`semel audit verify`",
                              handle);
        return false;
    }
    uint64_t count = 0;
    if (memo.terms.resource)
        x->err = sm_resource_count(x->s, &memo.resource, r->shard, &count, &x->w->fault);
    sm_buf_clear(&x->line);
    put_record(&x->line, r, count, now);
    if (x->err == SM_OK)
        x->err = x->line.err;
    if (x->err == SM_OK)
        x->stopped = !x->sink(x->context, sm_buf_view(&x->line));
    return x->err == SM_OK && !x->stopped;
}

semel_err semel_export(semel *s, semel_str scope, semel_line_fn *line, void *context,
                       semel_fault *fault)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    exporting x = {
        .s = s, .w = sm_work_start(a), .sink = line, .context = context, .started = sm_now(s)};
    sm_buf_init(&x.line, SM_LINE_MAX);
    semel_filter filter = {.scope = scope};
    sm_err e = SM_OK;
    for (uint64_t cursor = 0, more = 1; e == SM_OK && more && !x.stopped; more = cursor != 0) {
        e = s->ops->query(s->store, &filter, &cursor, PAGE, export_one, &x, fault);
        if (e == SM_OK && x.err != SM_OK)
            e = sm_fault_set(fault, x.err, "%s",
                             x.w->fault.text[0] != '\0' ? x.w->fault.text : semel_err_text(x.err));
    }
    sm_buf_fini(&x.line);
    semel_answer_free(a);
    return e;
}

/* ---- import ----------------------------------------------------------------------------------*/

typedef struct importing {
    sm_work *w;
    const sm_json *line;
    semel_fault *fault;
    sm_err err;
} importing;

static sm_err bad_line(importing *m, const char *name)
{
    if (m->err == SM_OK)
        m->err = sm_fault_set(m->fault, SEMEL_E_INVALID,
                              "not a line of an export: \"%s\" is missing or wrong", name);
    return m->err;
}

static sm_str get_text(importing *m, const char *name, bool required)
{
    const sm_json *v = sm_json_find(m->line, sm_str_from(name));
    if (v != NULL && v->type == SM_JSON_STRING)
        return sm_json_text(v);
    if (required || v != NULL)
        bad_line(m, name);
    return (sm_str){0};
}

static int64_t get_number(importing *m, const char *name)
{
    const sm_json *v = sm_json_find(m->line, sm_str_from(name));
    if (v == NULL)
        return 0;
    char text[24], *end = NULL;
    int64_t n = -1;
    if (v->type == SM_JSON_NUMBER && v->len < sizeof text) {
        memcpy(text, v->text, v->len);
        text[v->len] = '\0';
        n = strtoll(text, &end, 10);
    }
    if (n < 0 || end == NULL || *end != '\0')
        bad_line(m, name);
    return n;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place: the line is our own copy, and a large outcome needs no second buffer. */
static sm_str get_hex(importing *m, const char *name, bool required)
{
    sm_str text = get_text(m, name, required);
    char *out = (char *)(uintptr_t)text.p;
    for (size_t i = 0; i + 1 < text.n; i += 2) {
        int high = digit(text.p[i]), low = digit(text.p[i + 1]);
        if (high < 0 || low < 0) {
            bad_line(m, name);
            break;
        }
        out[i / 2] = (char)(high << 4 | low);
    }
    if (text.n % 2 != 0)
        bad_line(m, name);
    return (sm_str){out, text.n / 2};
}

static void get_hash(importing *m, const char *name, sm_hash *out)
{
    sm_str bytes = get_hex(m, name, true);
    if (bytes.n == sizeof out->b)
        memcpy(out->b, bytes.p, sizeof out->b);
    else
        bad_line(m, name);
}

static sm_err get_record(importing *m, semel_record *r)
{
    *r = (semel_record){.version = 1};
    sm_str state = get_text(m, "state", true);
    r->state = SEMEL_S_COUNT;
    for (int i = 0; i < SEMEL_S_COUNT; i++) {
        if (state.p != NULL && sm_str_is(state, semel_state_name((semel_state)i)))
            r->state = (uint8_t)i;
    }
    if (r->state == SEMEL_S_COUNT)
        return bad_line(m, "state");
    get_hash(m, "key", &r->key);
    get_hash(m, "group", &r->group);
    get_hash(m, "fingerprint", &r->fingerprint);
    get_hash(m, "head", &r->head);
    r->scope = get_text(m, "scope", true);
    r->step = get_text(m, "step", false);
    r->tool = get_text(m, "tool", true);
    r->caller = get_text(m, "caller_key", false);
    r->generation = (uint64_t)get_number(m, "generation");
    r->fence = (uint64_t)get_number(m, "fence");
    r->created_at = get_number(m, "created");
    r->lease_end = get_number(m, "lease_end");
    r->settled_at = get_number(m, "settled");
    r->result_end = get_number(m, "result_end");
    r->window_end = get_number(m, "window_end");
    r->events = (uint64_t)get_number(m, "events");
    r->life = get_hex(m, "life", true);
    r->outcome = get_hex(m, "outcome", false);
    const sm_json *args = sm_json_find(m->line, SM_STR("args"));
    if (args != NULL && m->err == SM_OK) {
        sm_buf_clear(&m->w->args);
        m->err = sm_json_canon(args, &m->w->args, (sm_str){0}, m->fault);
        r->args = sm_buf_view(&m->w->args);
    }
    if (m->err == SM_OK && (r->scope.n == 0 || r->scope.n > SM_SCOPE_MAX || r->tool.n == 0 ||
                            r->tool.n > SM_TOOL_MAX || r->generation == 0))
        bad_line(m, "scope");
    return m->err;
}

/* Whether an effect may have touched the world, as far as its state says. */
static bool may_have_run(const sm_effect *e)
{
    return e->state == SEMEL_S_RUNNING || e->state == SEMEL_S_IN_DOUBT || sm_effect_done(e);
}

/* Whether what is here gives way. What is forgotten there says nothing. Where nothing ran here and
 * something may have there, theirs is what must not be lost. A doubt yields only to the knowledge
 * that it was done (I16); what is settled here stays. */
static bool gives_way(const sm_effect *ours, const sm_effect *theirs)
{
    switch (ours->state) {
    case SEMEL_S_NONE: return theirs->state != SEMEL_S_NONE;
    case SEMEL_S_PENDING:
    case SEMEL_S_READY: return may_have_run(theirs) || theirs->state == SEMEL_S_DENIED;
    case SEMEL_S_EXPIRED:
    case SEMEL_S_CANCELED: return may_have_run(theirs);
    case SEMEL_S_FAILED: return !may_have_run(ours) && may_have_run(theirs);
    case SEMEL_S_IN_DOUBT: return may_have_run(theirs) && theirs->state != SEMEL_S_IN_DOUBT;
    default: return false;
    }
}

/* Their effect in the place of ours: no fence of theirs may be one of ours. */
static void adopt(const semel_record *ours, bool over, sm_effect *e)
{
    if (ours->version == 0)
        return;
    e->generation = ours->generation + over;
    if (e->fence - e->attempt < ours->fence) {
        uint64_t up = ours->fence + e->attempt - e->fence;
        e->fence += up;
        for (uint32_t i = 0; i < e->doubt_count; i++)
            e->doubts[i] += up;
    }
    e->base_fence = e->fence - e->attempt;
}

/* Writes an imported record, in w->cur and w->memo, if nothing here is worth more. */
static sm_err put_import(semel *s, sm_work *w, semel_imported *count)
{
    semel_record theirs = w->cur;
    sm_memo memo = w->memo;
    w->now = sm_now(s);
    if (memo.effect.state == SEMEL_S_RUNNING) {
        sm_contract terms;
        sm_terms_contract(&memo.terms, &terms);
        sm_transition(&memo.effect, &(sm_life_event){.kind = SM_EV_LOOK, .gone = true}, &terms,
                      w->now, &w->step);
        memo.effect = w->step.next;
    }
    sm_err e = sm_effect_id(&w->keyer.digest, &theirs.key, &theirs.id);
    if (e == SM_OK)
        e = sm_scope_shard(&w->keyer.digest, theirs.scope, &theirs.shard);
    w->cur.version = 0;
    for (int races = 0; e == SM_OK && races < SM_RACES_MAX; races++) {
        sm_effect ours = {0};
        if (w->cur.version != 0) { /* as time has left it */
            sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK});
            ours = w->step.next;
        }
        if (!gives_way(&ours, &memo.effect)) {
            count->kept++;
            return SM_OK;
        }
        w->memo = memo;
        adopt(&w->cur, ours.state == SEMEL_S_NONE, &w->memo.effect);
        w->step = (sm_move){
            .next = w->memo.effect, .changed = true, .notes = {SM_N_IMPORTED}, .note_count = 1};
        sm_body_start(w);
        sm_body_hash(w, "head", &theirs.head);
        sm_body_number(w, "events", theirs.events);
        sm_body_hash(w, "fingerprint", &theirs.fingerprint);
        semel_outcome o;
        if (theirs.outcome.p != NULL && sm_outcome_unpack(theirs.outcome, &o)) {
            sm_hash digest;
            e = sm_digest_bytes(&w->keyer.digest, o.value.n == 0 ? "" : o.value.p, o.value.n,
                                &digest);
            sm_body_hash(w, "sha256", &digest);
        }
        if (e == SM_OK)
            e = sm_write(s, w,
                         &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0}), .import = &theirs});
        if (e == SM_OK) {
            count->added++;
            return SM_OK;
        }
        e = e == SEMEL_E_STALE ? SM_OK : e;
    }
    return e;
}

semel_err semel_import_line(semel *s, semel_str line, semel_imported *count, semel_fault *fault)
{
    semel_imported counts;
    sm_err e = sm_given_read(&counts, sizeof counts, count, SM_FIRST_SIZE(semel_imported, kept),
                             "the counts", fault);
    if (e != SM_OK)
        return e;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_work *w = sm_work_start(a);
    static const sm_json_limits limits = {SM_LINE_MAX, SM_JSON_DEPTH_MAX, SM_JSON_VALUES_MAX + 64};
    importing m = {.w = w, .fault = fault};
    counts.lines++;
    e = sm_json_read(&w->call, line, &limits, &m.line, fault);
    const sm_json *version = e == SM_OK ? sm_json_find(m.line, SM_STR("semel")) : NULL;
    if (e == SM_OK && (version == NULL || version->type != SM_JSON_NUMBER ||
                       !sm_str_is(sm_json_text(version), "2")))
        e = bad_line(&m, "semel");
    if (e == SM_OK)
        e = get_record(&m, &w->cur);
    if (e == SM_OK && sm_memo_unpack(&w->cur, &w->memo) != SM_OK)
        e = bad_line(&m, "life");
    /* Counts of one ledger mean nothing in another, but whether it was the last write does. */
    if (e == SM_OK && (uint64_t)get_number(&m, "written") != w->memo.written)
        w->memo.written = 0;
    if (e == SM_OK)
        e = m.err;
    semel_outcome outcome;
    if (e == SM_OK && w->cur.outcome.p != NULL && !sm_outcome_unpack(w->cur.outcome, &outcome))
        e = bad_line(&m, "outcome");
    if (e == SM_OK) {
        e = put_import(s, w, &counts);
        if (e != SM_OK)
            sm_fault_set(fault, e, "%s",
                         w->fault.text[0] != '\0' ? w->fault.text : semel_err_text(e));
    }
    sm_given_fill(count, &counts, sizeof counts);
    semel_answer_free(a);
    return e;
}
