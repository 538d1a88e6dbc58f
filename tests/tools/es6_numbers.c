/*
 * The published sequence of ECMAScript number tests (json-canonicalization, es6testfile), generated
 * rather than downloaded: 168 chosen doubles, 2000 from the smallest normal one upward, and then
 * whatever SHA-256 makes of its own output, four doubles in each block.
 *
 *     es6_numbers LINES           prints "N DIGEST" at each power of ten from 1000 on: the SHA-256
 *                                 of the first N lines
 *     es6_numbers --write LINES   prints the lines themselves, "hexadecimal bits,text"
 *
 * On the way every text is checked to be its own canonical form. Exit code: 1 if one is not.
 */
#include "es6_numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <endian.h>
#include <openssl/evp.h>

#include "json/number.h"

#define STATIC (sizeof es6_static / sizeof es6_static[0])
#define SERIAL 2000u

typedef struct sequence {
    uint64_t index;
    unsigned char block[32];
    unsigned used; /* doubles taken from the block */
} sequence;

static void die(const char *what)
{
    fprintf(stderr, "es6_numbers: %s\n", what);
    exit(1);
}

static double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t next_from_chain(sequence *s)
{
    for (;;) {
        if (s->used == 4) {
            if (EVP_Digest(s->block, sizeof s->block, s->block, NULL, EVP_sha256(), NULL) != 1)
                die("SHA-256 failed");
            s->used = 0;
        }
        uint64_t bits;
        memcpy(&bits, s->block + 8 * (size_t)s->used++, sizeof bits);
        bits = le64toh(bits);
        double value = as_double(bits);
        if (value != 0 && isfinite(value))
            return bits;
    }
}

static uint64_t next_bits(sequence *s)
{
    uint64_t i = s->index++;
    if (i < STATIC)
        return es6_static[i];
    if (i < STATIC + SERIAL)
        return 0x0010000000000000u + (i - STATIC);
    return next_from_chain(s);
}

/* Writes one line, NUL-terminated, and returns its length. */
static size_t format_line(uint64_t bits, char *line)
{
    size_t head = (size_t)sprintf(line, "%llx,", (unsigned long long)bits);
    size_t n = sm_number_es6(as_double(bits), line + head);
    char again[SM_NUMBER_MAX];
    size_t m = sm_number_canonical((sm_str){line + head, n}, again);
    if (m != n || memcmp(again, line + head, n) != 0) {
        fprintf(stderr, "es6_numbers: %.*s is written again as %.*s\n", (int)n, line + head, (int)m,
                again);
        exit(1);
    }
    line[head + n] = '\n';
    line[head + n + 1] = '\0';
    return head + n + 1;
}

static void print_digest(uint64_t lines, const EVP_MD_CTX *running)
{
    unsigned char digest[32];
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    if (copy == NULL || EVP_MD_CTX_copy_ex(copy, running) != 1 ||
        EVP_DigestFinal_ex(copy, digest, NULL) != 1)
        die("SHA-256 failed");
    EVP_MD_CTX_free(copy);
    printf("%llu ", (unsigned long long)lines);
    for (size_t i = 0; i < sizeof digest; i++)
        printf("%02x", digest[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    int write = argc == 3 && strcmp(argv[1], "--write") == 0;
    if (argc != 2 + write)
        die("usage: es6_numbers [--write] LINES");
    uint64_t lines = strtoull(argv[1 + write], NULL, 10);
    EVP_MD_CTX *running = EVP_MD_CTX_new();
    if (running == NULL || EVP_DigestInit_ex(running, EVP_sha256(), NULL) != 1)
        die("SHA-256 failed");
    sequence s = {.used = 4};
    uint64_t milestone = 1000;
    for (uint64_t i = 1; i <= lines; i++) {
        char line[32 + SM_NUMBER_MAX];
        size_t n = format_line(next_bits(&s), line);
        if (write)
            fputs(line, stdout);
        else if (EVP_DigestUpdate(running, line, n) != 1)
            die("SHA-256 failed");
        if (i == milestone && !write) {
            print_digest(i, running);
            milestone *= 10;
        }
    }
    EVP_MD_CTX_free(running);
    return 0;
}
