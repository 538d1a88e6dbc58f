/*
 * Guessing from words whether a tool only reads.
 *
 * A name is cut into words at everything that is not a letter, and in front of capitals:
 * list_tables, listTables, pods-list. A name with a word of reading and no word of writing sounds
 * like a read, unless the description begins with a word of writing. If the name has neither, the
 * first sentence of the description must begin with a word of reading and have no word of writing.
 * Some words of reading are weak, such as `query`, which may change a database: after such a name,
 * too, the first sentence must have no word of writing.
 */
#include "mcp/reads.h"

#include <string.h>

#define WORD_MAX 16u

/* RUNS: in a name these words mean writing; a description of a read may begin with them. */
typedef enum sound { NEITHER, READS, WEAKLY, RUNS, WRITES } sound;

/* Words with the ending -s mean the same. */
static const struct {
    const char *word;
    sound is;
} words[] = {
    {"get", READS},       {"list", READS},       {"read", READS},       {"search", READS},
    {"find", READS},      {"describe", READS},   {"show", READS},       {"view", READS},
    {"fetch", READS},     {"retrieve", READS},   {"return", READS},     {"lookup", READS},
    {"count", READS},     {"inspect", READS},    {"browse", READS},     {"explain", READS},
    {"status", READS},    {"info", READS},       {"stat", READS},       {"whoami", READS},
    {"head", READS},      {"tail", READS},       {"diff", READS},       {"log", READS},
    {"top", READS},       {"tree", READS},       {"exist", READS},      {"display", READS},
    {"look", READS},      {"query", WEAKLY},     {"select", WEAKLY},    {"check", WEAKLY},
    {"scan", WEAKLY},     {"analyze", WEAKLY},   {"summarize", WEAKLY}, {"download", WEAKLY},
    {"open", WEAKLY},     {"load", WEAKLY},      {"compare", WEAKLY},   {"validate", WEAKLY},
    {"create", WRITES},   {"update", WRITES},    {"delete", WRITES},    {"remove", WRITES},
    {"insert", WRITES},   {"add", WRITES},       {"append", WRITES},    {"write", WRITES},
    {"set", WRITES},      {"put", WRITES},       {"post", WRITES},      {"send", WRITES},
    {"edit", WRITES},     {"modify", WRITES},    {"change", WRITES},    {"rename", WRITES},
    {"move", WRITES},     {"copy", WRITES},      {"drop", WRITES},      {"apply", WRITES},
    {"patch", WRITES},    {"replace", WRITES},   {"save", WRITES},      {"upload", WRITES},
    {"start", WRITES},    {"stop", WRITES},      {"restart", WRITES},   {"run", RUNS},
    {"exec", RUNS},       {"execute", RUNS},     {"kill", WRITES},      {"scale", WRITES},
    {"install", WRITES},  {"deploy", WRITES},    {"approve", WRITES},   {"cancel", WRITES},
    {"close", WRITES},    {"merge", WRITES},     {"push", WRITES},      {"commit", WRITES},
    {"pay", WRITES},      {"charge", WRITES},    {"book", WRITES},      {"buy", WRITES},
    {"transfer", WRITES}, {"refund", WRITES},    {"publish", WRITES},   {"reset", WRITES},
    {"clear", WRITES},    {"purge", WRITES},     {"enable", WRITES},    {"disable", WRITES},
    {"assign", WRITES},   {"invite", WRITES},    {"mark", WRITES},      {"rotate", WRITES},
    {"label", WRITES},    {"uninstall", WRITES}, {"upsert", WRITES},    {"fork", WRITES},
};

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

/* The next word in lowercase, cut to the buffer; false at the end. A capital begins a word after a
 * lowercase letter, and before one. */
static bool next_word(sm_str text, size_t *at, char out[WORD_MAX])
{
    size_t n = 0;
    while (*at < text.n && !is_upper(text.p[*at]) && !is_lower(text.p[*at]))
        ++*at;
    for (; *at < text.n; ++*at) {
        char c = text.p[*at];
        if (!is_upper(c) && !is_lower(c))
            break;
        bool begins =
            is_upper(c) && n > 0 &&
            (is_lower(text.p[*at - 1]) || (*at + 1 < text.n && is_lower(text.p[*at + 1])));
        if (begins)
            break;
        if (n < WORD_MAX - 1)
            out[n++] = (char)(is_upper(c) ? c + 32 : c);
    }
    out[n] = '\0';
    return n > 0;
}

static sound sound_of(const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t m = strlen(words[i].word);
        bool plural = (n == m + 1 && word[m] == 's') || (n == m + 2 && strcmp(word + m, "es") == 0);
        if ((n == m || plural) && memcmp(word, words[i].word, m) == 0)
            return words[i].is;
    }
    return strcmp(word, "queries") == 0 ? WEAKLY : NEITHER;
}

static sm_str first_sentence(sm_str text)
{
    size_t n = 0;
    while (n < text.n && strchr(".!?\n;", text.p[n]) == NULL)
        n++;
    return (sm_str){text.p, n};
}

/* The strongest of all words: writing wins over reading. */
static sound sound_of_all(sm_str text, bool called)
{
    char word[WORD_MAX];
    sound all = NEITHER;
    for (size_t at = 0; next_word(text, &at, word);) {
        sound one = sound_of(word);
        if (one == WRITES || (one == RUNS && called))
            return WRITES;
        if (one == READS || (one == WEAKLY && all == NEITHER))
            all = one;
    }
    return all;
}

bool mcp_sounds_like_read(sm_str name, sm_str description)
{
    char word[WORD_MAX];
    size_t at = 0;
    sm_str said = first_sentence(description);
    sound called = sound_of_all(name, true), all = sound_of_all(said, false);
    sound begins = next_word(said, &at, word) ? sound_of(word) : NEITHER;
    if (called == READS)
        return begins != WRITES;
    if (called == WEAKLY)
        return all != WRITES;
    return called == NEITHER && (begins == READS || begins == WEAKLY) && all != WRITES;
}
