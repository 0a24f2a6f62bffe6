// Package kafka is the adapter for Apache Kafka.
package kafka
