/*
 * Notes: counts of what changed nothing.
 *
 *     P{SS}n:ID    notes of one id by time: serial and bytes
 *     P{SS}notes   all notes of these ids by age: id, time and serial
 *
 * SS is the last byte of the id. The entry by age is written first, so that a note that is there is
 * always one that purge finds. A serial is made here and not by the server: a note that is sent
 * twice is still one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis.h"

#define SERIAL 32u
#define PAGE   500u

semel_err sm_rd_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault)
{
    sm_rd_batch b;
    sm_buf packed;
    semel_err e = SEMEL_OK;
    sm_rd_batch_init(&b, st);
    sm_buf_init(&packed, SM_RD_BATCH_MAX);
    for (size_t i = 0; i < n && e == SEMEL_OK; i++) {
        unsigned shard = notes[i].id & 0xFF;
        char serial[SERIAL + 1];
        snprintf(serial, sizeof serial, "%016llx%016llx",
                 (unsigned long long)atomic_fetch_add(&st->serial, 1), (unsigned long long)st->tag);
        sm_rd_command(&b, shard, "ZADD");
        sm_rd_key(&b, shard, "notes");
        sm_rd_arg_int(&b, notes[i].last_at);
        sm_rd_argf(&b, "%016llx%016llx%s", (unsigned long long)notes[i].id,
                   (unsigned long long)notes[i].first_at, serial);
        sm_buf_clear(&packed);
        sm_buf_text(&packed, serial);
        sm_rd_note_pack(&notes[i], &packed);
        e = packed.err;
        sm_rd_command(&b, shard, "ZADD");
        sm_rd_key_id(&b, shard, "n:", notes[i].id, 0);
        sm_rd_arg_int(&b, notes[i].first_at);
        sm_rd_arg(&b, sm_buf_view(&packed));
    }
    if (e == SEMEL_OK)
        e = sm_rd_run(&b, sm_rd_deadline(st), fault);
    else
        sm_fault_set(fault, e, "out of memory");
    sm_buf_fini(&packed);
    sm_rd_batch_fini(&b);
    return e;
}

/* Notes that were read, the newest first. */
typedef struct noted {
    semel_note *p;
    size_t n, cap;
} noted;

static bool keep(noted *k, const semel_note *note)
{
    if (k->n == k->cap) {
        size_t cap = k->cap == 0 ? 64 : k->cap * 2;
        semel_note *p = realloc(k->p, cap * sizeof *p);
        if (p == NULL)
            return false;
        k->p = p;
        k->cap = cap;
    }
    k->p[k->n++] = *note;
    return true;
}

semel_err sm_rd_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault)
{
    int64_t deadline_ns = sm_rd_deadline(st);
    unsigned shard = id & 0xFF;
    noted kept = {0};
    sm_rd_batch b; /* all pages stay in it: the notes point into their answers */
    semel_err e = SEMEL_OK;
    sm_rd_batch_init(&b, st);
    for (size_t from = 0; e == SEMEL_OK && kept.n < limit; from += PAGE) {
        sm_rd_command(&b, shard, "ZREVRANGE");
        sm_rd_key_id(&b, shard, "n:", id, 0);
        sm_rd_arg_int(&b, (int64_t)from);
        sm_rd_arg_int(&b, (int64_t)(from + PAGE - 1));
        e = sm_rd_run(&b, deadline_ns, fault);
        if (e != SEMEL_OK)
            break;
        const redisReply *r = sm_rd_reply(&b, b.n - 1);
        size_t count = sm_rd_elements(r);
        for (size_t i = 0; e == SEMEL_OK && i < count && kept.n < limit; i++) {
            sm_str text = sm_rd_text(sm_rd_element(r, i));
            size_t skip = text.n < SERIAL ? text.n : SERIAL;
            semel_note note;
            e = sm_rd_note_unpack((sm_str){text.p + skip, text.n - skip}, &note, fault);
            if (e == SEMEL_OK && (generation == 0 || note.generation == generation) &&
                !keep(&kept, &note))
                e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        }
        if (count < PAGE)
            break;
    }
    bool on = true;
    while (e == SEMEL_OK && on && kept.n > 0)
        on = sink(context, &kept.p[--kept.n]);
    free(kept.p);
    sm_rd_batch_fini(&b);
    return e;
}
