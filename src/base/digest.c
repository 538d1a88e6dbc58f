/* SHA-256 by libcrypto's EVP interface; base64url (RFC 4648 section 5) without padding. */
#include "base/digest.h"

#include <openssl/evp.h>

sm_err sm_digest_init(sm_digest *d)
{
    d->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    d->ctx = EVP_MD_CTX_new();
    if (d->md != NULL && d->ctx != NULL)
        return SM_OK;
    sm_digest_fini(d);
    return SEMEL_E_CRYPTO;
}

void sm_digest_fini(sm_digest *d)
{
    EVP_MD_CTX_free(d->ctx);
    EVP_MD_free(d->md);
    *d = (sm_digest){0};
}

sm_err sm_digest_bytes(sm_digest *d, const void *p, size_t n, sm_hash *out)
{
    if (EVP_DigestInit_ex2(d->ctx, d->md, NULL) == 1 && EVP_DigestUpdate(d->ctx, p, n) == 1 &&
        EVP_DigestFinal_ex(d->ctx, out->b, NULL) == 1)
        return SM_OK;
    return SEMEL_E_CRYPTO;
}

sm_err sm_digest_start(sm_digest *d)
{
    return EVP_DigestInit_ex2(d->ctx, d->md, NULL) == 1 ? SM_OK : SEMEL_E_CRYPTO;
}

sm_err sm_digest_add(sm_digest *d, const void *p, size_t n)
{
    return EVP_DigestUpdate(d->ctx, p, n) == 1 ? SM_OK : SEMEL_E_CRYPTO;
}

sm_err sm_digest_finish(sm_digest *d, sm_hash *out)
{
    return EVP_DigestFinal_ex(d->ctx, out->b, NULL) == 1 ? SM_OK : SEMEL_E_CRYPTO;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void sm_hash_text(const sm_hash *h, char out[SM_HASH_TEXT + 1])
{
    uint32_t bits = 0;
    int have = 0;
    char *w = out;
    for (size_t i = 0; i < SM_HASH_BYTES; i++) {
        bits = bits << 8 | h->b[i];
        for (have += 8; have >= 6; have -= 6)
            *w++ = alphabet[bits >> (have - 6) & 63];
    }
    *w++ = alphabet[bits << (6 - have) & 63];
    *w = '\0';
}

void sm_hash_hex(const sm_hash *h, char out[SM_HASH_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SM_HASH_BYTES; i++) {
        out[2 * i] = digits[h->b[i] >> 4];
        out[2 * i + 1] = digits[h->b[i] & 15];
    }
    out[SM_HASH_HEX] = '\0';
}

bool sm_hash_parse(sm_str text, sm_hash *out)
{
    if (text.n != SM_HASH_TEXT)
        return false;
    uint32_t bits = 0;
    int have = 0;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        const char *found = text.p[i] == '\0' ? NULL : strchr(alphabet, text.p[i]);
        if (found == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(found - alphabet);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out->b[n++] = (uint8_t)(bits >> have);
        }
    }
    return (bits & ((1u << have) - 1)) == 0; /* the unused low bits must be zero */
}
