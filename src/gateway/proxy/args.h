/* The arguments of a request through the reverse proxy, while they are written. */
#ifndef SM_GATEWAY_PROXY_ARGS_H
#define SM_GATEWAY_PROXY_ARGS_H

#include "base/buf.h"
#include "base/digest.h"
#include "gateway/inside/gateway.h"

typedef struct gw_writing {
    const gw_upstream_api *api;
    const sm_http_field *headers;
    size_t n;
    sm_arena *arena;
    sm_str query; /* may be absent */
    sm_digest digest;
    sm_buf out;
    bool unpacked; /* the body was compared without its Content-Encoding */
    bool parted;   /* it was read as multipart */
} gw_writing;

/* Appends the members that hold headers; after the body (headers.c). */
sm_err gw_put_headers(gw_writing *w);

#endif
