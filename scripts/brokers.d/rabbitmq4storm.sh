# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for scripts/brokers
# RabbitMQ 4.0 of internal/storm: a node of its own, for the reason and with the
# setting that rabbitmqstorm.sh explains.

# shellcheck source=scripts/brokers.d/rabbitmq4.sh
source "$root/scripts/brokers.d/rabbitmq4.sh"

erlang+=' -rabbit dead_letter_worker_publisher_confirm_timeout 10000'
