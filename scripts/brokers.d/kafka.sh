# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# Apache Kafka in KRaft mode, one node that is broker and controller.
# scripts/brokers says what is defined here, and what is there to use.
#
# Natively it needs Java 17 or newer. Maven fetches Kafka once, 44 MB, into
# spillway/ of the user's cache folder, where all clones find it. In either mode
# openssl makes the certificates of the listener with TLS.
#
#   SPILLWAY_KAFKA_IMAGE  container image; default apache/kafka:4.1.1
#   SPILLWAY_KAFKA_HOME   folder of an unpacked Kafka 4, to be used natively
#                         instead of Maven's
#   JAVA_HOME             folder of the Java to use; default: java in PATH

# Clients, the controller, clients that come through a proxy, and clients with
# TLS and a password. The next port is that proxy's, and not the broker's: a
# broker that was killed starts again while the proxy listens.
ports=4
kafka=4.1.1
image=${SPILLWAY_KAFKA_IMAGE:-apache/kafka:$kafka}
cache=${XDG_CACHE_HOME:-${HOME:-$root}/.cache}/spillway/kafka-$kafka
libs=${SPILLWAY_KAFKA_HOME:+$SPILLWAY_KAFKA_HOME/libs}
libs=${libs:-$cache}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

# Its records are in the system's page cache, not in the heap. The simpler
# compiler and collector leave the processors to the tests.
jvm='-Xms96m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1'

url() { echo "kafka://127.0.0.1:$port"; }

# The second variable is a program: it takes the name of one of Kafka's commands
# and its arguments. Who connects to the third is sent on to PORT+1 of it, where
# a test may have a proxy to it listen. The fourth has its user in it; the fifth is
# a folder with the authority's certificate, ca.pem, and one for clients,
# client.pem with client.key.
variables() {
	echo "SPILLWAY_TEST_KAFKA=$(url)"
	printf 'SPILLWAY_TEST_KAFKACTL=%q\n' "$dir/kafkactl"
	echo "SPILLWAY_TEST_KAFKA_PROXIED=kafka://127.0.0.1:$((port + 2))"
	echo "SPILLWAY_TEST_KAFKA_TLS=kafkas://$user:$password@127.0.0.1:$((port + 3))"
	printf 'SPILLWAY_TEST_KAFKA_CERTS=%q\n' "$dir/tls"
}

# The user of the listener with TLS: by PLAIN, and by SCRAM with both hashes. The
# password guards nothing: the other listeners want none.
user=spillway
password=p-of-test-4711
scram=(--add-scram "SCRAM-SHA-256=[name=$user,password=$password]" --add-scram "SCRAM-SHA-512=[name=$user,password=$password]")

# probe asks for the brokers of the cluster. Kafka accepts connections before
# it counts itself among them.
probe() {
	local first answer
	exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
	# Metadata, version 1, correlation 1, no client id, no topics.
	printf '\0\0\0\16\0\3\0\1\0\0\0\1\377\377\0\0\0\0' >&3
	# The first byte may take a while; what follows comes with it.
	IFS= read -r -d '' -n 1 -t 5 first <&3 || return 1
	answer=$(dd bs=4096 count=1 <&3 | od -An -v -tx1 -j3 -N8 | tr -d ' \n')
	exec 3>&-
	# Correlation 1, one broker.
	[ "$answer" = 0000000100000001 ] || return 1
	version
} 2>/dev/null

# version says what serves: Kafka's protocol has no question for it.
version() {
	local jar
	if [ "$mode" = docker ]; then
		echo "${image##*:}"
		return
	fi
	for jar in "$libs"/kafka_2.*.jar; do
		jar=${jar%.jar}
		echo "${jar##*-}"
		return
	done
}

install() {
	local major
	command -v "$java" >/dev/null || debian_install default-jre-headless ||
		die "needs a Docker engine that answers, or Java 17 (Debian's package default-jre-headless has it)"
	major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
	[ "${major:-0}" -ge 17 ] || die "needs Java 17 or newer; $java is ${major:-of an unknown version}." \
		"JAVA_HOME names another"
	! compgen -G "$libs/kafka_2.*.jar" >/dev/null || return 0
	[ -z "${SPILLWAY_KAFKA_HOME:-}" ] || die "there is no Kafka in $SPILLWAY_KAFKA_HOME/libs"
	command -v mvn >/dev/null || debian_install maven ||
		die "needs a Docker engine that answers, or Maven, which fetches Kafka" \
			"(any Kafka 4 will do: SPILLWAY_KAFKA_HOME names the folder of an unpacked one)"
	fetch
}

