/*
 * Records, events and notes as bytes.
 *
 *     record:  '1' generation version waited state | birth | key group rest
 *               1      16       16      1      1       16     32   32
 *
 * The head is what scripts read: hexadecimal digits of a fixed width, and raw hashes. The rest, and
 * events and notes, are for C alone: numbers of as few bytes as they need (seven bits each, the
 * lowest first), texts with their length and one in front (0: absent), hashes that are often zero
 * behind a byte that says so.
 *
 * What comes back is from outside: everything is bounded by the bytes that are there, and what does
 * not read as a whole is SEMEL_E_CORRUPT.
 */
#include <stdio.h>

#include "store/redis/redis.h"

#define FORMAT '1'

/* ---- writing ---------------------------------------------------------------------------------*/

static void put_number(sm_buf *b, uint64_t n)
{
    while (n >= 0x80) {
        sm_buf_byte(b, (char)(0x80 | (n & 0x7F)));
        n >>= 7;
    }
    sm_buf_byte(b, (char)n);
}

static void put_text(sm_buf *b, semel_str s)
{
    put_number(b, s.p == NULL ? 0 : (uint64_t)s.n + 1);
    sm_buf_str(b, s);
}

static bool is_zero(const semel_hash *h)
{
    static const semel_hash zero;
    return memcmp(h, &zero, sizeof zero) == 0;
}

static void put_hash(sm_buf *b, const semel_hash *h)
{
    sm_buf_byte(b, is_zero(h) ? 0 : 1);
    if (!is_zero(h))
        sm_buf_bytes(b, h->b, sizeof h->b);
}

/* ---- reading ---------------------------------------------------------------------------------*/

typedef struct reader {
    const char *p, *end;
    bool bad;
} reader;

static uint64_t take_number(reader *r)
{
    uint64_t n = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->p == r->end)
            break;
        uint8_t byte = (uint8_t)*r->p++;
        if (shift == 63 && byte > 1)
            break;
        n |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return n;
    }
    r->bad = true;
    return 0;
}

static uint8_t take_byte(reader *r, uint8_t most)
{
    uint64_t n = take_number(r);
    r->bad = r->bad || n > most;
    return (uint8_t)n;
}

static semel_str take_text(reader *r)
{
    uint64_t n = take_number(r);
    if (n == 0 || r->bad)
        return (semel_str){0};
    if (n - 1 > (uint64_t)(r->end - r->p)) {
        r->bad = true;
        return (semel_str){0};
    }
    semel_str s = {r->p, (size_t)n - 1};
    r->p += s.n;
    return s;
}

static void take_raw(reader *r, void *to, size_t n)
{
    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        memset(to, 0, n);
        return;
    }
    memcpy(to, r->p, n);
    r->p += n;
}

static void take_hash(reader *r, semel_hash *h)
{
    if (take_byte(r, 1) == 1)
        take_raw(r, h->b, sizeof h->b);
    else
        memset(h, 0, sizeof *h);
}

uint64_t sm_rd_hex(const char *p, size_t n, bool *good)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16)
            *good = false;
        value = value << 4 | (digit & 15);
    }
    return value;
}

static semel_err corrupt(semel_fault *fault, const char *what)
{
    return sm_fault_set(fault, SEMEL_E_CORRUPT,
                        "%s in the ledger cannot be read: it was written by something else, or is "
                        "damaged",
                        what);
}

/* ---- records ---------------------------------------------------------------------------------*/

/* The numbers of a record that are behind its head, in their order. */
#define NUMBERS(X)                                                                                 \
    X(id)                                                                                          \
    X(fence)                                                                                       \
    X(events)                                                                                      \
    X(created_at)                                                                                  \
    X(updated_at)                                                                                  \
    X(lease_end)                                                                                   \
    X(due_at)                                                                                      \
    X(settled_at)                                                                                  \
    X(result_end)                                                                                  \
    X(window_end)                                                                                  \
    X(purge_at)
#define TEXTS(X)                                                                                   \
    X(scope)                                                                                       \
    X(step)                                                                                        \
    X(tool)                                                                                        \
    X(caller)                                                                                      \
    X(life)

void sm_rd_record_pack(const semel_record *r, uint64_t version, char head[SM_RD_HEAD], sm_buf *tail)
{
    char text[SM_RD_HEAD + 1];
    snprintf(text, sizeof text, "%c%016llx%016llx0%x", FORMAT, (unsigned long long)r->generation,
             (unsigned long long)version, r->state & 15u);
    memcpy(head, text, SM_RD_HEAD);
    sm_buf_bytes(tail, r->key.b, sizeof r->key.b);
    sm_buf_bytes(tail, r->group.b, sizeof r->group.b);
    put_number(tail, r->shard);
    put_number(tail, r->tombstone);
#define X(field) put_number(tail, (uint64_t)r->field);
    NUMBERS(X)
#undef X
    put_hash(tail, &r->fingerprint);
    put_hash(tail, &r->head);
#define X(field) put_text(tail, r->field);
    TEXTS(X)
#undef X
}

