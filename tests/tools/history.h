/*
 * The language between tool_chaos, which writes down what it does and is told, and tool_history,
 * which judges it. One line for each:
 *
 *     TIME WORD EFFECT FENCE NUMBER HASH TOOL
 *
 * TIME is CLOCK_MONOTONIC in ns, which all processes share. What a process is about to do is
 * written before, what it was told after: so a process that is killed in between has left the
 * question open, and never a wrong answer.
 */
#ifndef SM_TESTS_HISTORY_H
#define SM_TESTS_HISTORY_H

/*  X(word): what it means */
#define HISTORY_WORDS(X)                                                                           \
    X(execute)   /* the ledger said execute; NUMBER is the attempt, HASH when it was asked */      \
    X(did)       /* the effect: from here on the world is changed; HASH is of what it answers */   \
    X(acked)     /* a success was committed; NUMBER is a history_result */                         \
    X(forged)    /* a finished attempt said something else; likewise */                            \
    X(failing)   /* about to commit a failure that did nothing */                                  \
    X(failed)    /* it was committed; NUMBER is a history_result */                                \
    X(ok)        /* somebody got a success; NUMBER is when it was asked, HASH of the value */      \
    X(nok)       /* likewise a failure */                                                          \
    X(doubt)     /* somebody was told that it is in doubt; NUMBER is when it was asked */          \
    X(resolving) /* about to resolve; NUMBER names it, FENCE is a semel_resolution */              \
    X(resolved)  /* the one of that NUMBER was accepted */                                         \
    X(unresolved)                                                                                  \
    X(forgetting) /* about to be forgotten */                                                      \
    X(broken)     /* an answer that should not be */

typedef enum history_word {
#define X(word) H_##word,
    HISTORY_WORDS(X)
#undef X
        H_COUNT
} history_word;

static const char *const history_words[] = {
#define X(word) #word,
    HISTORY_WORDS(X)
#undef X
};

typedef enum history_result { R_COMMITTED = 1, R_LATE_SETTLED, R_LATE_EVIDENCE } history_result;

#endif
