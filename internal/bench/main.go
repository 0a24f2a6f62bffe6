// Command bench measures what Spillway costs and prints it as a table. Every
// figure that matters is a ratio of two measurements of the same run, taken in
// turns, so that it means the same on any machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// row is one line of the table.
type row struct {
	what     string
	measured string
	target   string
	ok       bool
}

func main() {
	messages := flag.Int("messages", 200_000, "messages of one throughput run")
	rounds := flag.Int("rounds", 5, "throughput runs of each kind, taken in turns; the median counts")
	flag.Parse()

	rows := chainCost()
	rows = append(rows, healthyThroughput(*messages, *rounds)...)

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tTARGET\t")
	missed := 0
	for _, r := range rows {
		mark := ""
		if r.target != "" {
			mark = "ok"
			if !r.ok {
				mark = "MISSED"
				missed++
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.measured, r.target, mark)
	}
	w.Flush()
	if missed > 0 {
		fmt.Printf("\n%d targets missed in this run\n", missed)
		os.Exit(1)
	}
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
