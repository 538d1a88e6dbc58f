/* The headers of a tool's answer that are kept with its outcome. */
#ifndef SM_CORE_HEADERS_H
#define SM_CORE_HEADERS_H

#include "base/buf.h"
#include "base/header.h"

/* Writes those that are kept and replayed, as a JSON object: an allow-list. Never Set-Cookie,
 * Authorization or anything hop by hop. */
void sm_headers_keep(const sm_http_field *fields, size_t n, sm_buf *out);

#endif
