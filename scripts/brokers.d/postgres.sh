# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# PostgreSQL, no broker but what the inventory may be kept in. scripts/brokers
# says what is defined here, and what is there to use. Beyond it:
#
#   SPILLWAY_POSTGRES_IMAGE  container image; default postgres:15
#   SPILLWAY_POSTGRES_BIN    folder of postgres and initdb; default: the newest
#                            where Debian's packages have them
#
# Natively it refuses to be root, so root runs it as the user postgres, or else
# nobody.

ports=1
image=${SPILLWAY_POSTGRES_IMAGE:-postgres:15}
bin=${SPILLWAY_POSTGRES_BIN:-}

url() { echo "postgres://spillway:spillway@127.0.0.1:$port/spillway?sslmode=disable"; }

variables() { echo "SPILLWAY_TEST_POSTGRES=$(url)"; }

find_bin() {
	[ -n "$bin" ] || bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
}

# probe asks as a client would. While it recovers, the server answers and serves
# nobody.
probe() {
	local ask=(psql -XAtq -c 'SHOW server_version' "postgres://spillway:spillway@127.0.0.1:$port/spillway?connect_timeout=5")
	if [ "$mode" = docker ]; then
		docker exec "$container" psql -XAtq -c 'SHOW server_version' "postgres://spillway:spillway@127.0.0.1:5432/spillway"
	else
		find_bin
		"$bin/${ask[0]}" "${ask[@]:1}"
	fi
} 2>/dev/null

install() {
	find_bin
	[ ! -x "$bin/postgres" ] || return 0
	[ -z "${SPILLWAY_POSTGRES_BIN:-}" ] || die "there is no $bin/postgres"
	debian_install postgresql ||
		die "needs a Docker engine that answers, or Debian's or Ubuntu's package postgresql" \
			"(any PostgreSQL from version 12 will do: SPILLWAY_POSTGRES_BIN names the folder of postgres)"
	bin=
	find_bin
	[ -x "$bin/postgres" ] || die "was installed, but there is no $bin/postgres"
}

# data prints where the data is: with everything else, unless the user that
# runs the server cannot get there.
data() {
	if "${as[@]}" test -x "$dir"; then
		echo "$dir/data"
	else
		echo "${TMPDIR:-/tmp}/$container"
	fi
}

# become_user sets as to what a command must stand behind to run as a user that
# the server accepts.
become_user() {
	as=(env)
	[ "$(id -u)" = 0 ] || return 0
	user=nobody
	! id postgres >/dev/null 2>&1 || user=postgres
	as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --)
}

configure() {
	[ "$mode" = native ] || return 0
	find_bin
	become_user
	local data
	data=$(data)
	# Its lock is that of a server that was killed, if there is one: scripts/brokers
	# starts no second one, but the process id may be in use again.
	rm -f "$data/postmaster.pid"
	[ ! -f "$dir/made" ] || return 0
	rm -rf "$data"
	mkdir -p "$data"
	printf spillway >"$data.password"
	if [ "${user:-}" ]; then
		chown "$user" "$data" "$data.password"
	fi
	(cd / && "${as[@]}" "$bin/initdb" --pgdata "$data" --username spillway --pwfile "$data.password" \
		--auth scram-sha-256 --encoding UTF8 --locale C --no-instructions) >"$dir/initdb.log" 2>&1 || {
		tail -n 20 "$dir/initdb.log" >&2
		die "initdb failed"
	}
	# The database that clients name is made by the server's single-user mode.
	(cd / && echo 'CREATE DATABASE spillway' | "${as[@]}" "$bin/postgres" --single -D "$data" postgres) >>"$dir/initdb.log" 2>&1 ||
		die "cannot make the database: see $dir/initdb.log"
	touch "$dir/made"
}

native() {
	find_bin
	become_user
	local data
	data=$(data)
	cd /
	echo "$BASHPID" >"$dir/session"
	exec setsid "${as[@]}" env SPILLWAY_BROKER="${SPILLWAY_BROKER:-}" "$bin/postgres" -D "$data" \
		-c listen_addresses=127.0.0.1 -c port="$port" -c unix_socket_directories= \
		-c max_connections=60 -c shared_buffers=64MB
}

# clean waits for what outlives a killed server: the next one would not start
# beside it.
clean() {
	local i session
	session=$(saved session)
	[ "$mode" = native ] && [ -n "$session" ] || return 0
	for ((i = 0; i < 100; i++)); do
		# shellcheck disable=SC2009 # pgrep finds what is dead and not reaped, too
		ps -o stat= -s "$session" 2>/dev/null | grep -qv '^Z' || return 0
		sleep 0.1
	done
}

create() {
	docker create --name "$container" --publish "127.0.0.1:$port:5432" --volume "$container:/var/lib/postgresql/data" \
		--env POSTGRES_USER=spillway --env POSTGRES_PASSWORD=spillway --env POSTGRES_DB=spillway "$image"
}

ctl() {
	running || die "not running"
	if [ "$mode" = docker ]; then
		exec docker exec -i "$container" psql -U spillway "$@"
	fi
	find_bin
	exec "$bin/psql" "$(url)" "$@"
}
