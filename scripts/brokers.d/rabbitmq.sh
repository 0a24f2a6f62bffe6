# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# RabbitMQ, one node. scripts/brokers says what is defined here, and what is
# there to use. Beyond it:
#
#   SPILLWAY_RABBITMQ_IMAGE  container image; default rabbitmq:3.13
#   SPILLWAY_RABBITMQ_SBIN   folder of rabbitmq-server and rabbitmqctl; default:
#                            where Debian's package has them

ports=3 # AMQP; natively also the Erlang distribution and its name server
image=${SPILLWAY_RABBITMQ_IMAGE:-rabbitmq:3.13}
sbin=${SPILLWAY_RABBITMQ_SBIN:-/usr/lib/rabbitmq/bin}
enter=() # what to put before a command to run it where the programs are

# Two schedulers, for small machines and for the tests beside it.
erlang='+S 2:2 +SDcpu 2:2'

url() { echo "amqp://guest:guest@127.0.0.1:$port/"; }

# The second variable is a program: it takes rabbitmqctl's arguments.
variables() {
	echo "SPILLWAY_TEST_RABBITMQ=$(url)"
	printf 'SPILLWAY_TEST_RABBITMQCTL=%q\n' "$dir/rabbitmqctl"
}

# probe begins an AMQP handshake: the server's first frame has its version.
# RabbitMQ opens the port last, after it recovered its queues.
probe() {
	local first frame
	exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
	printf 'AMQP\0\0\11\1' >&3
	# The first byte may take a while; what follows comes with it.
	IFS= read -r -d '' -n 1 -t 5 first <&3 || return 1
	frame=$(dd bs=4096 count=1 <&3 | LC_ALL=C tr -c '[:print:]' '\n')
	exec 3>&-
	[[ $frame =~ product.*RabbitMQ ]] || return 1
	sed -n '/^versionS$/,$ { /^[0-9]/ { p; q; } }' <<<"$frame"
} 2>/dev/null

install() {
	[ ! -x "$sbin/rabbitmq-server" ] || return 0
	[ -z "${SPILLWAY_RABBITMQ_SBIN:-}" ] || die "there is no $sbin/rabbitmq-server"
	debian_install rabbitmq-server ||
		die "needs a Docker engine that answers, or Debian's or Ubuntu's package rabbitmq-server" \
			"(any RabbitMQ will do: SPILLWAY_RABBITMQ_SBIN names the folder of rabbitmq-server)"
	[ -x "$sbin/rabbitmq-server" ] || die "was installed, but there is no $sbin/rabbitmq-server"
}

configure() {
	{
		if [ "$mode" = native ]; then
			echo "listeners.tcp.local = 127.0.0.1:$port"
		else
			echo "loopback_users = none"
		fi
		cat <<-'END'
			log.file = false
			log.console = true
			log.console.use_colors = off
			# Handshakes that end early are our probes.
			log.connection.level = error
			# A fixed value, so that flow control begins at the same load everywhere.
			vm_memory_high_watermark.absolute = 1GiB
			disk_free_limit.absolute = 200MB
			# Quorum queues keep their newest entries in memory, by default 512 MiB.
			raft.wal_max_size_bytes = 67108864
		END
	} >"$dir/rabbitmq.conf"
	cat >"$dir/rabbitmqctl" <<-END
		#!/usr/bin/env bash
		exec $(printf %q "$root")/scripts/brokers ctl $broker "\$@"
	END
	chmod +x "$dir/rabbitmqctl"
}

native() {
	mkdir -p "$dir/home"
	echo '[].' >"$dir/enabled_plugins"
	# Erlang's tables grow with the limit, which some systems set to a billion.
	ulimit -n 65536 2>/dev/null || true
	become setsid "$sbin/rabbitmq-server"
}

# become COMMAND ARG... gives the node and rabbitmqctl all the environment they
# have, so that settings of another RabbitMQ, in /etc or in variables, do not
# reach them. The node has a name server of its own: its name cannot clash.
become() {
	local environment=(
		SPILLWAY_BROKER="${SPILLWAY_BROKER:-}"
		PATH="$PATH"
		HOME="$dir/home" # has the Erlang cookie
		LC_ALL=C.UTF-8
		ERL_CRASH_DUMP="$dir/erl_crash.dump"
		ERL_EPMD_PORT=$((port + 2))
		ERL_EPMD_ADDRESS=127.0.0.1
		RABBITMQ_NODENAME=spillway@localhost
		RABBITMQ_DIST_PORT=$((port + 1))
		RABBITMQ_CTL_DIST_PORT_MIN=0 # any: the default allows eleven at a time
		RABBITMQ_CTL_DIST_PORT_MAX=0
		RABBITMQ_CONF_ENV_FILE="$dir/none"
		RABBITMQ_CONFIG_FILE="$dir/rabbitmq.conf"
		RABBITMQ_ADVANCED_CONFIG_FILE="$dir/none"
		RABBITMQ_ENABLED_PLUGINS_FILE="$dir/enabled_plugins"
		RABBITMQ_MNESIA_BASE="$dir/data"
		RABBITMQ_SCHEMA_DIR="$dir/schema"
		RABBITMQ_GENERATED_CONFIG_DIR="$dir/schema"
		RABBITMQ_LOG_BASE="$dir"
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$erlang -kernel inet_dist_use_interface {127,0,0,1}"
		# No shell between us and the node, which so has the pid that we know.
		RUNNING_UNDER_SYSTEMD=true
	)
	exec env -i "${environment[@]}" ${enter[@]+"${enter[@]}"} "$@"
}

# The name server ends only if no node uses it.
clean() {
	[ "$mode" != native ] || [ -z "$port" ] ||
		${enter[@]+"${enter[@]}"} epmd -port $((port + 2)) -kill >/dev/null 2>&1 || true
}

create() {
	docker create --name "$container" --hostname spillway \
		--publish "127.0.0.1:$port:5672" \
		--volume "$container:/var/lib/rabbitmq" \
		--ulimit nofile=65536:65536 \
		--env RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$erlang" \
		"$image"
	# Copied, not mounted: the engine may not see our files.
	docker cp "$dir/rabbitmq.conf" "$container:/etc/rabbitmq/conf.d/90-spillway.conf"
}

ctl() {
	running || die "not running"
	if [ "$mode" = docker ]; then
		exec docker exec -i "$container" rabbitmqctl "$@"
	fi
	become "$sbin/rabbitmqctl" "$@"
}
