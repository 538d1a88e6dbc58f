/*
 * An HTTP server that does nothing: what libmicrohttpd reaches with the options that the gateway
 * uses, and as an upstream one that costs next to nothing.
 *
 *     empty-http THREADS
 *
 * It listens on a free port of 127.0.0.1, prints the port, reads whatever comes and answers every
 * request with the same few bytes of JSON, until its standard input ends. THREADS 0: half as many
 * as processors, at most 4, as the gateway has it.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX     4
#define CONNECTION_POOL 8192u
#define CONNECTIONS     12000u

static const char answer[] = "{\"charge\":\"ch_1\",\"status\":\"paid\"}";

/* Called once for the head, once or more for the body, once at its end. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *piece,
                                  size_t *size, void **own)
{
    (void)url, (void)method, (void)version, (void)piece;
    static char begun;
    if (*own == NULL) {
        *own = &begun;
        return MHD_YES;
    }
    if (*size > 0) {
        *size = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, context);
}

static struct MHD_Daemon *listen_anywhere(unsigned threads, struct MHD_Response *response)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    if (threads < 2)
        pool[0].option = MHD_OPTION_END;
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                            on_request, response, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
                            MHD_OPTION_ARRAY, pool, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)CONNECTION_POOL, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
                            MHD_OPTION_CONNECTION_TIMEOUT, 75u, MHD_OPTION_END);
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    if (threads <= 0)
        threads = sysconf(_SC_NPROCESSORS_ONLN) / 2; /* as the gateway does */
    threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    int status = 1;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sizeof answer - 1, (void *)(uintptr_t)answer, MHD_RESPMEM_PERSISTENT);
    if (response == NULL ||
        MHD_add_response_header(response, "Content-Type", "application/json") != MHD_YES)
        return status;
    struct MHD_Daemon *daemon = listen_anywhere((unsigned)threads, response);
    const union MHD_DaemonInfo *info =
        daemon == NULL ? NULL : MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (info == NULL) {
        fprintf(stderr, "empty-http: cannot listen\n");
        goto cleanup;
    }
    printf("%u\n", info->port);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    status = 0;
cleanup:
    if (daemon != NULL)
        MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return status;
}