# fetch has Maven put Kafka, its tools and what they need into $cache. All or
# nothing is there, also if two clones do this at the same time.
fetch() {
	local new
	say "$broker: fetching Kafka $kafka by Maven, once, into $cache"
	mkdir -p "${cache%/*}"
	new=$(mktemp -d "$cache.XXXXXX")
	cat >"$new/pom.xml" <<-END
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>spillway</groupId>
		  <artifactId>kafka</artifactId>
		  <version>1</version>
		  <packaging>pom</packaging>
		  <dependencies>
		    <dependency>
		      <groupId>org.apache.kafka</groupId>
		      <artifactId>kafka_2.13</artifactId>
		      <version>$kafka</version>
		    </dependency>
		    <dependency>
		      <groupId>org.apache.kafka</groupId>
		      <artifactId>kafka-tools</artifactId>
		      <version>$kafka</version>
		      <exclusions>
		        <!-- Kafka Connect, and a web server for it. -->
		        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId></exclusion>
		        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId></exclusion>
		        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion>
		      </exclusions>
		    </dependency>
		    <dependency>
		      <groupId>org.slf4j</groupId>
		      <artifactId>slf4j-simple</artifactId>
		      <version>1.7.36</version>
		    </dependency>
		  </dependencies>
		</project>
	END
	if ! mvn -B -f "$new/pom.xml" dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$new/libs" </dev/null >"$dir/install.log" 2>&1 9>&-; then
		tail -n 20 "$dir/install.log" >&2
		rm -rf "$new"
		die "Maven cannot fetch Kafka $kafka"
	fi
	# -T, or else a folder that appeared meanwhile would get it as a subfolder.
	mv -T "$new/libs" "$cache" 2>/dev/null || [ -d "$cache" ]
	rm -rf "$new"
}

# certificates makes an authority, and certificates by it for the broker and for a
# client, once.
certificates() {
	local tls=$dir/tls name
	[ ! -e "$tls/client.pem" ] || return 0
	command -v openssl >/dev/null || debian_install openssl || die "needs openssl, for the listener with TLS"
	rm -rf "$tls"
	mkdir "$tls"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=spillway test authority" \
		-keyout "$tls/ca.key" -out "$tls/ca.pem" 2>"$dir/install.log" || die "openssl makes no authority: $(cat "$dir/install.log")"
	for name in broker client; do
		printf 'subjectAltName=IP:127.0.0.1,DNS:%s.spillway.test\n' "$name" >"$tls/$name.ext"
		{
			openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=spillway test $name" \
				-keyout "$tls/$name.key" -out "$tls/$name.csr" &&
				openssl x509 -req -in "$tls/$name.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 3650 \
					-extfile "$tls/$name.ext" -out "$tls/$name.pem"
		} 2>"$dir/install.log" || die "openssl makes no certificate: $(cat "$dir/install.log")"
	done
}

# inline FILE prints a file as a value of a properties file.
inline() { awk '{ printf "%s\\n", $0 }' "$1"; }