semel_err sm_rd_record_unpack(sm_str bytes, semel_record *out, char birth[SM_RD_BIRTH],
                              semel_fault *fault)
{
    bool good = bytes.n > SM_RD_TAIL && bytes.p[0] == FORMAT;
    *out = (semel_record){0};
    if (!good)
        return corrupt(fault, "a record");
    out->generation = sm_rd_hex(bytes.p + 1, 16, &good);
    out->version = sm_rd_hex(bytes.p + 17, 16, &good);
    uint64_t state = sm_rd_hex(bytes.p + 34, 1, &good);
    sm_rd_hex(bytes.p + SM_RD_HEAD, SM_RD_BIRTH, &good);
    memcpy(birth, bytes.p + SM_RD_HEAD, SM_RD_BIRTH);
    reader r = {.p = bytes.p + SM_RD_TAIL, .end = bytes.p + bytes.n};
    take_raw(&r, out->key.b, sizeof out->key.b);
    take_raw(&r, out->group.b, sizeof out->group.b);
    out->shard = take_byte(&r, UINT8_MAX);
    out->tombstone = take_byte(&r, UINT8_MAX);
#define X(field) out->field = (__typeof__(out->field))take_number(&r);
    NUMBERS(X)
#undef X
    take_hash(&r, &out->fingerprint);
    take_hash(&r, &out->head);
#define X(field) out->field = take_text(&r);
    TEXTS(X)
#undef X
    good = good && !r.bad && r.p == r.end && state < SEMEL_S_COUNT && out->generation > 0 &&
           out->version > 0;
    out->state = (uint8_t)state;
    return good ? SEMEL_OK : corrupt(fault, "a record");
}

bool sm_rd_member_read(sm_str text, sm_rd_member *out)
{
    bool good = text.n > SM_RD_BIRTH + SM_RD_ID && text.n <= SM_RD_BIRTH + SM_RD_ID + 16;
    if (!good)
        return false;
    memcpy(out->birth, text.p, SM_RD_BIRTH);
    sm_rd_hex(text.p, SM_RD_BIRTH, &good);
    out->id = sm_rd_hex(text.p + SM_RD_BIRTH, SM_RD_ID, &good);
    size_t at = SM_RD_BIRTH + SM_RD_ID;
    out->generation = sm_rd_hex(text.p + at, text.n - at, &good);
    return good;
}

/* ---- events and notes ------------------------------------------------------------------------*/

void sm_rd_event_pack(const semel_event *e, sm_buf *out)
{
    sm_buf_byte(out, FORMAT);
    put_number(out, e->id);
    put_number(out, e->generation);
    put_number(out, e->shard);
    put_number(out, e->index);
    put_number(out, (uint64_t)e->at);
    put_hash(out, &e->prev);
    put_hash(out, &e->hash);
    put_text(out, e->what);
    put_text(out, e->actor);
    put_text(out, e->body);
}

semel_err sm_rd_event_unpack(sm_str bytes, semel_event *out, semel_fault *fault)
{
    *out = (semel_event){0};
    if (bytes.n == 0 || bytes.p[0] != FORMAT)
        return corrupt(fault, "an event");
    reader r = {.p = bytes.p + 1, .end = bytes.p + bytes.n};
    out->id = take_number(&r);
    out->generation = take_number(&r);
    out->shard = take_byte(&r, UINT8_MAX);
    out->index = take_number(&r);
    out->at = (int64_t)take_number(&r);
    take_hash(&r, &out->prev);
    take_hash(&r, &out->hash);
    out->what = take_text(&r);
    out->actor = take_text(&r);
    out->body = take_text(&r);
    return r.bad || r.p != r.end ? corrupt(fault, "an event") : SEMEL_OK;
}

void sm_rd_note_pack(const semel_note *n, sm_buf *out)
{
    sm_buf_byte(out, FORMAT);
    put_number(out, n->id);
    put_number(out, n->generation);
    put_number(out, (uint64_t)n->first_at);
    put_number(out, (uint64_t)n->last_at);
    put_number(out, n->count);
    put_text(out, n->what);
    put_text(out, n->scope);
    put_text(out, n->tool);
}

semel_err sm_rd_note_unpack(sm_str bytes, semel_note *out, semel_fault *fault)
{
    *out = (semel_note){0};
    if (bytes.n == 0 || bytes.p[0] != FORMAT)
        return corrupt(fault, "a note");
    reader r = {.p = bytes.p + 1, .end = bytes.p + bytes.n};
    out->id = take_number(&r);
    out->generation = take_number(&r);
    out->first_at = (int64_t)take_number(&r);
    out->last_at = (int64_t)take_number(&r);
    out->count = take_number(&r);
    out->what = take_text(&r);
    out->scope = take_text(&r);
    out->tool = take_text(&r);
    return r.bad || r.p != r.end ? corrupt(fault, "a note") : SEMEL_OK;
}
