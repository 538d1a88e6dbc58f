/* The document that describes the API, openapi.json, as it was when this was built. */
#ifndef SM_GATEWAY_API_OPENAPI_H
#define SM_GATEWAY_API_OPENAPI_H

#include <stddef.h>

extern const char gw_openapi[];
extern const size_t gw_openapi_bytes;

#endif
