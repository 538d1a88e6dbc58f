/* The headers of a tool's answer that are kept with its outcome. */
#include "core/headers.h"

#include "base/utf8.h"
#include "json/write.h"

/* Headers that belong to the answer itself and mean the same when it is given again. */
static const char *const kept[] = {
    "Content-Type",     "Content-Encoding",
    "Content-Language", "Content-Disposition",
    "Content-Location", "ETag",
    "Last-Modified",    "Link",
    "Location",         "Request-Id",
    "Retry-After",      "X-Request-Id",
};

void sm_headers_keep(const sm_http_field *fields, size_t n, sm_buf *out)
{
    sm_buf_byte(out, '{');
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        sm_str value = sm_header_find(fields, n, kept[i]);
        if (value.p != NULL && sm_header_value(value) && sm_utf8_valid(value))
            sm_put_text(out, kept[i], value);
    }
    sm_buf_byte(out, '}');
}
