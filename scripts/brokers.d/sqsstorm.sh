# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# The ElasticMQ of internal/storm: like sqs, but a server of its own, because the
# storm kills it while other tests use that one.

# shellcheck source=scripts/brokers.d/sqs.sh
source "$root/scripts/brokers.d/sqs.sh"
