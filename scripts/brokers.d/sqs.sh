# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# ElasticMQ, a server with the API of Amazon SQS, in its strict mode and with its
# messages on disk. scripts/brokers says what is defined here, and what is there
# to use. How it differs from AWS is in docs/sqs-deviations.md.
#
# Natively it needs Java 11 or newer. Maven fetches ElasticMQ once, 37 MB, into
# spillway/ of the user's cache folder, where all clones find it.
#
#   SPILLWAY_SQS_IMAGE  container image; default softwaremill/elasticmq:1.6.16
#   SPILLWAY_SQS_LIBS   folder with the jars of ElasticMQ and of what it needs,
#                       to be used natively instead of Maven's
#   JAVA_HOME           folder of the Java to use; default: java in PATH

ports=1
elasticmq=1.6.16
image=${SPILLWAY_SQS_IMAGE:-softwaremill/elasticmq:$elasticmq}
cache=${XDG_CACHE_HOME:-${HOME:-$root}/.cache}/spillway/elasticmq-$elasticmq
libs=${SPILLWAY_SQS_LIBS:-$cache}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

# The simpler compiler and collector leave the processors to the tests.
jvm='-Xms64m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1'

url() { echo "sqs://127.0.0.1:$port?region=elasticmq"; }

variables() { echo "SPILLWAY_TEST_SQS=$(url)"; }

# probe asks for the server's health. After a start with data it serves before
# its queues are back, which takes it some seconds more.
probe() {
	local status
	exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
	printf 'GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
	IFS= read -r -t 5 status <&3 || return 1
	exec 3>&-
	[[ $status == 'HTTP/1.1 200'* ]] || return 1
	version
} 2>/dev/null

# version says what serves: there is no request that asks for it.
version() {
	local jar
	if [ "$mode" = docker ]; then
		echo "${image##*:}"
		return
	fi
	for jar in "$libs"/elasticmq-server_*.jar; do
		jar=${jar%.jar}
		echo "${jar##*-}"
		return
	done
}

install() {
	command -v "$java" >/dev/null || debian_install default-jre-headless ||
		die "needs a Docker engine that answers, or Java 11 (Debian's package default-jre-headless has it)"
	! compgen -G "$libs/elasticmq-server_*.jar" >/dev/null || return 0
	[ -z "${SPILLWAY_SQS_LIBS:-}" ] || die "there is no ElasticMQ in $SPILLWAY_SQS_LIBS"
	command -v mvn >/dev/null || debian_install maven ||
		die "needs a Docker engine that answers, or Maven, which fetches ElasticMQ" \
			"(SPILLWAY_SQS_LIBS names a folder that has its jars)"
	fetch
}

# fetch has Maven put ElasticMQ and what it needs into $cache. All or nothing is
# there, also if two clones do this at the same time.
fetch() {
	local new
	say "$broker: fetching ElasticMQ $elasticmq by Maven, once, into $cache"
	mkdir -p "${cache%/*}"
	new=$(mktemp -d "$cache.XXXXXX")
	cat >"$new/pom.xml" <<-END
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>spillway</groupId>
		  <artifactId>elasticmq</artifactId>
		  <version>1</version>
		  <packaging>pom</packaging>
		  <dependencies>
		    <dependency>
		      <groupId>org.elasticmq</groupId>
		      <artifactId>elasticmq-server_2.13</artifactId>
		      <version>$elasticmq</version>
		    </dependency>
		  </dependencies>
		</project>
	END
	if ! mvn -B -f "$new/pom.xml" dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$new/libs" </dev/null >"$dir/install.log" 2>&1 9>&-; then
		tail -n 20 "$dir/install.log" >&2
		rm -rf "$new"
		die "Maven cannot fetch ElasticMQ $elasticmq"
	fi
	# -T, or else a folder that appeared meanwhile would get it as a subfolder.
	mv -T "$new/libs" "$cache" 2>/dev/null || [ -d "$cache" ]
	rm -rf "$new"
}

configure() {
	local data=$dir/data host=127.0.0.1
	if [ "$mode" = docker ]; then
		data=/data host=0.0.0.0
	fi
	# The database writes what was committed at once, not after half a second:
	# what was confirmed survives SIGKILL.
	cat >"$dir/elasticmq.conf" <<-END
		include classpath("application.conf")
		node-address { protocol = http, host = "127.0.0.1", port = $port, context-path = "" }
		rest-stats { enabled = false }
		rest-sqs { enabled = true, bind-hostname = "$host", bind-port = $port, sqs-limits = strict }
		aws { region = elasticmq, accountId = "000000000000" }
		messages-storage { enabled = true, uri = "jdbc:h2:$data/elasticmq;WRITE_DELAY=0" }
	END
	chmod 644 "$dir/elasticmq.conf"
}

# Settings of other Javas in variables do not reach this one.
native() {
	# shellcheck disable=SC2086 # several words
	exec env -i SPILLWAY_BROKER="${SPILLWAY_BROKER:-}" PATH="$PATH" LC_ALL=C.UTF-8 \
		setsid "$java" $jvm -Dconfig.file="$dir/elasticmq.conf" -cp "$libs/*" org.elasticmq.server.Main
}

clean() { :; }

create() {
	docker create --name "$container" \
		--publish "127.0.0.1:$port:$port" \
		--volume "$container:/data" \
		--user root \
		--env JAVA_TOOL_OPTIONS="$jvm" \
		"$image"
	# Copied, not mounted: the engine may not see our files.
	docker cp "$dir/elasticmq.conf" "$container:/opt/elasticmq.conf"
}

# ctl QUERY sends a request of the API: ctl 'Action=ListQueues'.
ctl() {
	running || die "not running"
	command -v curl >/dev/null || die "needs curl"
	curl -sS --data "${1:-Action=ListQueues}" "http://127.0.0.1:$port/"
}
