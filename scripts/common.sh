# shellcheck shell=bash
# What run, test and bench share: installing what is missing, and building without noise.
#
# Sourced by bash, never run. It sets `root` (this tree) and `me` (the script's name), and leaves
# the caller's directory, arguments and standard input alone. Each function returns a status; the
# caller decides what to exit with.

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
me=${0##*/}

# What a build of Semel needs, by the names Debian gives it.
core_packages="gcc libc6-dev meson ninja-build pkg-config libssl-dev libyaml-dev libsqlite3-dev"
core_packages="$core_packages libpq-dev libhiredis-dev libmicrohttpd-dev libgnutls28-dev"
core_packages="$core_packages libcurl4-openssl-dev zlib1g-dev"

# server_packages WORD: what starting a server for tests or benchmarks needs.
server_packages() {
    case $1 in
    postgres) echo postgresql procps ;;
    redis) echo redis-server redis-tools procps ;;
    wrk) echo wrk ;;
    esac
}

say() { printf '%s: %s\n' "$me" "$*" >&2; }

# package_here PACKAGE: is what we want of this package on the machine? The thing is asked for, not
# the package, so that a compiler or a Meson that came some other way is good enough.
package_here() {
    case $1 in
    gcc) command -v cc ;;
    libc6-dev) [ -e /usr/include/stdio.h ] || echo '#include <stdio.h>' | cc -E - ;;
    ninja-build) command -v ninja ;;
    libssl-dev) pkg-config --exists 'libcrypto >= 3.0' 'libssl >= 3.0' ;;
    libyaml-dev) pkg-config --exists yaml-0.1 ;;
    libsqlite3-dev) pkg-config --exists 'sqlite3 >= 3.40' ;;
    libpq-dev) pkg-config --exists 'libpq >= 14' ;;
    libhiredis-dev) pkg-config --exists hiredis ;;
    libmicrohttpd-dev) pkg-config --exists 'libmicrohttpd >= 0.9.71' ;;
    libgnutls28-dev) pkg-config --exists gnutls ;;
    libcurl4-openssl-dev) pkg-config --exists 'libcurl >= 7.87' ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    libclang-rt-14-dev) compgen -G '/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.asan-*.a' ;;
    llvm-14) command -v llvm-symbolizer-14 ;;
    nodejs) command -v node ;;
    python3-venv) python3 -c 'import ensurepip, venv' ;;
    locales) [ -e /usr/share/i18n/locales/de_DE ] ;;
    postgresql) compgen -G '/usr/lib/postgresql/*/bin/initdb' ;;
    redis-tools) command -v redis-cli ;;
    pgbouncer) [ -x /usr/sbin/pgbouncer ] ;;
    iproute2) [ -x /sbin/ip ] ;;
    golang-go) command -v go ;;
    default-jdk-headless) command -v javac ;;
    procps) command -v pgrep ;;
    *) command -v "$1" ;; # the others are named for their command
    esac >/dev/null 2>&1
}

# packages_missing PACKAGE...: prints those we do not have, on one line.
packages_missing() {
    local package lacking=()
    for package; do package_here "$package" || lacking+=("$package"); done
    echo "${lacking[*]}"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# apt_get ARG...: apt-get that asks nothing, waits for another one to finish, and writes to the log.
apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" </dev/null >>"$root/build/install.log" 2>&1
}

# Debian starts a server when its package is installed. We want the program and not the service: a
# machine that has no policy of its own gets this one, and services_may_start takes it away again.
services_policy=/usr/sbin/policy-rc.d
services_stay_down() {
    [ ! -e "$services_policy" ] || return 0
    printf '%s\n' '#!/bin/sh' '# semel: installing for its tests starts no service' 'exit 101' |
        as_root sh -c 'cat >"$1" && chmod 755 "$1"' - "$services_policy"
}
services_may_start() {
    ! grep -qs '^# semel: ' "$services_policy" || as_root rm -f "$services_policy"
}

# apt_install PACKAGE...: from the lists on the machine if there are any; with new lists if not, or
# if the old ones no longer lead anywhere.
apt_install() {
    if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        : >"$root/build/install.log"
        apt_get install --no-install-recommends "$@" && return
    fi
    : >"$root/build/install.log"
    apt_get update && apt_get install --no-install-recommends "$@"
}

# packages_install PACKAGE...: installs those that are missing and says which. 69: it could not.
packages_install() {
    local lacking
    lacking=$(packages_missing "$@")
    [ -n "$lacking" ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "these are needed (Debian's names), and there is no apt-get to install them: $lacking"
        return 69
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        say "these packages are needed: $lacking"
        say "installing them takes root or sudo. As root: apt-get install $lacking"
        return 69
    fi
    mkdir -p "$root/build" || return 69
    (
        flock 9
        # Whoever held the lock before us may have installed the same.
        lacking=$(packages_missing "$@")
        [ -n "$lacking" ] || exit 0
        say "installing Debian packages: $lacking"
        trap services_may_start EXIT
        services_stay_down
        # shellcheck disable=SC2086 # a list of words
        if ! apt_install $lacking; then
            cat "$root/build/install.log" >&2
            say "could not install: $lacking"
            exit 69
        fi
        lacking=$(packages_missing "$@")
        [ -z "$lacking" ] || { say "installed, and still not found: $lacking" && exit 69; }
    ) 9>"$root/build/.install.lock"
}

# configure DIR OPTION...: meson setup, once. Again when the tree has moved or the options are
# others, for Meson keeps absolute paths. A directory set up by hand (no .options) is left as it is.
configure() {
    local dir=$1 options
    shift
    options="$root ${CC:-} $*"
    if [ -e "$dir/build.ninja" ]; then
        [ -e "$dir/.options" ] || return 0
        [ "$(cat "$dir/.options")" != "$options" ] || return 0
        # Not meson's --wipe: it would take the lock, and the builds that live below this one.
        rm -rf "$dir/build.ninja" "$dir/meson-private"
    fi
    meson setup "$dir" "$root" -Dlibrary=false "$@" && printf '%s\n' "$options" >"$dir/.options"
}

# build DIR OPTION...: builds into DIR what changed. Silent, unless it fails: then the log goes to
# stderr and it returns 70. A lock keeps two callers apart; it ends with the subshell, so that the
# program that is run afterwards does not hold it.
build() {
    local dir=$1
    mkdir -p "$dir" && (
        flock 9
        if ! { configure "$@" && ninja -C "$dir" && ninja -C "$dir" -t cleandead; } \
            </dev/null >"$dir/build.log" 2>&1; then
            cat "$dir/build.log" >&2
            say "the build failed (${dir#"$root"/}/build.log)"
            exit 70
        fi
    ) 9>"$dir/.lock" || return 70
}
