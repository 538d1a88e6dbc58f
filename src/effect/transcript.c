/*
 * Transcripts: recording in memory, the JSON form, and reading it back.
 *
 * The bounds fit together: base64 of all bytes, and the punctuation of all chunks, stay below the
 * text's bound, which is what the ledger keeps whole.
 */
#include "effect/transcript.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "json/json.h"
#include "json/write.h"

struct sm_chunk_mark {
    uint32_t stream;
    uint32_t n;
};

#define CHUNK_TEXT_MAX 24u /* ["out","","base64"], and what base64 rounds up to */
#define FRAME_TEXT_MAX 4096u
_Static_assert(SM_TRANSCRIPT_BYTES_MAX / 3 * 4 + SM_TRANSCRIPT_CHUNKS_MAX * CHUNK_TEXT_MAX +
                       FRAME_TEXT_MAX <
                   SM_TRANSCRIPT_TEXT_MAX,
               "a full transcript fits its text");

static const char *const names[SM_STREAMS] = {"out", "err"};

/* ---- recording -------------------------------------------------------------------------------*/

sm_err sm_transcript_init(sm_transcript *t)
{
    *t = (sm_transcript){0};
    sm_buf_init(&t->bytes, SM_TRANSCRIPT_BYTES_MAX);
    sm_buf_init(&t->chunks, SM_TRANSCRIPT_CHUNKS_MAX * sizeof(struct sm_chunk_mark));
    for (int i = 0; i < SM_STREAMS; i++) {
        sm_err e = sm_digest_init(&t->digest[i]);
        if (e == SM_OK)
            e = sm_digest_start(&t->digest[i]);
        if (e != SM_OK) {
            sm_transcript_fini(t);
            return e;
        }
    }
    return SM_OK;
}

void sm_transcript_fini(sm_transcript *t)
{
    sm_buf_fini(&t->bytes);
    sm_buf_fini(&t->chunks);
    for (int i = 0; i < SM_STREAMS; i++)
        sm_digest_fini(&t->digest[i]);
    *t = (sm_transcript){0};
}

static struct sm_chunk_mark *last_chunk(const sm_transcript *t)
{
    size_t n = t->chunks.len / sizeof(struct sm_chunk_mark);
    return n == 0 ? NULL : (struct sm_chunk_mark *)(void *)t->chunks.p + n - 1;
}

void sm_transcript_add(sm_transcript *t, sm_child_stream from, sm_str bytes)
{
    if (bytes.n == 0)
        return;
    sm_digest_add(&t->digest[from], bytes.p, bytes.n);
    t->total[from] += bytes.n;
    if (t->truncated)
        return;
    size_t room = SM_TRANSCRIPT_BYTES_MAX - t->bytes.len;
    size_t keep = bytes.n < room ? bytes.n : room;
    t->truncated = keep < bytes.n;
    if (keep == 0)
        return;
    struct sm_chunk_mark *last = last_chunk(t);
    bool fresh = last == NULL || last->stream != (uint32_t)from;
    if (!sm_buf_reserve(&t->bytes, keep) || (fresh && !sm_buf_reserve(&t->chunks, sizeof *last))) {
        t->truncated = true;
        return;
    }
    sm_buf_bytes(&t->bytes, bytes.p, keep);
    if (fresh)
        sm_buf_bytes(&t->chunks,
                     &(struct sm_chunk_mark){.stream = (uint32_t)from, .n = (uint32_t)keep},
                     sizeof *last);
    else
        last->n += (uint32_t)keep;
}

/* ---- writing ---------------------------------------------------------------------------------*/

/* How long the text would be as a JSON string: a control character becomes six bytes at most. */
static size_t escaped_size(sm_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool brief = c == '\n' || c == '\t' || c == '\r' || c == '\b' || c == '\f';
        n += c == '"' || c == '\\' || brief ? 2 : c < 0x20 ? 6 : 1;
    }
    return n;
}

static void put_chunk(sm_buf *out, sm_child_stream stream, sm_str s)
{
    bool text = sm_utf8_valid(s) && escaped_size(s) <= sm_base64_size(s.n) + 9;
    sm_buf_printf(out, "[\"%s\",", names[stream]);
    if (text) {
        sm_json_put_string(out, s);
    } else {
        sm_buf_byte(out, '"');
        sm_base64_put(out, s);
        sm_buf_text(out, "\",\"base64\"");
    }
    sm_buf_byte(out, ']');
}

