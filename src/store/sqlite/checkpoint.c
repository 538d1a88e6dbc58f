/*
 * Moving the write-ahead log back into the file.
 *
 * A thread of its own does most of it while the writer goes on appending. But the log can start
 * over only at a moment when all of it has been moved, and under constant load that moment would
 * never come. So once little is left, the writer does the rest between two batches, while it holds
 * the lock between processes and nobody can append. If the thread cannot keep up at all, the writer
 * waits for it: the log does not grow without bound.
 */
#include "store/sqlite/sqlite.h"

#include <time.h>

#include "base/thread.h"

enum {
    SOFT_FRAMES = 8192,  /* 32 MiB: start moving */
    HARD_FRAMES = 32768, /* 128 MiB: wait */
    REST_FRAMES = 512,   /* few enough for the writer */
    PASSES = 4,
    HARD_WAIT_S = 5
};

/* One pass, as far as it goes without waiting for anybody. *moved: the frames that are in the file
 * now; 0 if another process is at it. */
static int pass(sm_sq_conn *c, int *moved)
{
    int in_log = 0;
    int rc = sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &in_log, moved);
    rc = sm_sq_unwritten(c->db, false, rc);
    if (rc != SQLITE_OK)
        *moved = 0;
    return (rc & 0xFF) == SQLITE_BUSY || (rc & 0xFF) == SQLITE_LOCKED ? SQLITE_OK : rc;
}

/* Passes until little has been appended meanwhile. */
static void move(semel_store *st)
{
    sm_sq_checkpoint *k = &st->checkpoint;
    int moved = 0;
    if (sm_sq_in_place(st, NULL) != SEMEL_OK)
        return;
    for (int i = 0; i < PASSES && atomic_load(&k->frames) - moved > REST_FRAMES; i++) {
        int rc = pass(k->conn, &moved);
        if (rc != SQLITE_OK) {
            sm_sq_fault(st, rc, NULL); /* poisons, if a sync has failed */
            return;
        }
    }
    atomic_store(&k->finish, true);
}

static void *checkpoint_main(void *arg)
{
    semel_store *st = arg;
    sm_sq_checkpoint *k = &st->checkpoint;
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        if (!k->wanted) {
            pthread_cond_wait(&k->work, &k->lock);
            continue;
        }
        pthread_mutex_unlock(&k->lock);
        sm_sq_enter(); /* first: the writer waits inside for one that is busy */
        pthread_mutex_lock(&k->lock);
        k->wanted = false;
        k->busy = true;
        pthread_mutex_unlock(&k->lock);
        if (k->conn != NULL || sm_sq_conn_open(st, &k->conn, NULL) == SEMEL_OK)
            move(st);
        sm_sq_leave();
        pthread_mutex_lock(&k->lock);
        k->busy = false;
        pthread_cond_broadcast(&k->done);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void sm_sq_checkpoint_note(semel_store *st, int frames)
{
    sm_sq_checkpoint *k = &st->checkpoint;
    atomic_store(&k->frames, frames);
    if (frames < SOFT_FRAMES)
        return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += HARD_WAIT_S;
    pthread_mutex_lock(&k->lock);
    if (!k->started)
        k->started = sm_thread_start(&k->thread, checkpoint_main, st, "semel-checkpt");
    if (!k->started) {
        atomic_store(&k->finish, true); /* then the writer does it all */
    } else if (!k->busy && !atomic_load(&k->finish)) {
        k->wanted = true;
        pthread_cond_signal(&k->work);
    }
    int rc = 0;
    while (frames >= HARD_FRAMES && k->busy && rc == 0)
        rc = pthread_cond_timedwait(&k->done, &k->lock, &until);
    pthread_mutex_unlock(&k->lock);
}

void sm_sq_checkpoint_finish(semel_store *st)
{
    if (!atomic_exchange(&st->checkpoint.finish, false))
        return;
    int moved;
    int rc = pass(st->writer.conn, &moved);
    if (rc != SQLITE_OK)
        sm_sq_fault(st, rc, NULL);
}

void sm_sq_checkpoint_stop(semel_store *st)
{
    sm_sq_checkpoint *k = &st->checkpoint;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
    if (k->started)
        pthread_join(k->thread, NULL);
    sm_sq_conn_close(k->conn);
    k->conn = NULL;
}
