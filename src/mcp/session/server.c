/* A server that sessions talk to, and the name that it has in the ledger. */
#include <stdio.h>
#include <stdlib.h>

#include "mcp/session/session.h"

static char *own_text(sm_str text)
{
    return text.p == NULL ? NULL : strndup(text.p, text.n);
}

sm_err mcp_server_new(mcp_hub *hub, const mcp_server_options *o, mcp_server **out)
{
    mcp_server *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return SEMEL_E_NOMEM;
    s->hub = hub;
    s->o = *o;
    s->name = own_text(o->name);
    s->scope = own_text(o->scope);
    s->pins = o->pins == NULL ? NULL : strdup(o->pins);
    if (s->name != NULL && (o->scope.p == NULL || s->scope != NULL) &&
        (o->pins == NULL || s->pins != NULL))
        return SM_OK;
    mcp_server_free(s);
    *out = NULL;
    return SEMEL_E_NOMEM;
}

void mcp_server_free(mcp_server *s)
{
    if (s == NULL)
        return;
    mcp_listing_drop(s->listing);
    free(s->name);
    free(s->scope);
    free(s->pins);
    free(s);
}

bool mcp_name_of(char *const *argv, const char *directory, char out[MCP_NAME_MAX])
{
    sm_digest digest = {0};
    sm_hash hash;
    char hex[SM_HASH_HEX + 1];
    sm_err e = sm_digest_init(&digest);
    if (e == SM_OK)
        e = sm_digest_start(&digest);
    for (char *const *word = argv; e == SM_OK && *word != NULL; word++)
        e = sm_digest_add(&digest, *word, strlen(*word) + 1);
    if (e == SM_OK)
        e = sm_digest_add(&digest, directory, strlen(directory) + 1);
    if (e == SM_OK)
        e = sm_digest_finish(&digest, &hash);
    sm_digest_fini(&digest);
    if (e != SM_OK)
        return false;
    sm_hash_hex(&hash, hex);
    const char *slash = strrchr(argv[0], '/');
    const char *base = slash == NULL ? argv[0] : slash + 1;
    snprintf(out, MCP_NAME_MAX, "%.100s-%.8s", base, hex);
    return true;
}
