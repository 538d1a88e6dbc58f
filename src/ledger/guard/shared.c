/* Documents that are records with keys that no call has. */
#include "ledger/guard/shared.h"

#include "base/duration.h"
#include "base/limits.h"
#include "base/utf8.h"

bool sm_shared_begins(const semel_event *e)
{
    return sm_str_is(e->what, "looped") || sm_str_is(e->what, "stopped") ||
           sm_str_is(e->what, "tripped") || sm_str_is(e->what, "keyed") ||
           sm_str_is(e->what, "failing") || sm_str_is(e->what, "opened") ||
           sm_str_is(e->what, "posted");
}

/* What it is about is its step, for people: a step is not longer than this. */
static sm_parsed_call call_of(const sm_shared *doc)
{
    return (sm_parsed_call){.scope = sm_str_from(doc->kind),
                            .step = sm_utf8_cut(doc->of, SM_STEP_MAX),
                            .tool = SM_STR("guard")};
}

/* Not a hash of what calls are made of: a step that is absent is one too. */
static sm_err key_of(sm_work *w, const sm_shared *doc, sm_key *out)
{
    sm_buf_clear(&w->scratch);
    sm_buf_printf(&w->scratch, "semel-shared-1 %s ", doc->kind);
    sm_buf_str(&w->scratch, doc->of);
    return w->scratch.err != SM_OK
               ? w->scratch.err
               : sm_digest_bytes(&w->keyer.digest, w->scratch.p, w->scratch.len, &out->hash);
}

sm_err sm_shared_read(semel *s, sm_work *w, const sm_shared *doc, sm_str *text)
{
    sm_key key;
    uint8_t shard;
    *text = (sm_str){0};
    sm_err e = key_of(w, doc, &key);
    if (e == SM_OK)
        e = sm_scope_shard(&w->keyer.digest, sm_str_from(doc->kind), &shard);
    if (e == SM_OK)
        e = sm_load_key(s, w, &key.hash, &shard);
    if (e == SEMEL_E_NOT_FOUND) {
        w->cur.version = 0;
        w->now = sm_now(s);
        return SM_OK;
    }
    semel_outcome o;
    bool over = e == SM_OK && doc->keep_ms != 0 && w->now >= w->memo.effect.window_end;
    if (e == SM_OK && !over && w->cur.outcome.p != NULL) {
        if (!sm_outcome_unpack(w->cur.outcome, &o))
            return sm_fault_set(&w->fault, SEMEL_E_CORRUPT,
                                "the ledger is damaged: what guards share cannot be read; run "
                                "`semel audit verify`");
        *text = o.value;
    }
    return e;
}

/* Settled if it is kept for a time, so that purging removes it; else open for ever. */
static sm_effect effect_of(const sm_work *w, const sm_shared *doc)
{
    sm_effect e = w->cur.version != 0 ? w->memo.effect : (sm_effect){.generation = 1};
    e.state = doc->keep_ms == 0 ? SEMEL_S_READY : SEMEL_S_SUCCEEDED;
    if (doc->keep_ms != 0) {
        e.settled_at = w->now;
        e.window_end = e.result_end = sm_time_after(w->now, doc->keep_ms);
    }
    return e;
}

sm_err sm_shared_write(semel *s, sm_work *w, const sm_shared *doc, sm_str text, sm_history note,
                       sm_str actor)
{
    sm_identity id = {0};
    sm_parsed_call call = call_of(doc);
    semel_outcome o = {
        .size = sizeof o, .value = text, .is_json = true, .kept = true, .bytes = text.n};
    sm_err e = key_of(w, doc, &id.key);
    if (e != SM_OK)
        return e;
    if (w->cur.version == 0)
        w->memo = (sm_memo){0};
    w->memo.terms.class = SM_CLASS_WRITE;
    w->memo.terms.on_in_doubt = (sm_doubt_chain){{SM_DOUBT_HOLD}, 1};
    w->step =
        (sm_move){.next = effect_of(w, doc), .changed = true, .notes = {note}, .note_count = 1};
    return sm_write(
        s, w,
        &(sm_change){
            .actor = sm_ledger_actor(s, actor), .identity = &id, .call = &call, .outcome = &o});
}