static void put_time(sm_buf *out, int64_t at_ms)
{
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm tm;
    char text[40];
    if (gmtime_r(&seconds, &tm) == NULL ||
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return;
    sm_buf_printf(out, ",\"ended_at\":\"%s.%03dZ\"", text, (int)(at_ms % 1000));
}

sm_err sm_transcript_write(sm_transcript *t, const sm_ending *end, sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_bool(out, "started", end->started);
    sm_put_signed(out, "exit", end->status);
    if (end->signal != 0)
        sm_put_signed(out, "signal", end->signal);
    if (!end->started)
        sm_put_text(out, "error", sm_str_from(end->error));
    put_time(out, end->at_ms);
    sm_put_open(out, "chunks", '[');
    const struct sm_chunk_mark *marks = (const void *)t->chunks.p;
    size_t count = t->chunks.len / sizeof *marks, at = 0;
    for (size_t i = 0; i < count; i++) {
        sm_put_item(out);
        put_chunk(out, (sm_child_stream)marks[i].stream, (sm_str){t->bytes.p + at, marks[i].n});
        at += marks[i].n;
    }
    sm_buf_byte(out, ']');
    sm_put_bool(out, "truncated", t->truncated);
    for (int i = 0; i < SM_STREAMS; i++) {
        sm_hash hash;
        char hex[SM_HASH_HEX + 1];
        sm_err e = sm_digest_finish(&t->digest[i], &hash);
        if (e != SM_OK)
            return e;
        sm_hash_hex(&hash, hex);
        sm_buf_printf(out, ",\"std%s_bytes\":%" PRIu64 ",\"std%s_sha256\":\"%s\"", names[i],
                      t->total[i], names[i], hex);
    }
    sm_buf_byte(out, '}');
    return out->err;
}

/* ---- reading ---------------------------------------------------------------------------------*/

static bool read_bool(const sm_json *object, const char *name, bool *out)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    if (v == NULL || (v->type != SM_JSON_TRUE && v->type != SM_JSON_FALSE))
        return false;
    *out = v->type == SM_JSON_TRUE;
    return true;
}

/* A plain non-negative integer of at most `max`. */
static bool read_number(const sm_json *object, const char *name, uint64_t max, uint64_t *out)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    if (v == NULL || v->type != SM_JSON_NUMBER || v->len > 19)
        return false;
    uint64_t n = 0;
    for (uint32_t i = 0; i < v->len; i++) {
        if (v->text[i] < '0' || v->text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(v->text[i] - '0');
    }
    *out = n;
    return n <= max;
}

static bool read_text(const sm_json *object, const char *name, sm_str *out)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    if (v == NULL || v->type != SM_JSON_STRING)
        return false;
    *out = sm_json_text(v);
    return true;
}

static bool is_hex(sm_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    return s.n == SM_HASH_HEX;
}

/* The stream of a chunk, or -1 if it is none. */
static int chunk_stream(const sm_json *chunk)
{
    if (chunk->type != SM_JSON_ARRAY || (chunk->len != 2 && chunk->len != 3))
        return -1;
    const sm_json *name = chunk + 1, *text = sm_json_next(name);
    if (name->type != SM_JSON_STRING || text->type != SM_JSON_STRING)
        return -1;
    if (chunk->len == 3) {
        const sm_json *encoding = sm_json_next(text);
        if (encoding->type != SM_JSON_STRING || !sm_str_is(sm_json_text(encoding), "base64"))
            return -1;
    }
    for (int i = 0; i < SM_STREAMS; i++)
        if (sm_str_is(sm_json_text(name), names[i]))
            return i;
    return -1;
}

/* The bytes of a chunk that chunk_stream has accepted; `room` is emptied and may hold them. */
static bool chunk_bytes(const sm_json *chunk, sm_buf *room, sm_str *out)
{
    const sm_json *text = sm_json_next(chunk + 1);
    *out = sm_json_text(text);
    if (chunk->len == 2)
        return true;
    sm_buf_clear(room);
    bool sound = sm_base64_take(room, *out);
    *out = sm_buf_view(room);
    return sound && room->err == SM_OK;
}

/* Every chunk is sound, and together they are what the record says was written, or a part of it. */
static bool sound_chunks(const sm_replay *r)
{
    uint64_t have[SM_STREAMS] = {0};
    sm_buf room;
    sm_buf_init(&room, SM_TRANSCRIPT_TEXT_MAX);
    bool sound = r->chunks->type == SM_JSON_ARRAY;
    const sm_json *chunk = r->chunks + 1;
    for (uint32_t i = 0; sound && i < r->chunks->len; i++, chunk = sm_json_next(chunk)) {
        sm_str bytes;
        int stream = chunk_stream(chunk);
        sound = stream >= 0 && chunk_bytes(chunk, &room, &bytes);
        if (sound)
            have[stream] += bytes.n;
    }
    for (int i = 0; i < SM_STREAMS; i++)
        sound = sound && (r->truncated ? have[i] <= r->total[i] : have[i] == r->total[i]);
    sm_buf_fini(&room);
    return sound;
}

