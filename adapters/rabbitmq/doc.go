// Package rabbitmq is the adapter for RabbitMQ.
package rabbitmq
