/* What passes on, what is kept for later, and what is recorded: the rule is in returned.h. */
#include "gateway/run/returned.h"

#include <strings.h>

#include "base/header.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "core/contract.h"
#include "gateway/proxy/forward.h"
#include "gateway/proxy/redirect.h"
#include "json/canon.h"

static bool named(sm_str name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (sm_header_is(name, sm_str_from(*names)))
            return true;
    return false;
}

bool gw_passes_on(sm_str name)
{
    static const char *const ours[] = {"cache-control", "x-content-type-options",
                                       "idempotent-replayed", NULL};
    static const char prefix[] = "semel-";
    return !named(name, ours) && !gw_hop_by_hop(name) &&
           (name.n < sizeof prefix - 1 || strncasecmp(name.p, prefix, sizeof prefix - 1) != 0);
}

/* Whether it is listed as one of the connection's. */
static bool of_connection(const sm_http_result *head, sm_str name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (sm_header_is(head->headers[i].name, SM_STR("Connection")) &&
            gw_lists(head->headers[i].value, ',', name))
            return true;
    return false;
}

static bool is_given(const sm_http_result *head, const sm_http_field *h)
{
    return gw_passes_on(h->name) && sm_header_name(h->name) && sm_header_value(h->value) &&
           !of_connection(head, h->name);
}

void gw_returned_put(gw_request *r, sm_str name, sm_str value)
{
    char text[256];
    sm_buf mapped;
    if (name.n >= sizeof text)
        return;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    sm_buf_init(&mapped, SM_ARENA_MAX);
    if (gw_redirect_map(r, name, value, &mapped)) {
        if (mapped.err == SM_OK)
            gw_set(r, text, sm_buf_view(&mapped));
    } else if (r->on_header == NULL || !r->on_header(r, name, value)) {
        gw_set(r, text, value);
    }
    sm_buf_fini(&mapped);
}

void gw_returned_set(gw_request *r, const sm_http_result *head)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (is_given(head, &head->headers[i]))
            gw_returned_put(r, head->headers[i].name, head->headers[i].value);
}

/* Name, NUL, value, NUL, and so on: neither has a NUL in it. */
void gw_returned_keep(const sm_http_result *head, sm_buf *out)
{
    for (size_t i = 0; i < head->header_count; i++) {
        const sm_http_field *h = &head->headers[i];
        if (!is_given(head, h))
            continue;
        sm_buf_str(out, h->name);
        sm_buf_byte(out, '\0');
        sm_buf_str(out, h->value);
        sm_buf_byte(out, '\0');
    }
}

static bool next_kept(sm_str kept, size_t *at, sm_str *name, sm_str *value)
{
    if (*at >= kept.n)
        return false;
    *name = (sm_str){kept.p + *at, strnlen(kept.p + *at, kept.n - *at)};
    *at += name->n + 1;
    *value = (sm_str){kept.p + *at, strnlen(kept.p + *at, kept.n - *at)};
    *at += value->n + 1;
    return true;
}

void gw_returned_give(gw_request *r, sm_str kept)
{
    sm_str name, value;
    for (size_t at = 0; next_kept(kept, &at, &name, &value);)
        gw_returned_put(r, name, value);
}

sm_str gw_returned_find(sm_str kept, sm_str wanted, size_t *n)
{
    sm_str name, value, first = {0};
    *n = 0;
    for (size_t at = 0; next_kept(kept, &at, &name, &value);)
        if (sm_header_is(name, wanted) && (*n)++ == 0)
            first = value;
    return first;
}

/* ---- the record ------------------------------------------------------------------------------*/

/* A challenge has a nonce that is used once. Clients set their clocks by Date. How a body is framed
 * is said by whoever sends it. */
static bool is_recorded(const sm_http_result *head, const sm_http_field *h)
{
    static const char *const left_out[] = {"date",
                                           "www-authenticate",
                                           "authentication-info",
                                           "proxy-authentication-info",
                                           "content-length",
                                           NULL};
    return is_given(head, h) && !named(h->name, left_out) && sm_utf8_valid(h->value) &&
           !sm_header_secret(&(sm_header){.name = h->name, .value = SM_STR("")});
}

static size_t bytes_of(const sm_http_field *h)
{
    return h->name.n + h->value.n + 4;
}

/* Headers must be shorter than this, so that all of them together are not too long. */
static size_t shorter_than(const sm_http_result *head)
{
    size_t most = SIZE_MAX;
    for (;;) {
        size_t sum = 0, longest = 0;
        for (size_t i = 0; i < head->header_count; i++) {
            size_t n = bytes_of(&head->headers[i]);
            if (n >= most || !is_recorded(head, &head->headers[i]))
                continue;
            sum += n;
            longest = n > longest ? n : longest;
        }
        if (sum <= SM_ANSWER_HEADERS_MAX)
            return most;
        most = longest;
    }
}

/* The values of a header's name, if this is the first one of that name. */
static void put_values(const sm_http_result *head, size_t first, size_t most, sm_buf *out)
{
    sm_str name = head->headers[first].name;
    size_t count = 0;
    for (size_t i = 0; i < head->header_count; i++) {
        const sm_http_field *h = &head->headers[i];
        if (!sm_header_is(h->name, name) || bytes_of(h) >= most || !is_recorded(head, h))
            continue;
        if (i < first)
            return;
        count++;
    }
    if (out->len > 1)
        sm_buf_byte(out, ',');
    sm_json_put_string(out, name);
    sm_buf_text(out, count > 1 ? ":[" : ":");
    for (size_t i = first, n = 0; i < head->header_count && n < count; i++) {
        const sm_http_field *h = &head->headers[i];
        if (!sm_header_is(h->name, name) || bytes_of(h) >= most || !is_recorded(head, h))
            continue;
        if (n++ > 0)
            sm_buf_byte(out, ',');
        sm_json_put_string(out, h->value);
    }
    if (count > 1)
        sm_buf_byte(out, ']');
}

void gw_returned_record(const sm_http_result *head, sm_buf *out)
{
    size_t most = shorter_than(head);
    sm_buf_byte(out, '{');
    for (size_t i = 0; i < head->header_count; i++)
        if (bytes_of(&head->headers[i]) < most && is_recorded(head, &head->headers[i]))
            put_values(head, i, most, out);
    sm_buf_byte(out, '}');
}
