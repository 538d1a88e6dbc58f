/*
 * Who may do what: bearer tokens, in a file that holds only their hashes.
 *
 * A token's text is semel_ID_SECRET: eight characters that name it and 43 that prove it. The file
 * has for each its id, a name, a role, a scope prefix, the SHA-256 of the text, when it was made
 * and when it ends. The file is not enough to make a token from it. It also has a random key that
 * proves which token an MCP session belongs to (mcp/owner.c).
 *
 * The file is written whole, under a lock and by renaming, so that a reader sees all of an old one
 * or all of a new one. A running gateway notices a change within a second. A file that is not there
 * yet holds no tokens; one that was there and is gone leaves its tokens in force, for they were not
 * revoked. One that another user owns, or could change or replace, is refused (base/trust.h).
 */
#ifndef SM_GATEWAY_TOKENS_H
#define SM_GATEWAY_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"

/* What the holder of a token may do. Numbers are bits of a route's set of roles. */
typedef enum gw_role {
    GW_AGENT = 1,    /* calls tools, and reads what became of it */
    GW_APPROVER = 2, /* reads, approves and denies */
    GW_OPERATOR = 4, /* that, and cancels, resolves, forgets, stops and resumes */
    GW_ADMIN = 8,    /* everything */
} gw_role;

#define GW_ID_TEXT    8u
#define GW_TOKEN_TEXT 64u /* room for any token and its NUL */
#define GW_NAME_MAX   64u
#define GW_TOKENS_MAX 10000u

const char *gw_role_name(gw_role role);
bool gw_role_parse(sm_str text, gw_role *out);

/* Somebody who has shown a token. The texts live as long as the request. */
typedef struct gw_who {
    gw_role role;                 /* 0: nobody */
    char id[GW_ID_TEXT + 1];      /* of the token */
    char actor[GW_NAME_MAX + 24]; /* for the audit trail: "NAME (token ID)" */
    char scope[513];              /* prefix of the scopes that are theirs; empty: all */
} gw_who;

/* Whether a scope is theirs: equal to the prefix, or below it by whole segments. */
bool gw_who_owns(const gw_who *who, sm_str scope);

typedef struct gw_token {
    char id[GW_ID_TEXT + 1];
    char name[GW_NAME_MAX + 1];
    gw_role role;
    char scope[513];
    sm_hash hash;
    int64_t made_at, ends_at; /* ends_at 0: never */
} gw_token;

typedef struct gw_tokens gw_tokens;

/* Opens a file for checking tokens; it need not exist yet. */
sm_err gw_tokens_open(const char *path, gw_tokens **out, sm_fault *fault);
void gw_tokens_close(gw_tokens *t); /* accepts NULL */

/* Reads the file again if it has changed. On failure the old tokens stay, and the next one says the
 * same again until the file is right. */
sm_err gw_tokens_refresh(gw_tokens *t, sm_fault *fault);

/* Whether the file is another one than at the latest refresh: whoever tells about failures does so
 * once for each change. */
bool gw_tokens_changed(gw_tokens *t);

size_t gw_tokens_count(gw_tokens *t);

/* Who a token's text stands for; false if nobody. Compares in constant time. Any thread. A token
 * that is not known may just have been made: then the file is looked at, and read if it changed. */
bool gw_tokens_check(gw_tokens *t, sm_str text, int64_t now_ms, gw_who *out);

/* Whether a text has one in it that is of the form of a token, of this gateway or another. */
bool gw_token_inside(sm_str text);

/* Whether the token that somebody has shown is still in force: for what goes on for long. */
bool gw_tokens_hold(gw_tokens *t, const gw_who *who, int64_t now_ms);

/* The key of the file; one of this process alone if the file has none, as those that were made
 * before there were keys. The next change of such a file gives it one. */
void gw_tokens_session_key(gw_tokens *t, sm_hash *out);

/* Changes to a file, whole or not at all. `text` gets the new token, which is nowhere else. Of
 * `what` the name, role, scope and end are looked at. The file belongs to whom it belonged before,
 * or to whom its directory belongs, as far as we may give it away. */
sm_err gw_token_create(const char *path, const gw_token *what, char text[GW_TOKEN_TEXT],
                       gw_token *made, sm_fault *fault);
sm_err gw_token_revoke(const char *path, sm_str id, sm_fault *fault);

/* Told each token of a file, in the order in which they were made; false stops. */
typedef bool gw_token_fn(void *context, const gw_token *t);
sm_err gw_token_each(const char *path, gw_token_fn *each, void *context, sm_fault *fault);

/* Members of an object: its id, name, role and scope. */
void gw_token_put(sm_buf *out, const gw_token *t);

/* Internal to the files about tokens: a whole file, what may be in it, and a token's hash. */
#define GW_TOKEN_PREFIX     "semel_"
#define GW_TOKENS_BYTES_MAX ((size_t)16 << 20)
typedef struct gw_token_list {
    gw_token *v; /* to be freed */
    size_t n;
    sm_hash session_key; /* all zero: there is none */
} gw_token_list;
/* SEMEL_E_NOT_FOUND, and no tokens, if there is no file. */
sm_err gw_tokens_read(const char *path, gw_token_list *out, sm_fault *fault);
sm_err gw_tokens_failed(const char *path, const char *doing, sm_fault *fault); /* from errno */
sm_err gw_token_right(sm_str name, sm_str scope, sm_fault *fault);
sm_err gw_token_hash(sm_str text, sm_hash *out);
bool gw_session_key_given(const gw_token_list *list);

#endif
