# shellcheck shell=bash
# Real servers for the suites and the benchmarks, each on a free port of this machine, with data of
# its own under $scratch. Nothing that the system itself runs is used or touched.
#
#   postgres_start NAME [SETTING=VALUE...]        a new cluster; role and database `semel`
#   postgres_standby NAME OF [SETTING=VALUE...]   a replica of another one
#   postgres_cut NAME                             such a replica hears nothing more, and lags behind
#   postgres_promote NAME                         it takes writes now
#   pgbouncer_start NAME OF [SETTING=VALUE...]    in transaction mode, in front of a Postgres
#   redis_start NAME ["DIRECTIVE VALUE"...]       which syncs every write
#   redis_replica NAME OF ["DIRECTIVE VALUE"...]  a replica of another one, which has what it has
#   redis_cut NAME                                such a replica hears nothing more, and lags behind
#   redis_take_over NAME OF                       it takes writes now, at the address of the other one
#   redis_cluster_start NAME ["DIRECTIVE VALUE"...]   three masters: NAME1, NAME2 and NAME3
#
# Each returns when the server answers, and leaves ${server_url[NAME]} and ${server_port[NAME]}. If
# it does not come up, the end of its log goes to stderr and the status is 1.
#
#   server_stop NAME       in good order
#   server_kill9 NAME      all of its processes at once, as when the machine dies
#   server_restart NAME    what was stopped or killed, with the same port and data
#   server_pause NAME      SIGSTOP to all of its processes
#   server_resume NAME     and SIGCONT
#   postgres_sql NAME SQL  as superuser; prints what comes back, without ornaments
#   redis_do NAME WORD...  one command
#   secrets_seen           prints the files of the suite, and the processes, that show the password
#   must COMMAND...        in a suite: ends it if this does not work
#
# Sourced by bash, after $scratch is set. Servers run as an unprivileged user if we are root, and
# die with the shell that started them, whatever ends it: so start them from the main shell. With
# tests/lib.sh they are gone before $scratch is; others call servers_end for that.

declare -A server_url server_port server_pid server_kind
servers=$scratch/servers
server_password=pw$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')

# The environment of whoever tests must not lead anywhere else.
unset "${!PG@}" REDISCLI_AUTH

# shellcheck disable=SC2012 # the newest version's directory; their names are numbers
postgres_bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)

server_as=(env -C "$servers" HOME="$servers" setpriv --pdeathsig KILL)
mkdir "$servers" || exit 70
if [ "$(id -u)" = 0 ]; then
    server_user=nobody
    ! id postgres >/dev/null 2>&1 || server_user=postgres
    server_as+=(--reuid "$server_user" --regid "$(id -g "$server_user")" --clear-groups)
    chmod 711 "$scratch" && chown "$server_user:" "$servers" || exit 70
fi
chmod 700 "$servers" && printf '%s\n' "$server_password" >"$servers/secret" || exit 70

servers_end() {
    local name
    for name in "${!server_pid[@]}"; do server_kill9 "$name"; done
}
! declare -F at_exit >/dev/null || at_exit servers_end