static bool read_ending(const sm_json *root, sm_ending *end)
{
    uint64_t status, number = 0;
    if (!read_bool(root, "started", &end->started) || !read_number(root, "exit", 255, &status))
        return false;
    if (sm_json_find(root, SM_STR("signal")) != NULL && !read_number(root, "signal", 127, &number))
        return false;
    end->status = (int)status;
    end->signal = (int)number;
    sm_str error;
    if (!end->started) {
        if (!read_text(root, "error", &error))
            return false;
        snprintf(end->error, sizeof end->error, "%.*s", SM_FMT(sm_utf8_cut(error, 150)));
    }
    return true;
}

/* "2026-11-15T12:00:03.250Z" as people write it; a time that looks otherwise is left out. */
static void read_time(const sm_json *root, char out[24])
{
    static const char form[] = "0000-00-00T00:00:00";
    sm_str text;
    out[0] = '\0';
    if (!read_text(root, "ended_at", &text) || text.n < sizeof form - 1)
        return;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        bool digit = text.p[i] >= '0' && text.p[i] <= '9';
        if (form[i] == '0' ? !digit : text.p[i] != form[i])
            return;
    }
    snprintf(out, 24, "%.10s %.8s UTC", text.p, text.p + 11);
}

sm_err sm_replay_read(sm_arena *a, sm_str value, sm_replay *out, sm_fault *fault)
{
    *out = (sm_replay){0};
    const sm_json *root = NULL;
    sm_err e = value.p == NULL ? SEMEL_E_SYNTAX
                               : sm_json_read(a, value, &sm_json_default_limits, &root, fault);
    if (e == SEMEL_E_NOMEM)
        return e;
    if (e != SM_OK || root->type != SM_JSON_OBJECT || sm_json_find(root, SM_STR("chunks")) == NULL)
        return sm_fault_set(fault, SEMEL_E_NOT_FOUND, "it holds no output of a command");
    out->chunks = sm_json_find(root, SM_STR("chunks"));
    if (!read_ending(root, &out->end) || !read_bool(root, "truncated", &out->truncated) ||
        !read_number(root, "stdout_bytes", INT64_MAX, &out->total[SM_STREAM_OUT]) ||
        !read_number(root, "stderr_bytes", INT64_MAX, &out->total[SM_STREAM_ERR]) ||
        !read_text(root, "stdout_sha256", &out->sha256[SM_STREAM_OUT]) ||
        !read_text(root, "stderr_sha256", &out->sha256[SM_STREAM_ERR]) ||
        !is_hex(out->sha256[SM_STREAM_OUT]) || !is_hex(out->sha256[SM_STREAM_ERR]) ||
        !sound_chunks(out))
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "the record of the command's output does not hold together");
    read_time(root, out->ended);
    return SM_OK;
}

/* ---- replaying -------------------------------------------------------------------------------*/

int sm_write_all(int fd, sm_str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n < 0 && errno == EAGAIN) { /* somebody made our own output non-blocking */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        bytes.p += n;
        bytes.n -= (size_t)n;
    }
    return 0;
}

sm_err sm_replay_write(const sm_replay *r, const int fds[SM_STREAMS])
{
    int failed[SM_STREAMS] = {0};
    sm_buf room;
    sm_buf_init(&room, SM_TRANSCRIPT_TEXT_MAX);
    sm_err e = SM_OK;
    const sm_json *chunk = r->chunks + 1;
    for (uint32_t i = 0; i < r->chunks->len; i++, chunk = sm_json_next(chunk)) {
        sm_str bytes;
        int stream = chunk_stream(chunk);
        if (failed[stream] != 0)
            continue;
        if (!chunk_bytes(chunk, &room, &bytes)) {
            e = room.err; /* it was sound when it was read */
            break;
        }
        failed[stream] = sm_write_all(fds[stream], bytes);
    }
    sm_buf_fini(&room);
    for (int i = 0; i < SM_STREAMS && e == SM_OK; i++)
        if (failed[i] != 0 && failed[i] != EPIPE)
            e = SEMEL_E_IO;
    return e;
}
