/*
 * The scripts: every change of the ledger is one, and a script runs alone on its server. Their
 * texts are files, scripts/NAME.lua, which are part of the program.
 *
 * Rules that all of them keep:
 *   - every key that a script decides by is among its KEYS: while a cluster moves a slot, that is
 *     how the server knows that some of them are not here. The one other is the effect that bars a
 *     write, which is in the same slot: if it cannot be read here, the caller asks for it;
 *   - all questions come before the first change, and the first change is one that a server without
 *     memory refuses. So a script is done in all its parts or in none;
 *   - numbers that may be over 2^53 stay texts: Lua knows only doubles;
 *   - a script begins by naming its keys and arguments. Who calls it puts them in that order, and
 *     names them likewise. Below, only those of which there may be many have numbers.
 *
 * What they know of a record is its head, drawn in row.c: characters 2 to 33 are generation
 * and version, 34 is "somebody waits", 35 the state, 36 to 51 the birth, 52 to 83 the key, 84 to
 * 115 the group. States up to 4 are not settled.
 */
#include <openssl/evp.h>
#include <stdio.h>

#include "store/redis/redis.h"
#include "store/redis/script_texts.h"

/* What is under way must be recorded, even by a server that has no memory for anything new: else
 * effects would end in doubt. Servers before Redis 7 do not understand this line. */
#define FULL "#!lua flags=allow-oom\n"

typedef struct script_text {
    const char *first_line, *rest;
    const size_t *rest_bytes;
} script_text;

#define TEXT(first_line, name)                                                                     \
    {                                                                                              \
        first_line, sm_rd_lua_##name, &sm_rd_lua_##name##_bytes                                    \
    }

static const script_text texts[SM_RD_SCRIPT_COUNT] = {
    [SM_RD_WRITE] = TEXT("", write),         [SM_RD_RECORD] = TEXT(FULL, write),
    [SM_RD_WATCH] = TEXT("", watch),         [SM_RD_REAP] = TEXT("", reap),
    [SM_RD_NUMBER] = TEXT("", number),       [SM_RD_DEQUEUE] = TEXT("", dequeue),
    [SM_RD_UNNUMBER] = TEXT("", unnumber),   [SM_RD_SEAL] = TEXT("", seal),
    [SM_RD_NOTE_DROP] = TEXT("", note_drop), [SM_RD_CHECK] = TEXT("", check),
    [SM_RD_GROUP] = TEXT("", group),
};

size_t sm_rd_script_put(sm_rd_script script, sm_buf *out)
{
    const script_text *t = &texts[script];
    if (out != NULL) {
        sm_buf_text(out, t->first_line);
        sm_buf_bytes(out, t->rest, *t->rest_bytes);
    }
    return strlen(t->first_line) + *t->rest_bytes;
}

/* A server knows a script by the SHA-1 of its text. */
semel_err sm_rd_script_names(char names[SM_RD_SCRIPT_COUNT][SM_RD_SHA + 1])
{
    semel_err e = SEMEL_OK;
    sm_buf text;
    sm_buf_init(&text, 1 << 16);
    for (size_t i = 0; e == SEMEL_OK && i < SM_RD_SCRIPT_COUNT; i++) {
        unsigned char digest[EVP_MAX_MD_SIZE];
        size_t n = 0;
        sm_buf_clear(&text);
        sm_rd_script_put((sm_rd_script)i, &text);
        if (text.err != SM_OK ||
            EVP_Q_digest(NULL, "SHA1", NULL, text.p, text.len, digest, &n) != 1 ||
            n * 2 != SM_RD_SHA) {
            e = SEMEL_E_CRYPTO;
            break;
        }
        for (size_t k = 0; k < n; k++)
            snprintf(names[i] + 2 * k, 3, "%02x", digest[k]);
    }
    sm_buf_fini(&text);
    return e;
}
