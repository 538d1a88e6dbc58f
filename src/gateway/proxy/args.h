/* The arguments of the call that a request through the reverse proxy is. */
#ifndef SM_GATEWAY_PROXY_ARGS_H
#define SM_GATEWAY_PROXY_ARGS_H

#include "base/buf.h"
#include "base/digest.h"
#include "gateway/inside/gateway.h"

/* While they are written. */
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

/* Writes them; `n` headers of the client are passed on. */
sm_err gw_proxy_args(const gw_request *r, sm_arena *a, const gw_upstream_api *api,
                     const sm_http_field *headers, size_t n, sm_str path, sm_str *out);

#endif
