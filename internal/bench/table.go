package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

const (
	verdictOK          = "ok"
	verdictMissed      = "MISSED"
	verdictNotMeasured = "NOT MEASURED"
)

// row is one line of the table. Without a target there is no verdict.
type row struct {
	what, measured, target, verdict string
}

type table struct{ rows []row }

// note adds a figure without a target.
func (t *table) note(what, format string, args ...any) {
	t.rows = append(t.rows, row{what: what, measured: fmt.Sprintf(format, args...)})
}

// check adds a figure with a target.
func (t *table) check(what string, ok bool, target, format string, args ...any) {
	verdict := verdictMissed
	if ok {
		verdict = verdictOK
	}
	t.rows = append(t.rows, row{what, fmt.Sprintf(format, args...), target, verdict})
}

// fail adds what could not be measured, and why.
func (t *table) fail(what string, err error) {
	t.rows = append(t.rows, row{what: what, measured: err.Error(), verdict: verdictNotMeasured})
}

func (t *table) unmet() int {
	n := 0
	for _, r := range t.rows {
		if r.verdict == verdictMissed || r.verdict == verdictNotMeasured {
			n++
		}
	}
	return n
}

func (t *table) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tTARGET\tVERDICT")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.measured, cmp.Or(r.target, "-"), cmp.Or(r.verdict, "-"))
	}
	_ = w.Flush()
}

// percentile is the smallest value that at least p percent of the values do not
// exceed. The values must be sorted, and there must be one.
func percentile[T cmp.Ordered](sorted []T, p int) T {
	return sorted[max((len(sorted)*p+99)/100-1, 0)]
}

// rates are messages per second, by what was run and by round.
type rates [][]float64

// inTurns calls each function once in every round, every other round from the
// last to the first.
func inTurns(rounds int, runs ...func() (float64, error)) (rates, error) {
	all := make(rates, len(runs))
	order := make([]int, len(runs))
	for i := range order {
		order[i] = i
	}
	for range rounds {
		for _, i := range order {
			rate, err := runs[i]()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], rate)
		}
		slices.Reverse(order)
	}
	return all, nil
}

// ratio is the median of the ratios of runs a and b of the same round. Whatever
// else the machine does then has met both alike, or counts only once. A ratio
// of the best runs is not as good: on a busy machine the lucky moments of one
// side decide it.
func (r rates) ratio(a, b int) float64 {
	ratios := make([]float64, 0, len(r[a]))
	for i := range r[a] {
		ratios = append(ratios, r[a][i]/r[b][i])
	}
	return median(ratios)
}

func (r rates) median(i int) float64 { return median(r[i]) }

func median(values []float64) float64 { return percentile(slices.Sorted(slices.Values(values)), 50) }