configure() {
	local data=$dir/data host=127.0.0.1 module=org.apache.kafka.common.security
	certificates
	if [ "$mode" = docker ]; then
		data=/var/lib/kafka/data host=0.0.0.0
	fi
	cat >"$dir/server.properties" <<-END
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$((port + 1))
		listeners=CLIENT://$host:$port,CONTROLLER://127.0.0.1:$((port + 1)),PROXIED://$host:$((port + 2)),SECURED://$host:$((port + 3))
		advertised.listeners=CLIENT://127.0.0.1:$port,PROXIED://127.0.0.1:$((port + 4)),SECURED://127.0.0.1:$((port + 3))
		listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,SECURED:SASL_SSL
		listener.name.secured.ssl.keystore.type=PEM
		listener.name.secured.ssl.keystore.certificate.chain=$(inline "$dir/tls/broker.pem")
		listener.name.secured.ssl.keystore.key=$(inline "$dir/tls/broker.key")
		listener.name.secured.ssl.truststore.type=PEM
		listener.name.secured.ssl.truststore.certificates=$(inline "$dir/tls/ca.pem")
		# A client need not show a certificate, but if it does, it is looked at.
		listener.name.secured.ssl.client.auth=requested
		listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
		listener.name.secured.plain.sasl.jaas.config=$module.plain.PlainLoginModule required user_$user="$password";
		listener.name.secured.scram-sha-256.sasl.jaas.config=$module.scram.ScramLoginModule required;
		listener.name.secured.scram-sha-512.sasl.jaas.config=$module.scram.ScramLoginModule required;
		controller.listener.names=CONTROLLER
		inter.broker.listener.name=CLIENT
		log.dirs=$data
		auto.create.topics.enable=false
		# Of its own topics there is one copy too.
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=4
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=4
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		# Tests start many groups, and wait for members that they killed.
		group.initial.rebalance.delay.ms=0
		group.min.session.timeout.ms=1000
		# After SIGKILL, a broker is let in again when it was given up: by default 9 s.
		broker.heartbeat.interval.ms=500
		broker.session.timeout.ms=3000
		# For small machines.
		num.network.threads=2
		num.io.threads=4
		background.threads=4
		log.cleaner.dedupe.buffer.size=8388608
		log.index.size.max.bytes=1048576
		log.segment.delete.delay.ms=1000
	END
	chmod 644 "$dir/server.properties"
	cat >"$dir/kafkactl" <<-END
		#!/usr/bin/env bash
		exec $(printf %q "$root")/scripts/brokers ctl $broker "\$@"
	END
	chmod +x "$dir/kafkactl"
}

# Without a fixed id, data of an interrupted start would be another cluster's.
cluster=spillway-kafka-test-00

native() {
	ulimit -n 65536 2>/dev/null || true
	[ -e "$dir/data/meta.properties" ] ||
		(become kafka.tools.StorageTool format --ignore-formatted --cluster-id "$cluster" --config "$dir/server.properties" "${scram[@]}")
	# shellcheck disable=SC2086 # several words
	become $jvm kafka.Kafka "$dir/server.properties"
}

# become ARG... replaces this process by a Java in which Kafka's classes are
# found. Settings of other Javas and Kafkas in variables do not reach it.
become() {
	local quiet=warn
	[ "${*: -2:1}" != kafka.Kafka ] || quiet=info
	exec env -i SPILLWAY_BROKER="${SPILLWAY_BROKER:-}" PATH="$PATH" LC_ALL=C.UTF-8 \
		setsid "$java" -cp "$libs/*" \
		-Dorg.slf4j.simpleLogger.defaultLogLevel="$quiet" \
		-Dorg.slf4j.simpleLogger.showDateTime=true \
		-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
		"$@"
}

clean() { :; }

create() {
	docker create --name "$container" --hostname spillway \
		--publish "127.0.0.1:$port:$port" \
		--publish "127.0.0.1:$((port + 2)):$((port + 2))" \
		--publish "127.0.0.1:$((port + 3)):$((port + 3))" \
		--volume "$container:/var/lib/kafka/data" \
		--ulimit nofile=65536:65536 \
		--env KAFKA_HEAP_OPTS="$jvm" --env KAFKA_JVM_PERFORMANCE_OPTS=-server \
		--entrypoint bash "$image" -euc '
			cd /opt/kafka/bin
			./kafka-storage.sh format --ignore-formatted --cluster-id "$1" --config /opt/kafka/spillway.properties "${@:2}"
			exec ./kafka-server-start.sh /opt/kafka/spillway.properties
		' bash "$cluster" "${scram[@]}"
	# Copied, not mounted: the engine may not see our files.
	docker cp "$dir/server.properties" "$container:/opt/kafka/spillway.properties"
}

# ctl COMMAND ARG... is COMMAND of Kafka's bin folder, without its .sh, which is
# told where the broker is.
ctl() {
	local command=${1:-} class
	case $command in
	kafka-configs) class=kafka.admin.ConfigCommand ;;
	kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
	kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
	kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
	kafka-delete-records) class=org.apache.kafka.tools.DeleteRecordsCommand ;;
	kafka-get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
	kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
	*) die "no such command: $command; there are kafka-configs, kafka-console-consumer, kafka-console-producer," \
		"kafka-consumer-groups, kafka-delete-records, kafka-get-offsets and kafka-topics" ;;
	esac
	shift
	running || die "not running"
	# Where clients connect is the same inside and outside of a container.
	if [ "$mode" = docker ]; then
		exec docker exec -i "$container" "/opt/kafka/bin/$command.sh" --bootstrap-server "127.0.0.1:$port" "$@"
	fi
	become "$class" --bootstrap-server "127.0.0.1:$port" "$@"
}
