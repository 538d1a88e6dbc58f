/*
 * The files and programs that a configuration names, looked at before anything is started with
 * them.
 *
 * Whoever reads them later would say that something does not work; here it is still known which
 * field named which file. Nothing is kept: a file may be another one by the time it is used, and is
 * then found out by whoever uses it. The tokens have a reader of their own, and what is in a
 * contract is told by the contract's.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "gateway/config.h"

#define PEM_BYTES_MAX ((size_t)1 << 20)

typedef struct inspection {
    const gw_config *config;
    gw_tell_fn *tell;
    void *context;
    unsigned wrong; /* bits of gw_named */
} inspection;

static void complain(inspection *in, sm_err e, gw_named at, sm_str path, const char *what)
{
    sm_fault fault = {0};
    gw_config_fault(&fault, e, &in->config->places[at], "%.300s %s", path.p, what);
    in->wrong |= 1u << at;
    in->tell(in->context, &fault);
}

/* Opens a file that must be readable; -1, and told, if it is not. */
static int open_file(inspection *in, gw_named at, sm_str path)
{
    char why[200];
    struct stat st;
    int fd = open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = errno;
    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        close(fd);
        complain(in, SEMEL_E_INVALID, at, path, "is not a file");
        return -1;
    }
    if (fd < 0) {
        snprintf(why, sizeof why, "cannot be read: %s", strerror(error));
        complain(in, error == ENOENT ? SEMEL_E_NOT_FOUND : SEMEL_E_IO, at, path, why);
    }
    return fd;
}

static void check_readable(inspection *in, gw_named at, sm_str path)
{
    int fd = path.p == NULL ? -1 : open_file(in, at, path);
    if (fd >= 0)
        close(fd);
}

/* ---- TLS -------------------------------------------------------------------------------------*/

/* A file's bytes for the readers of PEM. NULL, with a complaint, if it cannot be read. */
static BIO *open_pem(inspection *in, gw_named at, sm_str path)
{
    char bytes[4096];
    size_t all = 0;
    int fd = open_file(in, at, path);
    if (fd < 0)
        return NULL;
    BIO *b = BIO_new(BIO_s_secmem());
    ssize_t n = 0;
    while (b != NULL && all <= PEM_BYTES_MAX && (n = read(fd, bytes, sizeof bytes)) > 0) {
        all += (size_t)n;
        if (BIO_write(b, bytes, (int)n) != n)
            break;
    }
    explicit_bzero(bytes, sizeof bytes); /* it may be a key */
    close(fd);
    if (b != NULL && n == 0)
        return b;
    complain(in, SEMEL_E_INVALID, at, path,
             all > PEM_BYTES_MAX ? "is too large for a PEM file" : "cannot be read");
    BIO_free(b);
    return NULL;
}

/* The first certificate of a file, which is the server's own where there is a chain. */
static X509 *read_certificate(inspection *in, gw_named at, sm_str path)
{
    BIO *b = open_pem(in, at, path);
    if (b == NULL)
        return NULL;
    X509 *certificate = PEM_read_bio_X509(b, NULL, NULL, NULL);
    if (certificate == NULL)
        complain(in, SEMEL_E_INVALID, at, path,
                 "has no certificate in it: expected PEM, which begins with -----BEGIN "
                 "CERTIFICATE-----");
    BIO_free(b);
    return certificate;
}

/* Called for a key that needs a passphrase: nobody is asked for one. */
static int no_passphrase(char *out, int room, int writing, void *context)
{
    (void)out;
    (void)room;
    (void)writing;
    *(bool *)context = true;
    return -1;
}

static EVP_PKEY *read_key(inspection *in, gw_named at, sm_str path)
{
    bool locked = false;
    BIO *b = open_pem(in, at, path);
    if (b == NULL)
        return NULL;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, &locked);
    if (key == NULL)
        complain(in, SEMEL_E_INVALID, at, path,
                 locked ? "is locked with a passphrase, and nobody is there to type it; give a key "
                          "without one, readable for the service only"
                        : "has no private key in it: expected PEM, which begins with -----BEGIN "
                          "PRIVATE KEY-----");
    BIO_free(b);
    return key;
}

