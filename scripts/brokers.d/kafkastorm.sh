# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# The Kafka of internal/storm: like kafka, but a node of its own, because the
# storm kills it while other tests use that one.

# shellcheck source=scripts/brokers.d/kafka.sh
source "$root/scripts/brokers.d/kafka.sh"
