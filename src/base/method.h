/* The methods of HTTP: the one table of their names, and of what they do. */
#ifndef SM_BASE_METHOD_H
#define SM_BASE_METHOD_H

enum {
    SM_METHOD_READS = 1, /* it changes nothing */
    SM_METHOD_SENDS = 2, /* it has a body, if only an empty one */
    SM_METHOD_SETS = 4,  /* it sets what the path names */
};

/* Those that have a number: CALL(name, what it does) if a contract may name it, else X. */
#define SM_METHODS(CALL, X)                                                                        \
    CALL(GET, SM_METHOD_READS)                                                                     \
    X(HEAD, SM_METHOD_READS)                                                                       \
    CALL(POST, SM_METHOD_SENDS)                                                                    \
    CALL(PUT, SM_METHOD_SENDS | SM_METHOD_SETS)                                                    \
    CALL(PATCH, SM_METHOD_SENDS | SM_METHOD_SETS)                                                  \
    CALL(DELETE, SM_METHOD_SETS)                                                                   \
    X(OPTIONS, SM_METHOD_READS)

/* Others of which it is known what they do. */
#define SM_METHODS_BEYOND(X)                                                                       \
    X(PROPFIND, SM_METHOD_READS)                                                                   \
    X(REPORT, SM_METHOD_READS)                                                                     \
    X(SEARCH, SM_METHOD_READS)                                                                     \
    X(QUERY, SM_METHOD_READS)

/* All of them in this order; the last has no name. */
typedef struct sm_method_row {
    const char *name;
    unsigned does;
} sm_method_row;
extern const sm_method_row sm_methods[];

/* What a method does, of what is known; 0: nothing is. */
unsigned sm_method_does(const char *name);

#endif