static void check_tls(inspection *in, const gw_tls *tls)
{
    X509 *certificate = read_certificate(in, GW_NAMED_CERTIFICATE, tls->certificate);
    EVP_PKEY *key = read_key(in, GW_NAMED_KEY, tls->key);
    if (certificate != NULL && key != NULL && X509_check_private_key(certificate, key) != 1) {
        char why[400];
        snprintf(why, sizeof why, "is not the key of the certificate in %.300s",
                 tls->certificate.p);
        complain(in, SEMEL_E_INVALID, GW_NAMED_KEY, tls->key, why);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
}

unsigned gw_config_files(const gw_config *c, gw_tell_fn *tell, void *context)
{
    inspection in = {.config = c, .tell = tell, .context = context};
    check_readable(&in, GW_NAMED_CONTRACT, c->contract);
    check_readable(&in, GW_NAMED_SEAL_KEY, c->seal_key);
    if (c->tls.on)
        check_tls(&in, &c->tls);
    if (c->ca_file.p != NULL)
        X509_free(read_certificate(&in, GW_NAMED_CA_FILE, c->ca_file));
    ERR_clear_error(); /* whoever looks there next is not to find ours */
    return in.wrong;
}

/* ---- the commands of MCP servers -------------------------------------------------------------*/

/* Whether a program can be executed: 0, or what is wrong. A name that is not absolute is seen from
 * `at`. */
static int executable(int at, const char *name)
{
    struct stat st;
    if (fstatat(at, name, &st, 0) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return EACCES;
    return faccessat(at, name, X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/* The same of a word without a slash, which is looked for in PATH as execvp(3) does: one that may
 * not be executed is passed over, and told only if there is no other. */
static int find_in_path(int at, sm_str word)
{
    char standard[256], name[SM_PATH_MAX];
    const char *path = getenv("PATH");
    int wrong = ENOENT;
    if (path == NULL && confstr(_CS_PATH, standard, sizeof standard) <= sizeof standard)
        path = standard;
    for (const char *part = path; part != NULL;) {
        size_t n = strcspn(part, ":");
        int length =
            snprintf(name, sizeof name, "%.*s%s%s", (int)n, part, n > 0 ? "/" : "", word.p);
        int error = length < (int)sizeof name ? executable(at, name) : ENAMETOOLONG;
        if (error == 0)
            return 0;
        if (error == EACCES)
            wrong = EACCES;
        part = part[n] == ':' ? part + n + 1 : NULL;
    }
    return wrong;
}

/* The command is looked for from the directory that it starts in. False, and told, if there is
 * something that it cannot be started for. */
static bool check_command(const gw_mcp_server *s, gw_tell_fn *tell, void *context)
{
    sm_fault fault = {0};
    sm_str word = s->command.v[0];
    bool path = memchr(word.p, '/', word.n) == NULL;
    int at = AT_FDCWD, error = 0;
    if (s->directory.p != NULL) {
        at = open(s->directory.p, O_PATH | O_DIRECTORY | O_CLOEXEC);
        error = at < 0 ? errno : faccessat(at, ".", X_OK, AT_EACCESS) == 0 ? 0 : errno;
    }
    if (error != 0) {
        gw_config_fault(&fault, SEMEL_E_NOT_FOUND, &s->place,
                        "%.*s cannot be started: its directory %.300s cannot be entered: %s",
                        SM_FMT(s->name), s->directory.p, strerror(error));
    } else {
        error = path ? find_in_path(at, word) : executable(at, word.p);
        gw_config_fault(&fault, SEMEL_E_NOT_FOUND, &s->place, "%.*s cannot be started: %.300s %s",
                        SM_FMT(s->name), word.p,
                        error == EACCES   ? "may not be executed"
                        : error != ENOENT ? strerror(error)
                        : path ? "is in no directory of PATH; install it, or write where it is"
                               : "is not there");
    }
    if (at >= 0)
        close(at);
    if (error != 0)
        tell(context, &fault);
    return error == 0;
}

unsigned gw_config_commands(const gw_config *c, gw_tell_fn *tell, void *context)
{
    unsigned wrong = 0;
    for (uint32_t i = 0; i < c->mcp.n; i++) {
        if (c->mcp.v[i].command.n > 0)
            wrong += !check_command(&c->mcp.v[i], tell, context);
    }
    return wrong;
}
