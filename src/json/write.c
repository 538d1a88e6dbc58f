/* Members of objects: names, commas and the values that are no documents. */
#include "json/write.h"

#include "base/stamp.h"

/* Whether what is written next is the first in its bracket, or in the buffer. */
static bool is_first(const sm_buf *out, char bracket)
{
    return out->len == 0 || out->p[out->len - 1] == bracket;
}

void sm_put_name(sm_buf *out, const char *name)
{
    sm_buf_text(out, is_first(out, '{') ? "\"" : ",\"");
    sm_buf_text(out, name);
    sm_buf_bytes(out, "\":", 2);
}

void sm_put_open(sm_buf *out, const char *name, char opening)
{
    sm_put_name(out, name);
    sm_buf_byte(out, opening);
}

void sm_put_item(sm_buf *out)
{
    if (!is_first(out, '['))
        sm_buf_byte(out, ',');
}

void sm_put_text(sm_buf *out, const char *name, sm_str text)
{
    if (text.p == NULL)
        return;
    sm_put_name(out, name);
    sm_json_put_string(out, text);
}

void sm_put_raw(sm_buf *out, const char *name, sm_str json)
{
    if (json.n == 0)
        return;
    sm_put_name(out, name);
    sm_buf_str(out, json);
}

void sm_put_number(sm_buf *out, const char *name, uint64_t value)
{
    sm_put_name(out, name);
    sm_buf_number(out, value);
}

void sm_put_signed(sm_buf *out, const char *name, int64_t value)
{
    sm_put_name(out, name);
    if (value < 0)
        sm_buf_byte(out, '-');
    sm_buf_number(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void sm_put_bool(sm_buf *out, const char *name, bool value)
{
    sm_put_name(out, name);
    sm_buf_text(out, value ? "true" : "false");
}

void sm_put_hash(sm_buf *out, const char *name, const sm_hash *hash)
{
    char text[SM_HASH_TEXT + 1];
    sm_hash_text(hash, text);
    sm_put_text(out, name, sm_str_from(text));
}

void sm_put_stamp(sm_buf *out, const char *name, int64_t ms)
{
    char text[SM_STAMP_TEXT];
    if (ms == 0)
        return;
    sm_stamp_text(ms, text);
    sm_put_text(out, name, sm_str_from(text));
}
