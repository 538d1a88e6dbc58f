/*
 * The signals of a service, and what it tells systemd.
 *
 *     SIGHUP            contracts and tokens are read again, all or nothing
 *     SIGTERM, SIGINT   no new work; what is under way has the configured time to end
 *     the same again    ends at once; what is under way is left as claims
 *
 * Signals are taken one at a time by the main thread, never in a handler.
 */
#include "gateway/service.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/duration.h"
#include "gateway/inside/gateway.h"

static void steering(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void gw_service_hold(void)
{
    static const int signals[] = {SIGHUP, SIGTERM, SIGINT};
    sigset_t set;
    steering(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    /* One that our parent ignores would be thrown away and not held. */
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_DFL);
}

/* Tells whoever started us, if that wants to know: one datagram, as sd_notify(3) describes. */
static void notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path == NULL ? 0 : strlen(path);
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@')
        to.sun_path[0] = '\0'; /* a name that is in no file system */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, size);
    close(fd);
}

sm_err gw_service_start(const gw_config *config, sm_str contract_text, gateway **out,
                        sm_fault *fault)
{
    sm_err e = gw_config_safe(config, fault);
    if (e == SM_OK)
        e = gw_start(config, contract_text, out, fault);
    const gw_upstream_api *api;
    for (uint32_t i = 0; e == SM_OK && gw_config_address(config, i, &api) != NULL; i++) {
        const gw_log_field at[] = {{"address", gw_address(*out, i), false},
                                   {"proxy", api != NULL ? api->name : (sm_str){0}, false}};
        gw_say_fields(&(*out)->log, GW_INFO, "listening", at, api != NULL ? 2 : 1);
    }
    return e;
}

static void reload(gateway *g)
{
    char text[80];
    struct timespec now;
    sm_fault fault = {0};
    const char *stays = NULL;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify(text);
    if (gw_reload(g, &stays, &fault) == SM_OK) {
        snprintf(text, sizeof text, "%zu", gw_tokens_count(g->tokens));
        gw_log_field fields[] = {{"contract", g->config->contract, false},
                                 {"tokens", sm_str_from(text), true}};
        gw_say_fields(&g->log, GW_INFO, "reloaded", fields, 2);
    } else {
        gw_say(&g->log, GW_ERROR, "not reloaded: what was in force stays", "stays", stays, "reason",
               fault.text, NULL);
    }
    notify("READY=1");
}

/* From here on the second signal does what signals do. */
static void let_go(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void gw_service_run(gateway *g)
{
    sigset_t set;
    siginfo_t info;
    char drain[SM_DURATION_TEXT];
    steering(&set);
    notify("READY=1");
    for (;;) {
        int got = sigwaitinfo(&set, &info);
        if (got == SIGHUP)
            reload(g);
        else if (got > 0)
            break;
    }
    notify("STOPPING=1");
    sm_duration_text(g->config->drain_ms, drain);
    gw_say(&g->log, GW_INFO, "draining: no new work; a second signal ends it at once", "signal",
           info.si_signo == SIGINT ? "SIGINT" : "SIGTERM", "at_most", drain, NULL);
    const gw_log log = g->log;
    let_go();
    gw_stop(g);
    gw_say(&log, GW_INFO, "stopped", NULL);
}