must() {
    "$@" && return
    not_ok "$*"
    [ ${#parts[@]} -eq 0 ] || kill "${!parts[@]}" # they may wait for us
    finish
}

# ---- any server

# Sets free_port. Below those that the system gives to clients, so that none of them takes it. Other
# tests run at the same time, and a server may be down for a moment: so a link named by the port says
# which process has it. ./test removes the links of processes that have ended.
server_find_port() {
    local try taken=/tmp/semel-ports-$UID
    mkdir -p "$taken" || return
    for try in {1..100}; do
        free_port=$((20000 + RANDOM % 12000))
        ln -s "/proc/$$" "$taken/$free_port" 2>/dev/null || continue
        (exec 3<>"/dev/tcp/127.0.0.1/$free_port") 2>/dev/null || return 0
    done
    echo "no port is free after $try tries" >&2
    return 1
}

# server_spawn NAME COMMAND...: in the background, as the unprivileged user.
server_spawn() {
    local name=$1
    shift
    "${server_as[@]}" "$@" </dev/null >>"$servers/$name.log" 2>&1 &
    server_pid[$name]=$!
}

# server_await NAME: until it answers.
server_await() {
    local name=$1 tries
    for ((tries = 0; tries < 600; tries++)); do
        kill -0 "${server_pid[$name]}" 2>/dev/null || break
        ! "${server_kind[$name]}_answers" "$name" >/dev/null 2>&1 || return 0
        sleep 0.05
    done
    echo "the server $name does not answer" >&2
    tail -n 20 "$servers/$name.log" >&2
    server_kill9 "$name"
    return 1
}

# server_up NAME KIND: on a port that was free a moment ago; on another one if it was taken since.
server_up() {
    local name=$1
    server_kind[$name]=$2
    for _ in 1 2 3; do
        server_find_port || return 1
        server_port[$name]=$free_port
        if "$2_run" "$name" 2>"$servers/$name.trouble"; then return 0; fi
    done
    cat "$servers/$name.trouble" >&2
    return 1
}

# Its processes: the first one, if it is still ours, and those that this one has started.
server_processes() {
    local pid=${server_pid[$1]:-}
    [ -n "$pid" ] && pgrep -P $$ | grep -x "$pid" && pgrep -P "$pid"
}

# Until they are gone; a dead one that nobody has waited for is gone too.
server_gone() {
    local pid state
    for pid; do
        for _ in {1..200}; do
            state=
            read -r _ _ state _ 2>/dev/null <"/proc/$pid/stat"
            case $state in '' | Z | X) break ;; esac
            sleep 0.05
        done
    done
}

server_stop() {
    local name=$1 pids signal=TERM
    [ "${server_kind[$name]}" != postgres ] || signal=INT # without waiting for its clients
    mapfile -t pids < <(server_processes "$name")
    kill -s "$signal" "${server_pid[$name]}"
    wait "${server_pid[$name]}" 2>/dev/null
    server_gone "${pids[@]}"
    unset "server_pid[$name]"
}

server_kill9() {
    local name=$1 pids
    mapfile -t pids < <(server_processes "$name")
    if [ ${#pids[@]} -gt 0 ]; then
        kill -KILL "${pids[@]}" 2>/dev/null
        wait "${server_pid[$name]}" 2>/dev/null
        server_gone "${pids[@]}"
    fi
    unset "server_pid[$name]"
}

server_restart() { "${server_kind[$1]}_run" "$1"; }

# The first process first: what it starts in between would go on.
server_signal() {
    local pids
    mapfile -t pids < <(server_processes "$1")
    kill -s "$2" "${pids[0]}"
    mapfile -t pids < <(server_processes "$1")
    kill -s "$2" "${pids[@]}"
}
server_pause() { server_signal "$1" STOP; }
server_resume() { server_signal "$1" CONT; }

# Files of ours, as the server's own.
server_owns() { [ "$(id -u)" != 0 ] || chown "$server_user:" "$@"; }

# The servers' own files may hold it. What a suite printed was in its files before. We look for it
# without showing it ourselves.
secrets_seen() {
    grep -rlaF --exclude-dir=servers -f "$servers/secret" "$scratch"
    grep -laF -f "$servers/secret" /proc/[0-9]*/cmdline 2>/dev/null
}

# ---- Postgres

postgres_answers() { "$postgres_bin/pg_isready" -q -h 127.0.0.1 -p "${server_port[$1]}"; }

postgres_run() {
    local name=$1 line settings=()
    while IFS= read -r line; do settings+=(-c "$line"); done <"$servers/$name/settings"
    server_spawn "$name" "$postgres_bin/postgres" -D "$servers/$name/data" \
        -p "${server_port[$name]}" -k "$servers/$name" "${settings[@]}"
    server_await "$name"
}

# postgres_settings NAME SETTING=VALUE...: of a cluster that is to start. Syncs stay on. What its processes
# share is kept with its data: a server that is killed leaves nothing else behind.
postgres_settings() {
    local name=$1
    shift
    printf '%s\n' listen_addresses=127.0.0.1 max_connections=300 shared_buffers=32MB jit=off \
        dynamic_shared_memory_type=mmap "$@" >"$servers/$name/settings"
}

postgres_sql() {
    "$postgres_bin/psql" -XqAt -v ON_ERROR_STOP=1 -h "$servers/$1" -p "${server_port[$1]}" \
        -U postgres -d semel <<<"$2"
}

postgres_start() {
    local name=$1 dir=$servers/$1
    shift
    mkdir "$dir" && postgres_settings "$name" "$@" || return
    printf '%s\n' "$server_password" >"$dir/password"
    server_owns "$dir" "$dir/password"
    if ! "${server_as[@]}" "$postgres_bin/initdb" -D "$dir/data" -U postgres -E UTF8 \
        --locale=C.UTF-8 --auth-local=trust --auth-host=scram-sha-256 \
        --pwfile="$dir/password" --no-sync >"$servers/$name.log" 2>&1 </dev/null; then
        tail -n 20 "$servers/$name.log" >&2
        return 1
    fi
    echo 'host all all 10.0.0.0/8 scram-sha-256' >>"$dir/data/pg_hba.conf"
    server_up "$name" postgres || return
    server_url[$name]=postgres://semel:$server_password@127.0.0.1:${server_port[$name]}/semel
    "$postgres_bin/psql" -Xq -v ON_ERROR_STOP=1 -h "$dir" -p "${server_port[$name]}" -U postgres <<SQL
CREATE ROLE semel LOGIN PASSWORD '$server_password';
CREATE DATABASE semel OWNER semel;
SQL
}

postgres_standby() {
    local name=$1 of=$2 dir=$servers/$1
    shift 2
    mkdir "$dir" && postgres_settings "$name" "$@" && server_owns "$dir" || return
    "${server_as[@]}" "$postgres_bin/pg_basebackup" -R -c fast --no-sync -D "$dir/data" \
        -h "$servers/$of" -p "${server_port[$of]}" -U postgres >"$servers/$name.log" 2>&1 &&
        server_up "$name" postgres || return
    server_url[$name]=postgres://semel:$server_password@127.0.0.1:${server_port[$name]}/semel
}

postgres_cut() {
    postgres_sql "$1" "ALTER SYSTEM SET primary_conninfo = ''" &&
        postgres_sql "$1" "SELECT pg_reload_conf()" >/dev/null || return
    while [ "$(postgres_sql "$1" "SELECT count(*) FROM pg_stat_wal_receiver")" = 1 ]; do sleep 0.05; done
}

postgres_promote() { [ "$(postgres_sql "$1" "SELECT pg_promote()")" = t ]; }

# ---- PgBouncer

pgbouncer_answers() {
    PGPASSWORD=$server_password "$postgres_bin/psql" -Xqc 'SELECT 1' -h 127.0.0.1 \
        -p "${server_port[$1]}" -U semel -d semel
}

pgbouncer_run() {
    local name=$1
    sed "s/^listen_port.*/listen_port = ${server_port[$name]}/" "$servers/$name/settings" \
        >"$servers/$name/pgbouncer.ini"
    server_owns "$servers/$name/pgbouncer.ini"
    server_spawn "$name" /usr/sbin/pgbouncer "$servers/$name/pgbouncer.ini"
    server_await "$name"
}

pgbouncer_start() {
    local name=$1 of=$2 dir=$servers/$1
    shift 2
    mkdir "$dir" || return
    printf '"semel" "%s"\n' "$server_password" >"$dir/users"
    {
        printf '[databases]\nsemel = host=127.0.0.1 port=%s\n[pgbouncer]\n' "${server_port[$of]}"
        printf '%s\n' "listen_port = 0" "listen_addr = 127.0.0.1" "unix_socket_dir =" \
            "auth_type = scram-sha-256" "auth_file = $dir/users" "pool_mode = transaction" \
            "max_client_conn = 500" "$@"
    } >"$dir/settings"
    server_owns "$dir" "$dir/users"
    server_up "$name" pgbouncer || return
    server_url[$name]=postgres://semel:$server_password@127.0.0.1:${server_port[$name]}/semel
}

# ---- Redis

declare -A redis_password # "" with the directive 'requirepass ""'

redis_do() {
    local name=$1
    shift
    [ -z "${redis_password[$name]}" ] || local -x REDISCLI_AUTH=${redis_password[$name]}
    redis-cli -p "${server_port[$name]}" "$@"
}

redis_answers() { [ "$(redis_do "$1" PING)" = PONG ]; }

redis_run() {
    local name=$1
    sed "s/^port .*/port ${server_port[$name]}/" "$servers/$name/settings" >"$servers/$name/redis.conf"
    server_owns "$servers/$name/redis.conf"
    server_spawn "$name" redis-server "$servers/$name/redis.conf"
    server_await "$name"
}

redis_start() {
    local name=$1 dir=$servers/$1
    shift
    mkdir "$dir" || return
    printf '%s\n' "port 0" "bind 127.0.0.1" "dir $dir" 'save ""' "appendonly yes" \
        "appendfsync always" "requirepass $server_password" "$@" >"$dir/settings"
    server_owns "$dir"
    redis_password[$name]=$server_password
    ! grep -qx 'requirepass ""' "$dir/settings" || redis_password[$name]=
    server_up "$name" redis || return
    server_url[$name]=redis://:${redis_password[$name]}@127.0.0.1:${server_port[$name]}
    server_url[$name]=${server_url[$name]/:@/} # nobody's password
}

redis_replica() {
    local name=$1 of=$2
    shift 2
    redis_start "$name" "replicaof 127.0.0.1 ${server_port[$of]}" "masterauth $server_password" "$@" || return
    until redis_do "$name" INFO replication | grep -q master_link_status:up; do sleep 0.05; done
}

redis_cut() { redis_do "$1" REPLICAOF 127.0.0.1 1 >/dev/null; }

redis_take_over() {
    server_stop "$1"
    sed -i '/^replicaof /d' "$servers/$1/settings"
    server_port[$1]=${server_port[$2]}
    server_restart "$1"
}

# The URL names one of the three: a client finds the others.
redis_cluster_start() {
    local name=$1 n nodes=()
    shift
    for n in 1 2 3; do
        server_find_port || return
        redis_start "$name$n" "cluster-enabled yes" "cluster-port $free_port" \
            "cluster-node-timeout 2000" "$@" || return
        nodes+=("127.0.0.1:${server_port[$name$n]}")
    done
    if ! redis_do "${name}1" --cluster create "${nodes[@]}" --cluster-yes \
        >"$servers/$name.log" 2>&1 </dev/null; then
        tail -n 20 "$servers/$name.log" >&2
        return 1
    fi
    for n in 1 2 3; do
        until redis_do "$name$n" CLUSTER INFO | grep -q cluster_state:ok; do sleep 0.05; done
    done
    server_url[$name]=${server_url[${name}1]}
}
