/*
 * Answers: what is in them, and whether they are answers to the question at all.
 *
 * An answer of another kind than the question has is not an empty one. Taken for one it would say
 * that there is no record, and an effect would run again; so it is an error, and nothing is decided
 * by it (I8, I12).
 */
#include <stdlib.h>

#include "store/redis/redis.h"

size_t sm_rd_elements(const redisReply *r)
{
    return r != NULL && r->type == REDIS_REPLY_ARRAY ? r->elements : 0;
}

const redisReply *sm_rd_element(const redisReply *r, size_t i)
{
    return i < sm_rd_elements(r) ? r->element[i] : NULL;
}

sm_str sm_rd_text(const redisReply *r)
{
    if (r == NULL || (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_STATUS))
        return (sm_str){0};
    return (sm_str){r->str, r->len};
}

int64_t sm_rd_number(const redisReply *r)
{
    if (r != NULL && r->type == REDIS_REPLY_INTEGER)
        return r->integer;
    sm_str text = sm_rd_text(r);
    return text.p == NULL ? 0 : strtoll(text.p, NULL, 10);
}

bool sm_rd_time(const redisReply *r, int64_t *now_ms)
{
    *now_ms = sm_rd_number(sm_rd_element(r, 0)) * 1000 + sm_rd_number(sm_rd_element(r, 1)) / 1000;
    return sm_rd_elements(r) == 2 && *now_ms > 0;
}

/* ---- what kind of answer a question has ------------------------------------------------------*/

#define INTEGER (1u << REDIS_REPLY_INTEGER)
#define TEXT    (1u << REDIS_REPLY_STRING | 1u << REDIS_REPLY_STATUS)
#define NONE    (1u << REDIS_REPLY_NIL)
#define ARRAY   (1u << REDIS_REPLY_ARRAY)

struct sm_rd_shape {
    const char *name;
    unsigned kinds, parts; /* of the answer, and of what is in an array */
    unsigned words;        /* without these every word has its part; 0: any number of parts */
};

static const sm_rd_shape commands[] = {
    {"EXISTS", INTEGER, 0, 0},         {"GET", TEXT | NONE, 0, 0},
    {"HDEL", INTEGER, 0, 0},           {"HGET", TEXT | NONE, 0, 0},
    {"HKEYS", ARRAY, TEXT, 0},         {"HMGET", ARRAY, TEXT | NONE, 2},
    {"LRANGE", ARRAY, TEXT, 0},        {"LREM", INTEGER, 0, 0},
    {"MGET", ARRAY, TEXT | NONE, 1},   {"PTTL", INTEGER, 0, 0},
    {"SETNX", INTEGER, 0, 0},          {"TIME", ARRAY, TEXT, 0},
    {"ZADD", INTEGER, 0, 0},           {"ZCARD", INTEGER, 0, 0},
    {"ZLEXCOUNT", INTEGER, 0, 0},      {"ZMSCORE", ARRAY, TEXT | NONE, 2},
    {"ZRANGE", ARRAY, TEXT, 0},        {"ZRANGEBYLEX", ARRAY, TEXT, 0},
    {"ZRANGEBYSCORE", ARRAY, TEXT, 0}, {"ZREM", INTEGER, 0, 0},
    {"ZREVRANGE", ARRAY, TEXT, 0},     {"ZREVRANGEBYLEX", ARRAY, TEXT, 0},
};

static const sm_rd_shape scripts[SM_RD_SCRIPT_COUNT] = {
    [SM_RD_WRITE] = {"", ARRAY, TEXT | NONE | INTEGER, 0},
    [SM_RD_RECORD] = {"", ARRAY, TEXT | NONE | INTEGER, 0},
    [SM_RD_WATCH] = {"", INTEGER, 0, 0},
    [SM_RD_REAP] = {"", TEXT | INTEGER, 0, 0},
    [SM_RD_NUMBER] = {"", INTEGER, 0, 0},
    [SM_RD_DEQUEUE] = {"", INTEGER, 0, 0},
    [SM_RD_UNNUMBER] = {"", INTEGER, 0, 0},
    [SM_RD_SEAL] = {"", INTEGER, 0, 0},
    [SM_RD_NOTE_DROP] = {"", INTEGER, 0, 0},
    [SM_RD_CHECK] = {"", TEXT | NONE, 0, 0},
    [SM_RD_GROUP] = {"", TEXT | NONE, 0, 0},
};

const sm_rd_shape *sm_rd_shape_of(const char *command)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, command) == 0)
            return &commands[i];
    }
    return NULL;
}

const sm_rd_shape *sm_rd_shape_of_script(sm_rd_script script)
{
    return &scripts[script];
}

bool sm_rd_fits(const sm_rd_ask *ask)
{
    const sm_rd_shape *shape = ask->shape;
    const redisReply *r = ask->reply;
    if (shape == NULL)
        return true;
    if ((shape->kinds >> r->type & 1u) == 0)
        return false;
    size_t n = sm_rd_elements(r);
    for (size_t i = 0; i < n; i++) {
        if ((shape->parts >> r->element[i]->type & 1u) == 0)
            return false;
    }
    return shape->words == 0 || n == ask->argc - shape->words;
}
