// Command bench measures what Spillway costs and what it keeps its word about,
// and prints one table. Throughput is compared within a run, so that the ratios
// mean the same on any machine; docs/benchmarks.md says what each figure means.
//
// With SPILLWAY_TEST_RABBITMQ, SPILLWAY_TEST_KAFKA and SPILLWAY_TEST_SQS it also
// measures on these brokers, which `make bench` starts. The exit code is 1 if a
// target was missed or could not be measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

func main() {
	var m onMemory
	var r onRabbitMQ
	var k onKafka
	var q onSQS
	var tr triaging
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to a file")
	only := flag.String("only", "", "measure only these, separated by commas: chain, memory, signature, triage, collect, sqs, collect-sqs, throughput, collect-rabbitmq, lateness, kill, kafka-success, kafka, kafka-memory")
	flag.IntVar(&m.messages, "messages", 10_000, "memory: messages of one run")
	flag.IntVar(&m.rounds, "rounds", 4, "memory: runs of each kind, taken in turns")
	flag.IntVar(&tr.messages, "dead-letters", 1_000_000, "triage: dead letters in the file")
	flag.IntVar(&tr.rounds, "triage-rounds", 2, "triage: passes of each kind, taken in turns")
	flag.StringVar(&tr.run, "triage-run", "", "only make one pass over -triage-file, ours or naive, and print what it took")
	flag.StringVar(&tr.file, "triage-file", "", "the file of -triage-run")
	flag.IntVar(&r.messages, "rabbitmq-messages", 4_000, "RabbitMQ: messages of one run")
	flag.IntVar(&r.rounds, "rabbitmq-rounds", 3, "RabbitMQ: runs of each kind, taken in turns")
	flag.DurationVar(&r.work, "work", 20*time.Millisecond, "RabbitMQ and Kafka: how long a handler takes where failing messages are compared")
	flag.DurationVar(&r.window, "lateness-window", 20*time.Second, "RabbitMQ: how long lateness is measured")
	flag.IntVar(&r.collect, "collect", 40_000, "dead letters that are collected in one run")
	flag.StringVar(&r.brokers, "brokers", "scripts/brokers rabbitmq", "the command, and the broker's name, that kill and start RabbitMQ")
	flag.IntVar(&k.messages, "kafka-messages", 100_000, "Kafka: messages of one run of handlers that do nothing")
	flag.IntVar(&k.rounds, "kafka-rounds", 3, "Kafka: runs of each kind, taken in turns")
	flag.IntVar(&q.messages, "sqs-messages", 1_000, "SQS: messages of one run")
	flag.IntVar(&q.letters, "sqs-collect", 4_000, "SQS: dead letters that are collected in one run")
	flag.IntVar(&q.rounds, "sqs-rounds", 5, "SQS: runs of each kind, taken in turns")
	flag.Parse()
	k.url, k.work = os.Getenv("SPILLWAY_TEST_KAFKA"), r.work
	q.url = os.Getenv("SPILLWAY_TEST_SQS")
	r.url = os.Getenv("SPILLWAY_TEST_RABBITMQ")

	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			log.Fatal(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	if tr.run != "" {
		if err := tr.child(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	before := load()
	var t table
	sections := []section{{"chain", chainCost}, {"memory", m.throughput}, {"signature", tr.signatures}, {"triage", tr.onePass},
		{"collect", collecting{name: "memory", messages: r.collect, rounds: 3, target: true, open: deadInMemory}.measure}}
	if q.url != "" {
		sections = append(sections, q.sections()...)
	}
	if r.url != "" {
		sections = append(sections, r.sections()...)
	}
	if k.url != "" {
		sections = append(sections, k.sections()...)
	}
	for _, s := range sections {
		if *only != "" && !strings.Contains(","+*only+",", ","+s.name+",") {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s\n", s.name)
		s.measure(ctx, &t)
	}
	pprof.StopCPUProfile()

	t.print(os.Stdout)
	fmt.Printf("\n%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if r.version != "" {
		fmt.Printf(", RabbitMQ %s", r.version)
	}
	if before != "" {
		fmt.Printf("; load average %s before, %s after", before, load())
	}
	fmt.Println()
	if n := t.unmet(); n > 0 {
		fmt.Printf("%d targets missed or not measured in this run\n", n)
		os.Exit(1)
	}
}

// section is a part of the table.
type section struct {
	name    string
	measure func(context.Context, *table)
}

// load is the load average of the last minute, or empty where the system does
// not tell.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
