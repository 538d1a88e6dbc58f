/*
 * A request as it is kept: checked, and copied into one piece of memory together with its exchange.
 *
 * libcurl writes what it is given, so what could end a line or a message early is refused here:
 * control characters, and headers about framing.
 */
#include <stdlib.h>

#include "base/header.h"
#include "base/url.h"
#include "upstream/client/engine.h"

#define HEADERS_MAX 512u

/* Memory that is handed out from front to back. The nodes of libcurl's list come first: they need
 * alignment, texts do not. */
static char *put(char **at, sm_str s)
{
    char *start = *at;
    if (s.n > 0)
        memcpy(start, s.p, s.n);
    start[s.n] = '\0';
    *at = start + s.n + 1;
    return start;
}

/* "Name: value", or "Name;" where libcurl is to send an empty one, or "Name:" where it is to send
 * none of its own accord. */
static char *put_header(char **at, sm_str name, const char *between, sm_str value)
{
    char *line = put(at, name);
    --*at;
    put(at, sm_str_from(between));
    --*at;
    put(at, value);
    return line;
}

static bool header_right(const sm_http_field *f)
{
    return sm_header_name(f->name) && sm_header_value(f->value) && !sm_header_framing(f->name);
}

static bool request_right(const sm_http_request *r)
{
    if (sm_url_check(r->url, NULL) != SM_OK || !sm_header_name(sm_str_from(r->method)) ||
        r->header_count > HEADERS_MAX || r->timeout_ms <= 0)
        return false;
    for (size_t i = 0; i < r->header_count; i++) {
        if (!header_right(&r->headers[i]))
            return false;
    }
    return true;
}

/* Fills the next node, which is linked to the one before: headers of one name keep their order. */
static struct curl_slist *add(sm_http_exchange *x, struct curl_slist *node, char *line)
{
    *node = (struct curl_slist){.data = line};
    if (x->headers == NULL)
        x->headers = node;
    else
        node[-1].next = node;
    return node + 1;
}

sm_err sm_http_copy(const sm_http_request *r, sm_http_exchange **out)
{
    *out = NULL;
    if (!request_right(r))
        return SEMEL_E_INVALID;
    bool typed = false;
    size_t nodes = r->header_count + 2, size = strlen(r->method) + r->url.n + r->body.n + 3;
    for (size_t i = 0; i < r->header_count; i++) {
        size += r->headers[i].name.n + r->headers[i].value.n + 3;
        typed |= sm_header_is(r->headers[i].name, SM_STR("Content-Type"));
    }
    size += sizeof "Content-Type:" + sizeof "Expect:";
    sm_http_exchange *x = calloc(1, sizeof *x + nodes * sizeof(struct curl_slist) + size);
    if (x == NULL)
        return SEMEL_E_NOMEM;
    struct curl_slist *node = (struct curl_slist *)(x + 1);
    char *at = (char *)(node + nodes);
    for (size_t i = 0; i < r->header_count; i++) {
        /* libcurl removes a header whose value is blank. */
        sm_str value = sm_header_trim(r->headers[i].value);
        node = add(x, node, put_header(&at, r->headers[i].name, value.n == 0 ? ";" : ": ", value));
    }
    /* libcurl takes every body for a form, and asks before it sends a large one. */
    node = add(x, node, put_header(&at, SM_STR("Expect"), ":", SM_STR("")));
    if (!typed)
        add(x, node, put_header(&at, SM_STR("Content-Type"), ":", SM_STR("")));
    x->method = put(&at, sm_str_from(r->method));
    x->url = put(&at, r->url);
    if (r->body.p != NULL)
        x->body = (sm_str){put(&at, r->body), r->body.n};
    x->timeout_ms = r->timeout_ms;
    x->body_max = r->body_max;
    x->write = r->write;
    x->trickle = r->trickle;
    *out = x;
    return SM_OK;
}
