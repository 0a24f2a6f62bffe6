# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# The RabbitMQ of internal/storm: like rabbitmq, but a node of its own, because
# the storm kills it while other tests use that one.

# shellcheck source=scripts/brokers.d/rabbitmq.sh
source "$root/scripts/brokers.d/rabbitmq.sh"

# While it starts, queues come up before exchanges. What a rung of delays has to
# pass on then is tried again after this time, which by default is 3 minutes.
erlang+=' -rabbit dead_letter_worker_publisher_confirm_timeout 10000'
